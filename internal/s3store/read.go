package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/minio/minio-go/v7"

	"github.com/steledb/stele/internal/timing"
)

// Open implements backupdir.Store.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	r := &reading{s: s, ctx: ctx, name: name}
	if err := r.open(); err != nil {
		return nil, 0, err
	}
	return r, r.size, nil
}

// reading is an object that is being read. It implements io.ReadCloser.
type reading struct {
	s    *Store
	ctx  context.Context // of the call of Open
	name string
	body io.ReadCloser // nil after a failure
	etag string
	off  int64
	size int64
}

// open requests the bytes from off on.
func (r *reading) open() error {
	var o minio.GetObjectOptions
	if r.etag != "" {
		if err := errors.Join(o.SetRange(r.off, 0), o.SetMatchETag(r.etag)); err != nil {
			return err
		}
	}
	body, info, _, err := r.s.core.GetObject(r.ctx, r.s.bucket, r.s.key(r.name), o)
	if err = r.s.failure("read", r.name, err); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = &Error{"read", r.s.Location(r.name), "retry", errors.New("it was changed while it was read")}
		}
		return err
	}
	if r.body = body; r.etag == "" {
		r.etag, r.size = info.ETag, info.Size
	}
	return nil
}

// Read implements io.Reader. A read that breaks off continues where it was.
func (r *reading) Read(p []byte) (int, error) {
	pauses := timing.Backoff{Min: r.s.pause, Max: max(pauseMax, r.s.pause)}
	for i := 0; ; i++ {
		if r.off >= r.size {
			return 0, io.EOF
		}
		var err error
		if r.body == nil {
			err = r.open()
		}
		if err == nil {
			n, readErr := r.body.Read(p)
			if r.off += int64(n); n > 0 || len(p) == 0 {
				return n, nil
			}
			err = readErr
			_ = r.body.Close()
			r.body = nil
		}
		if r.ctx.Err() != nil {
			return 0, r.ctx.Err()
		}
		if i == attempts {
			return 0, &Error{"read", r.s.Location(r.name), "retry later, and look at the log of the server", fmt.Errorf("it broke off %d times after %d of %d bytes: %w", i, r.off, r.size, noEOF(err))}
		}
		pauses.Sleep(r.ctx)
	}
}

// noEOF names the early end of an answer.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) || err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close implements io.Closer.
func (r *reading) Close() error {
	if r.body == nil {
		return nil
	}
	return r.body.Close()
}
