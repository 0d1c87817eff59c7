package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Types of the results about blobs.
type (
	// BlobInfo is a blob.
	BlobInfo = api.BlobInfo
	// BlobStatus is a blob and some of its extents.
	BlobStatus = api.BlobStatus
	// BlobPage is one page of the list of blobs.
	BlobPage = api.BlobPage
	// ExtentInfo is an extent of a blob and its replicas.
	ExtentInfo = api.ExtentInfo
	// ReplicaInfo is one node's replica of an extent.
	ReplicaInfo = api.ReplicaInfo
)

// Blobs stores and reads the blobs of users. For the maintenance of the store that holds them see
// BlockStore.
type Blobs struct{ calls *caller }

// Blobs returns the blobs of users.
func (c *Client) Blobs() Blobs { return Blobs{&c.calls} }

// blob makes a call about blobs. Such calls may be repeated, since pieces contain their offsets.
func (c *caller) blob(ctx context.Context, req api.BlobRequest, change bool, decode func(*wire.Decoder) error) error {
	return c.do(ctx, &call{method: req.Method, safe: true, change: change, encode: req.Append, decode: decode})
}

// Put stores the contents of r as a blob of up to 100 GiB and returns it when it is durable on all
// its replicas. The name is for display and need not be unique; it may be empty. After an error the
// blob does not exist. After an *AmbiguousError it may exist, which List shows. Errors: r's,
// ErrDiskFull, *table.LimitError, ErrUploadExpired if the node was restarted meanwhile, and those
// of a node that cannot be reached; ctx's.
func (b Blobs) Put(ctx context.Context, name string, r io.Reader) (BlobInfo, error) {
	return b.put(ctx, api.BlobRequest{Method: api.MethodBlobOpen, Name: name}, r)
}

// PutStaged is Put for a file of a backup that Backups.Import shall make. Delete then leaves its bytes to garbage collection.
func (b Blobs) PutStaged(ctx context.Context, name string, r io.Reader) (BlobInfo, error) {
	return b.put(ctx, api.BlobRequest{Method: api.MethodBlobOpen, Name: name, Staged: true}, r)
}

func (b Blobs) put(ctx context.Context, open api.BlobRequest, r io.Reader) (BlobInfo, error) {
	var u api.BlobUpload
	if err := b.calls.blob(ctx, open, false, u.Decode); err != nil {
		return BlobInfo{}, err
	}
	length, err := b.send(ctx, u.Upload, r)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		_ = b.calls.blob(ctx, api.BlobRequest{Method: api.MethodBlobAbort, Upload: u.Upload}, false, nil)
		return BlobInfo{}, err
	}
	var info BlobInfo
	err = b.calls.blob(ctx, api.BlobRequest{Method: api.MethodBlobSeal, Upload: u.Upload, Length: length}, true, info.Decode)
	return info, err
}

// abortTimeout bounds the attempt to abort an upload on the node, which would otherwise expire.
const abortTimeout = 2 * time.Second

// piece is a part of a blob.
type piece struct {
	p   []byte
	err error // after p
}

func readPieces(ctx context.Context, r io.Reader, pieces chan<- piece, free <-chan []byte) {
	for {
		var buf []byte
		select {
		case buf = <-free:
		case <-ctx.Done():
			return
		}
		n, err := io.ReadFull(r, buf)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		select {
		case pieces <- piece{buf[:n], err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// send sends the contents of r and reads the next piece meanwhile. It keeps the upload alive if r
// blocks.
func (b Blobs) send(ctx context.Context, upload uint64, r io.Reader) (length int64, err error) {
	pieces, free := make(chan piece), make(chan []byte, 2)
	free <- make([]byte, api.BlobPieceBytesMax)
	free <- make([]byte, api.BlobPieceBytesMax)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go readPieces(ctx, r, pieces, free) // may outlive the call if r does not return
	alive := time.NewTicker(api.UploadIdle / 4)
	defer alive.Stop()
	for {
		var p piece
		select {
		case p = <-pieces:
		case <-alive.C:
		case <-ctx.Done():
			return length, ctx.Err()
		}
		if len(p.p) > 0 || p.err == nil {
			req := api.BlobRequest{Method: api.MethodBlobWrite, Upload: upload, Offset: length, Data: p.p}
			if err := b.calls.blob(ctx, req, false, func(d *wire.Decoder) error { return d.Err() }); err != nil {
				return length, err
			}
			length += int64(len(p.p))
		}
		if p.err == io.EOF {
			return length, nil
		}
		if p.err != nil {
			return length, p.err
		}
		if p.p != nil {
			free <- p.p[:cap(p.p)]
		}
	}
}

// Stat returns a blob and the state of its extents on the nodes: up to count extents, 0 for 64,
// starting with index from. With deep, nodes read and check every replica completely. All kinds of
// blobs are accepted, including those of tables. Errors: ErrNoBlob, and those of a node that cannot
// be reached; ctx's.
func (b Blobs) Stat(ctx context.Context, id string, from, count int, deep bool) (*BlobStatus, error) {
	s := &api.BlobStatus{}
	req := api.BlobRequest{Method: api.MethodBlobStat, ID: id, From: int64(from), Count: int64(count), Deep: deep}
	return s, b.calls.blob(ctx, req, false, s.Decode)
}

// List returns a page of the blobs stored by Put, sorted by id; with all, also blobs of tables and
// blobs that nothing refers to. after is the Next of the previous page. It is empty for the first
// page, and Next is empty on the last. Errors: those of a node that cannot be reached; ctx's.
func (b Blobs) List(ctx context.Context, after string, all bool) (*BlobPage, error) {
	p := &api.BlobPage{}
	return p, b.calls.blob(ctx, api.BlobRequest{Method: api.MethodBlobList, After: after, All: all}, false, p.Decode)
}

// Delete deletes a blob that was stored by Put. Errors: ErrNoBlob, *AmbiguousError, and those of a
// node that cannot be reached; ctx's.
func (b Blobs) Delete(ctx context.Context, id string) error {
	req := api.BlobRequest{Method: api.MethodBlobDelete, ID: id}
	return b.calls.do(ctx, &call{method: req.Method, change: true, encode: req.Append})
}

// Read reads up to len(p) bytes of a blob at off. It reads at most 1 MiB, fewer bytes at the blob's
// end, and none beyond it. The node that stores the bytes has verified them. Errors: ErrNoBlob,
// *CorruptError if no good replica is left, ErrUnavailable if nodes that may have one do not
// answer, and those of a node that cannot be reached; ctx's.
func (b Blobs) Read(ctx context.Context, id string, p []byte, off int64) (n int, err error) {
	req := api.BlobRequest{Method: api.MethodBlobRead, ID: id, Offset: off, Length: int64(min(len(p), api.BlobPieceBytesMax))}
	err = b.calls.blob(ctx, req, false, func(d *wire.Decoder) error {
		if !d.IsNil() {
			n = copy(p, d.Bytes())
		}
		return d.Err()
	})
	return n, err
}

// readAhead is the number of concurrent reads of a blob.
const readAhead = 4

// Get writes the bytes of a blob to w and returns the blob. Errors: those of Read, and w's. After
// an error w may have received a part of the blob.
func (b Blobs) Get(ctx context.Context, id string, w io.Writer) (BlobInfo, error) {
	s, err := b.Stat(ctx, id, 0, 1, false)
	if err != nil {
		return BlobInfo{}, err
	}
	return s.BlobInfo, b.Copy(ctx, &s.BlobInfo, w)
}

// Copy is Get for a blob that Stat or List returned.
func (b Blobs) Copy(ctx context.Context, info *BlobInfo, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reads := make(chan chan piece, readAhead-1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(reads)
		for off := int64(0); off < info.Bytes && ctx.Err() == nil; off += api.BlobPieceBytesMax {
			one := make(chan piece, 1)
			select {
			case reads <- one:
			case <-ctx.Done():
				return
			}
			go func() {
				p := make([]byte, min(info.Bytes-off, api.BlobPieceBytesMax))
				n, err := b.Read(ctx, info.ID, p, off)
				if err == nil && n != len(p) {
					err = fmt.Errorf("read blob %s at %d: %d bytes, want %d", info.ID, off, n, len(p))
				}
				one <- piece{p, err}
			}()
		}
	}()
	defer func() {
		cancel()
		<-done
		for one := range reads {
			<-one
		}
	}()
	for one := range reads {
		p := <-one
		if p.err != nil {
			return p.err
		}
		if _, err := w.Write(p.p); err != nil {
			return err
		}
	}
	return ctx.Err()
}
