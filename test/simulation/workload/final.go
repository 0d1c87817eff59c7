package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
)

// finalClients is the number of clients that read everything in the end.
const finalClients = 2

// Final reads all tables, files and blobs by several clients, when faults have ended and Run has
// returned. It first ends drains and quotas, which a fault may have prevented. It retries until all was read
// or the context ends.
func (w *Workload) Final(ctx context.Context) error {
	for i := range finalClients {
		c := reader{w.worker(w.plan.Clients + 1 + i)}
		if !c.open(ctx) {
			return fmt.Errorf("connect the last clients: %w", ctx.Err())
		}
		if i == 0 {
			c.restoreNames(ctx)
			c.restore(ctx)
		}
		err := c.readAll(ctx)
		c.close(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// reader is a client that reads everything.
type reader struct{ *worker }

// restore ends all drains and quotas.
func (c *reader) restore(ctx context.Context) {
	var drained, limited []string
	for _, op := range c.history.Ops() {
		switch {
		case op.Kind == Drain && op.Outcome != Failed && !slices.Contains(drained, op.Node):
			drained = append(drained, op.Node)
		case op.Kind == SetQuota && op.Outcome != Failed && !slices.Contains(limited, op.Table):
			limited = append(limited, op.Table)
		}
	}
	for _, name := range limited {
		_ = c.until(ctx, func(ctx context.Context) Op {
			op := c.begin(Op{Kind: RemoveQuota, Table: name})
			err := c.db.Quotas().Remove(ctx, client.QuotaOfTable, name)
			if errors.Is(err, client.ErrNoQuota) {
				err = nil
			}
			return c.history.End(op, err)
		}) // Final ends with ctx
	}
	for _, node := range drained {
		_ = c.until(ctx, func(ctx context.Context) Op { return c.history.End(c.operator.undrain(ctx, node)) }) // Final ends with ctx
	}
}

// until repeats an operation until it is done, its object does not exist, or the context ends.
func (c *reader) until(ctx context.Context, do func(context.Context) Op) error {
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, time.Minute)
		op := do(once)
		cancel()
		if op.Outcome == OK || op.Reason == NoTable || op.Reason == NoBlob || op.Reason == Wrong {
			return nil
		}
		pause(ctx, 500*time.Millisecond)
	}
	return fmt.Errorf("read everything in the end: %w", ctx.Err())
}

// readAll reads everything.
func (c *reader) readAll(ctx context.Context) error {
	for i := range c.plan.Tables {
		t := &c.plan.Tables[i]
		if err := c.until(ctx, func(ctx context.Context) Op { return c.rows.scan(ctx, t, &Scan{}, true) }); err != nil {
			return err
		}
	}
	if err := c.streams.drain(ctx); err != nil {
		return err
	}
	if err := c.readDeleted(ctx); err != nil {
		return err
	}
	if err := c.readRestored(ctx); err != nil {
		return err
	}
	paths, blobs := c.objects()
	for _, path := range paths {
		err := c.until(ctx, func(ctx context.Context) Op { return c.files.useFile(ctx, GetFile, &File{Path: path}) })
		if err != nil {
			return err
		}
	}
	for _, b := range blobs {
		if err := c.until(ctx, func(ctx context.Context) Op { return c.blobs.getBlob(ctx, b, true) }); err != nil {
			return err
		}
	}
	if !c.plan.Has(BlobStore) {
		return nil
	}
	return c.until(ctx, func(ctx context.Context) Op { return c.blobs.listBlobs(ctx, true) })
}

// deletedMax bounds the rows of which columns are read in the end.
const deletedMax = 60

// readDeleted reads columns of the last rows of which something was deleted.
func (c *reader) readDeleted(ctx context.Context) error {
	ops, n := c.history.Ops(), 0
	for i := len(ops) - 1; i >= 0 && n < deletedMax; i-- {
		op := &ops[i]
		t := slices.IndexFunc(c.plan.Tables, func(t TablePlan) bool { return t.Name == op.Table })
		if op.Kind != Write || t < 0 || !slices.ContainsFunc(op.Changes, func(x Change) bool { return x.Kind == DeleteRow || x.Kind == DeleteCells || x.Kind == DeleteVersions }) {
			continue
		}
		n++
		if err := c.until(ctx, func(ctx context.Context) Op { return c.rows.readColumn(ctx, &c.plan.Tables[t], op.Row, false) }); err != nil {
			return err
		}
	}
	return nil
}

// objects returns the files and the blobs that clients have written, in the order of their first
// write.
func (c *reader) objects() (paths []string, blobs []Blob) {
	known := map[string]bool{}
	for _, op := range c.history.Ops() {
		switch {
		case op.Kind == SetFile && !known[op.File.Path]:
			known[op.File.Path] = true
			paths = append(paths, op.File.Path)
		case op.Kind == PutBlob && op.Outcome == OK:
			blobs = append(blobs, Blob{ID: op.Blob.ID, Name: op.Blob.Name})
		}
	}
	return paths, blobs
}
