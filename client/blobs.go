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
	// BlobPage is some of the blobs that there are.
	BlobPage = api.BlobPage
	// ExtentInfo is an extent of a blob and its replicas.
	ExtentInfo = api.ExtentInfo
	// FsckStep is what one step of a check of the whole store has found.
	FsckStep = api.FsckStep
	// StoreStatus is the block store as its nodes tell of it.
	StoreStatus = api.StoreStatus
	// NodeStore is a node's part of the block store.
	NodeStore = api.NodeStore
	// ReplicaInfo is one node's replica of an extent.
	ReplicaInfo = api.ReplicaInfo
)

// blob makes a call about blobs. All of them may be made again: pieces say where they belong.
func (c *Client) blob(ctx context.Context, req api.BlobRequest, change bool, decode func(*wire.Decoder) error) error {
	return c.do(ctx, &call{method: req.Method, safe: true, change: change, encode: req.Append, decode: decode})
}

// PutBlob stores all that r gives as a blob of up to 100 GiB, on as many nodes as keep a replica,
// and returns it when it is durable there. The name is for people: several blobs may have the
// same, or none. After an error there is no blob; after an *AmbiguousError there may be, which
// Blobs tells. Errors: r's, ErrDiskFull, *table.LimitError, ErrUploadExpired when the node was
// restarted meanwhile, and those of a node that cannot be reached; ctx's.
func (c *Client) PutBlob(ctx context.Context, name string, r io.Reader) (BlobInfo, error) {
	var u api.BlobUpload
	if err := c.blob(ctx, api.BlobRequest{Method: api.MethodBlobOpen, Name: name}, false, u.Decode); err != nil {
		return BlobInfo{}, err
	}
	length, err := c.sendBlob(ctx, u.Upload, r)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
		defer cancel()
		_ = c.blob(ctx, api.BlobRequest{Method: api.MethodBlobAbort, Upload: u.Upload}, false, nil)
		return BlobInfo{}, err
	}
	var info BlobInfo
	err = c.blob(ctx, api.BlobRequest{Method: api.MethodBlobSeal, Upload: u.Upload, Length: length}, true, info.Decode)
	return info, err
}

// abortPatience is how long it is tried to tell a node that an upload ends: it ends by itself, too.
const abortPatience = 2 * time.Second

// piece is some bytes of a blob.
type piece struct {
	p   []byte
	err error // behind p
}

// sendBlob sends what r gives, while the next piece is read. An upload to which nothing comes for a
// while is kept alive.
func (c *Client) sendBlob(ctx context.Context, upload uint64, r io.Reader) (length int64, err error) {
	pieces, free := make(chan piece), make(chan []byte, 2)
	free <- make([]byte, api.BlobPieceBytesMax)
	free <- make([]byte, api.BlobPieceBytesMax)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go readPieces(ctx, r, pieces, free) // may outlive the call when r does not return
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
			if err := c.blob(ctx, req, false, func(d *wire.Decoder) error { return d.Err() }); err != nil {
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

// StatBlob returns a blob and how its extents, from the one of that index on, are on the nodes;
// up to count of them, 0 for 64. With deep each replica is read whole and checked where it lies. It
// knows all blobs, those of tables too. Errors: ErrNoBlob, and those of a node that cannot be
// reached; ctx's.
func (c *Client) StatBlob(ctx context.Context, id string, from, count int, deep bool) (*BlobStatus, error) {
	s := &api.BlobStatus{}
	req := api.BlobRequest{Method: api.MethodBlobStat, ID: id, From: int64(from), Count: int64(count), Deep: deep}
	return s, c.blob(ctx, req, false, s.Decode)
}

// Blobs returns blobs that were stored by PutBlob, in order of their ids; with all those of tables, too,
// and what nothing names. Go on with the Next of the last page, which is empty at first and at the
// end. Errors: those of a node that cannot be reached; ctx's.
func (c *Client) Blobs(ctx context.Context, after string, all bool) (*BlobPage, error) {
	p := &api.BlobPage{}
	return p, c.blob(ctx, api.BlobRequest{Method: api.MethodBlobList, After: after, All: all}, false, p.Decode)
}

// DeleteBlob deletes a blob that was stored by PutBlob. Errors: ErrNoBlob, *AmbiguousError, and
// those of a node that cannot be reached; ctx's.
func (c *Client) DeleteBlob(ctx context.Context, id string) error {
	req := api.BlobRequest{Method: api.MethodBlobDelete, ID: id}
	return c.do(ctx, &call{method: req.Method, change: true, encode: req.Append})
}

// ReadBlob reads up to len(p) bytes of a blob from off on: as many as a call carries, 1 MiB, or
// fewer at the blob's end, and none behind it. They were verified on the node that had them.
// Errors: ErrNoBlob, *CorruptError if no good replica is left, ErrUnavailable if nodes that may have one do
// not answer, and those of a node that cannot be reached; ctx's.
func (c *Client) ReadBlob(ctx context.Context, id string, p []byte, off int64) (n int, err error) {
	req := api.BlobRequest{Method: api.MethodBlobRead, ID: id, Offset: off, Length: int64(min(len(p), api.BlobPieceBytesMax))}
	err = c.blob(ctx, req, false, func(d *wire.Decoder) error {
		if !d.IsNil() {
			n = copy(p, d.Bytes())
		}
		return d.Err()
	})
	return n, err
}

// readAhead is how many reads of a blob are under way.
const readAhead = 4

// GetBlob writes the bytes of a blob to w and returns the blob. Errors: those of ReadBlob, and w's, after
// which w has a part of it.
func (c *Client) GetBlob(ctx context.Context, id string, w io.Writer) (BlobInfo, error) {
	s, err := c.StatBlob(ctx, id, 0, 1, false)
	if err != nil {
		return BlobInfo{}, err
	}
	return s.BlobInfo, c.CopyBlob(ctx, &s.BlobInfo, w)
}

// CopyBlob is GetBlob of a blob that StatBlob or Blobs told of.
func (c *Client) CopyBlob(ctx context.Context, b *BlobInfo, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reads := make(chan chan piece, readAhead-1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(reads)
		for off := int64(0); off < b.Bytes && ctx.Err() == nil; off += api.BlobPieceBytesMax {
			one := make(chan piece, 1)
			select {
			case reads <- one:
			case <-ctx.Done():
				return
			}
			go func() {
				p := make([]byte, min(b.Bytes-off, api.BlobPieceBytesMax))
				n, err := c.ReadBlob(ctx, b.ID, p, off)
				if err == nil && n != len(p) {
					err = fmt.Errorf("read blob %s at %d: %d bytes instead of %d", b.ID, off, n, len(p))
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

// FsckBlobs makes one step of a check of all that tables, people's blobs and commit logs need of the block
// store, and of what nodes hold beside. Go on with the Next of the last step, which is empty at first and
// at the end. With deep all bytes of all replicas are read where they lie. Errors: those of a node
// that cannot be reached; ctx's.
func (c *Client) FsckBlobs(ctx context.Context, after string, deep bool) (*FsckStep, error) {
	s := &api.FsckStep{}
	return s, c.blob(ctx, api.BlobRequest{Method: api.MethodBlobFsck, After: after, Deep: deep}, false, s.Decode)
}

// StoreStatus asks all nodes how their parts of the block store are. Errors: those of a node that cannot be
// reached; ctx's.
func (c *Client) StoreStatus(ctx context.Context) (*StoreStatus, error) {
	s := &api.StoreStatus{}
	return s, c.blob(ctx, api.BlobRequest{Method: api.MethodBlobStatus}, false, s.Decode)
}

// ReviveBlob takes the extents of a blob, whoever it belongs to, out of the quarantine that the sweep for garbage has put them
// into, and returns how many replicas there were. If nothing names the blob, a later sweep finds it again. Errors: ErrNoBlob if
// nothing of it is there; ErrUnavailable if a node does not answer, the others having done their part; those of a node
// that cannot be reached; ctx's.
func (c *Client) ReviveBlob(ctx context.Context, id string) (replicas int64, err error) {
	err = c.blob(ctx, api.BlobRequest{Method: api.MethodBlobRevive, ID: id}, false, func(d *wire.Decoder) error {
		replicas = d.Int()
		return d.Err()
	})
	return replicas, err
}

// ResumeSweep lets the sweep for garbage go on, which is halted when something in quarantine turns out to be needed. Errors:
// ErrUnavailable if a node cannot be told, whose alarm halts the next round; those of a node that cannot be reached; ctx's.
func (c *Client) ResumeSweep(ctx context.Context) error {
	return c.blob(ctx, api.BlobRequest{Method: api.MethodBlobResumeSweep}, false, nil)
}
