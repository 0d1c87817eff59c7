package tablet

import (
	"context"
	"errors"
	"sync"

	"github.com/steledb/stele/tablet/storage"

	"github.com/steledb/stele/blobfs"
)

var errReadFails = errors.New("the disk does not answer")

// blobReads counts reads of sealed blobs, and can make reads fail.
type blobReads struct {
	mu sync.Mutex
	of map[blobfs.ID]int64 // bytes
	n  int                 // reads

	fails bool // all after left more
	left  int
}

// failAfter makes all reads after the next n fail; none if n is negative.
func (c *blobReads) failAfter(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails, c.left = n >= 0, n
}

// take returns the bytes read since the last call, by blob, and the number of reads.
func (c *blobReads) take() (map[blobfs.ID]int64, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, n := c.of, c.n
	c.of, c.n = nil, 0
	return of, n
}

func (c *blobReads) add(id blobfs.ID, bytes int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails {
		if c.left--; c.left < 0 {
			return errReadFails
		}
	}
	if c.of == nil {
		c.of = map[blobfs.ID]int64{}
	}
	c.of[id] += int64(bytes)
	c.n++
	return nil
}

// watchedBlobs counts the reads of a block store's sealed blobs.
type watchedBlobs struct {
	storage.Blobs
	reads *blobReads
}

func (c watchedBlobs) OpenBlob(ctx context.Context, h blobfs.Handle) (storage.BlobReader, error) {
	r, err := c.Blobs.OpenBlob(ctx, h)
	if err != nil {
		return nil, err
	}
	return watchedBlob{r, h.ID, c.reads}, nil
}

type watchedBlob struct {
	storage.BlobReader
	id    blobfs.ID
	reads *blobReads
}

func (b watchedBlob) ReadChecked(p []byte, off int64, ok func(p []byte) error) error {
	if err := b.reads.add(b.id, len(p)); err != nil {
		return err
	}
	return b.BlobReader.ReadChecked(p, off, ok)
}
