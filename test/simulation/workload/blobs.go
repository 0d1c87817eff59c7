package workload

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
)

// blobClient is the part of a client that uses blobs.
type blobClient struct {
	*worker
	// own lists the blobs that the client has stored and not deleted.
	own []Blob
}

// do makes one operation on blobs. A client changes only its own blobs.
func (c *blobClient) do(all, ctx context.Context) {
	n := c.r.IntN(10)
	switch {
	case n == 0:
		c.listBlobs(ctx, false)
	case n < 5 || len(c.own) == 0:
		c.putBlob(all, ctx)
	case n < 8:
		c.getBlob(ctx, c.own[c.r.IntN(len(c.own))], false)
	default:
		i := c.r.IntN(len(c.own))
		b := c.own[i]
		op := c.begin(Op{Kind: DeleteBlob, Blob: &b})
		c.history.End(op, c.db.Blobs().Delete(ctx, b.ID))
		if c.r.IntN(2) == 0 {
			c.getBlob(ctx, b, false)
		}
		c.own = slices.Delete(c.own, i, i+1)
	}
}

// putBlob stores a blob, sometimes from a slow source, for which it takes more time than other operations have.
func (c *blobClient) putBlob(all, ctx context.Context) {
	b := &Blob{Name: valueName(c.number, c.history.number(), 1+c.r.IntN(c.plan.BlobMax))}
	op := c.begin(Op{Kind: PutBlob, Blob: b})
	var source io.Reader = bytes.NewReader(Contents(b.Name))
	if c.r.IntN(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(all, 4*c.plan.Slow)
		defer cancel()
		source = &slowReader{source, func() { c.pause(ctx, c.plan.Slow) }}
	}
	info, err := c.db.Blobs().Put(ctx, b.Name, source)
	op.Blob = &Blob{Name: b.Name, ID: info.ID}
	if op = c.history.End(op, err); op.Outcome == OK {
		c.own = append(c.own, *op.Blob)
	}
}

// A slowReader pauses before each read.
type slowReader struct {
	io.Reader
	pause func()
}

// Read implements io.Reader.
func (r *slowReader) Read(p []byte) (int, error) {
	r.pause()
	return r.Reader.Read(p)
}

func (c *blobClient) getBlob(ctx context.Context, b Blob, final bool) Op {
	op := c.begin(Op{Kind: GetBlob, Blob: &b, Final: final})
	var contents bytes.Buffer
	_, err := c.db.Blobs().Get(ctx, b.ID, &contents)
	result := b
	if err == nil {
		result.Found = nameOf(contents.Bytes())
	}
	op.Blob = &result
	return c.history.End(op, err)
}

// listBlobs lists all blobs of users.
func (c *blobClient) listBlobs(ctx context.Context, final bool) Op {
	op := c.begin(Op{Kind: ListBlobs, Blob: &Blob{}, Final: final})
	result := Blob{}
	after := ""
	for {
		page, err := c.db.Blobs().List(ctx, after, false)
		if err == nil && len(page.Silent) > 0 {
			err = fmt.Errorf("blobs of %v are missing", page.Silent)
		}
		if err != nil {
			return c.history.End(op, err)
		}
		for i := range page.Blobs {
			result.IDs = append(result.IDs, page.Blobs[i].ID)
		}
		if after = page.Next; after == "" {
			op.Blob = &result
			return c.history.End(op, nil)
		}
	}
}
