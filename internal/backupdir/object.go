package backupdir

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"sync"
)

// pieceBytes is the size of reads and writes of objects, in bytes: that of a read from the cluster.
const pieceBytes = 1 << 20

// putObject stores what next returns, piece by piece, until it has size bytes. It returns the hash. The object is durable after a Sync.
func (d *Dir) putObject(ctx context.Context, size int64, next func(p []byte, off int64) (int, error)) (sum string, err error) {
	err = d.store.Create(ctx, d.key.storedBytes(size), false, func(w io.Writer) (string, error) {
		if sum, err = d.fill(w, size, next); err != nil {
			return "", err
		}
		return objectName(sum), nil
	})
	return sum, err
}

// fill writes an object.
func (d *Dir) fill(w io.Writer, size int64, next func(p []byte, off int64) (int, error)) (sum string, err error) {
	out, end := w, func() error { return nil }
	if d.key != nil {
		s, err := d.key.newSealer(w)
		if err != nil {
			return "", err
		}
		out, end = s, s.Close
	}
	h, p := d.key.hash(), make([]byte, min(size, pieceBytes))
	for off := int64(0); off < size; {
		n, err := next(p[:min(int64(len(p)), size-off)], off)
		if err != nil {
			return "", err
		}
		if n <= 0 {
			return "", fmt.Errorf("a file of the backup ends after %d of %d bytes", off, size)
		}
		h.Write(p[:n])
		if _, err := out.Write(p[:n]); err != nil {
			return "", fmt.Errorf("write an object: %w", err)
		}
		off += int64(n)
	}
	if err := end(); err != nil {
		return "", fmt.Errorf("write an object: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// objectReader reads an object. Instead of io.EOF it returns a *CorruptError if the object has another hash or size (BD4).
type objectReader struct {
	// mu is held across reads: an upload that failed may still read while its caller closes the object.
	mu   sync.Mutex
	ctx  context.Context
	d    *Dir
	f    io.Closer
	from io.Reader // of the content
	name string
	off  int64
	size int64
	sum  string
	h    hash.Hash
	read func(n int64) // reports progress
}

// openObject opens an object. A missing one is a *CorruptError.
func (d *Dir) openObject(ctx context.Context, x *File, read func(n int64)) (*objectReader, error) {
	name := d.store.Location(objectName(x.SHA256))
	f, size, err := d.store.Open(ctx, objectName(x.SHA256))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &CorruptError{name, "it is missing"}
	}
	if err != nil {
		return nil, err
	}
	from, err := d.content(f, size, name, x)
	if err != nil {
		_ = f.Close() // read only
		return nil, err
	}
	return &objectReader{ctx: ctx, d: d, f: f, from: from, name: name, size: x.Bytes, sum: x.SHA256, h: d.key.hash(), read: read}, nil
}

// content returns a reader of the content of an object, which has size bytes.
func (d *Dir) content(raw io.Reader, size int64, name string, x *File) (io.Reader, error) {
	if want := d.key.storedBytes(x.Bytes); size != want {
		return nil, &CorruptError{name, fmt.Sprintf("it has %d bytes, want %d", size, want)}
	}
	if d.key == nil {
		return raw, nil
	}
	u, err := d.key.newUnsealer(raw, x.Bytes)
	if errors.Is(err, errSeal) {
		err = &CorruptError{name, err.Error()}
	}
	return u, err
}

// Read implements io.Reader.
func (r *objectReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if r.off == r.size {
		if got := hex.EncodeToString(r.h.Sum(nil)); got != r.sum {
			return 0, &CorruptError{r.name, "its hash is " + got}
		}
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.size-r.off, pieceBytes)]
	if err := r.d.pace(r.ctx, len(p)); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	switch {
	case n > 0:
		err = nil
	case errors.Is(err, io.EOF):
		err = &CorruptError{r.name, fmt.Sprintf("it ends after %d bytes", r.off)}
	case errors.Is(err, errSeal):
		err = &CorruptError{r.name, fmt.Sprintf("after %d bytes %v", r.off, err)}
	}
	r.h.Write(p[:n])
	r.off += int64(n)
	r.read(int64(n))
	return n, err
}

// Close closes the object.
func (r *objectReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx = closedContext
	return r.f.Close()
}

// closedContext ends the reads of a closed object.
var closedContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fs.ErrClosed)
	return ctx
}()
