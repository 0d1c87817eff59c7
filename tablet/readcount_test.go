package tablet

import (
	"context"
	"sync"

	"github.com/steledb/stele/blobfs"
)

// blobReads counts what is read of sealed blobs.
type blobReads struct {
	mu sync.Mutex
	of map[blobfs.ID]int64 // bytes
	n  int                 // reads
}

// take returns the bytes that were read since the last call, by blob, and the reads.
func (c *blobReads) take() (map[blobfs.ID]int64, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, n := c.of, c.n
	c.of, c.n = nil, 0
	return of, n
}

func (c *blobReads) add(id blobfs.ID, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[blobfs.ID]int64{}
	}
	c.of[id] += int64(bytes)
	c.n++
}

// watchedBlobs counts the reads of a block store's sealed blobs.
type watchedBlobs struct {
	Blobs
	reads *blobReads
}

func (c watchedBlobs) OpenBlob(ctx context.Context, h blobfs.Handle) (BlobReader, error) {
	r, err := c.Blobs.OpenBlob(ctx, h)
	if err != nil {
		return nil, err
	}
	return watchedBlob{r, h.ID, c.reads}, nil
}

type watchedBlob struct {
	BlobReader
	id    blobfs.ID
	reads *blobReads
}

func (b watchedBlob) ReadChecked(p []byte, off int64, ok func(p []byte) error) error {
	b.reads.add(b.id, len(p))
	return b.BlobReader.ReadChecked(p, off, ok)
}
