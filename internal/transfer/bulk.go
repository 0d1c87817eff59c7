package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/rpc"
)

// BulkWriter writes many rows of a tablet at once, as SSTables. *client.Table implements it.
type BulkWriter interface {
	BulkSpan(ctx context.Context, rows []*client.RowMutation) (n int, bytes int64, err error)
	BulkWrite(ctx context.Context, rows []*client.RowMutation) error
}

// bulkMin is the size of a part, in bytes, from which it is written as an SSTable. A smaller one costs more than the batches.
const bulkMin = 4 << 20

// bulkExpiries is how often rows are written as a part that ends before it is committed, because its tablet or schema changes or the connection is slow, before
// they are written in batches.
const bulkExpiries = 5

// bulk writes the rows of todo that can be written as SSTables, and leaves the others in it: those of small parts, and those that may be
// rejected one by one.
func (w *worker) bulk(ctx context.Context) error {
	rows, of := client.BulkOrder(w.ms[:len(w.todo)])
	done := make([]bool, len(rows))
	err := w.parts(ctx, rows, done)
	left := 0
	for i, t := range w.todo {
		if row := of[i]; row >= 0 && done[row] {
			w.applied(t)
			continue
		}
		w.ms[left], w.ms[i] = w.ms[i], w.ms[left]
		w.todo[left] = t
		left++
	}
	w.todo = w.todo[:left]
	return err
}

// parts writes rows part by part, and marks those that are written.
func (w *worker) parts(ctx context.Context, rows []*client.RowMutation, done []bool) error {
	pauses := timing.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	expired := 0
	for at, began := 0, time.Now(); at < len(rows) && !w.im.batches.Load(); {
		n, written, err := w.part(ctx, rows[at:])
		if errors.Is(err, client.ErrBulkExpired) {
			expired++
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case passes(err) || errors.Is(err, client.ErrBulkExpired) && expired < bulkExpiries:
			if time.Since(began) > w.im.RetryFor {
				return fmt.Errorf("gave up after %v: %w", w.im.RetryFor, err)
			}
			if pauses.Sleep(ctx) != nil {
				return ctx.Err()
			}
			continue
		case n == 0:
			return nil // the batches return the error
		}
		for i := at; written && i < at+n; i++ {
			done[i] = true
		}
		at, began, expired = at+n, time.Now(), 0
		pauses.Reset()
	}
	return nil
}

// part writes the first n rows if they are many enough. An error that does not pass is left to the batches, which have it again, and row by row.
func (w *worker) part(ctx context.Context, rows []*client.RowMutation) (n int, written bool, err error) {
	n, bytes, err := w.im.Bulk.BulkSpan(ctx, rows)
	if err != nil || bytes < w.im.BulkMin {
		return n, false, err
	}
	err = w.im.Bulk.BulkWrite(ctx, rows[:n])
	for _, never := range []error{client.ErrBulkRefused, client.ErrPermission, rpc.CodeUnknownMethod} {
		if errors.Is(err, never) {
			w.im.batches.Store(true) // no part will be accepted
		}
	}
	return n, err == nil, err
}
