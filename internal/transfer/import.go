package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/rowfile"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/table"
)

// Applier applies mutations. *client.Table implements it.
type Applier interface {
	ApplyAll(ctx context.Context, ms []*client.RowMutation, opts ...client.ApplyOption) error
}

// ImportConfig is what an import needs.
type ImportConfig struct {
	// Table gets the rows. If it is nil, they are only checked.
	Table Applier
	// Bulk writes rows as SSTables where that costs less than batches. If it is nil, all rows are written in batches.
	Bulk BulkWriter
	// BulkMin is the size of the rows of a tablet, in bytes, from which they are written by Bulk. Zero means 4 MiB.
	BulkMin int64
	// Schema is that of the table. A cell of an aggregate family replaces the one that the table has.
	Schema *table.Schema
	Source rowfile.Source
	// Columns reads the columns of rows whose families have deletions in the file. It is used if Table is not nil.
	Columns ColumnReader
	// From is the number of lines to skip: those up to Progress.Line of an earlier import.
	From int64
	// Timestamp is that of cells without one, in microseconds.
	Timestamp int64
	// Workers is the number of batches in flight; BatchRows and BatchBytes bound each.
	Workers, BatchRows, BatchBytes int
	// RetryFor is how long a batch is repeated that fails with an error that may pass.
	RetryFor time.Duration
	// Reject is called for each row that is not valid, or that the table does not accept, by one goroutine at a time. Its error ends the import; if it
	// returns several, because batches are in flight, the import returns that of the first line.
	Reject func(item *rowfile.Item, err error) error
}

// Progress counts what has been done. It is safe for concurrent use.
type Progress struct {
	Rows, Cells, Bytes, Rejected atomic.Int64
	// Line is the last line such that all rows up to it have been applied or rejected.
	Line atomic.Int64
}

// importer is an import that runs.
type importer struct {
	ImportConfig
	progress *Progress
	// inFlight bounds the bytes of batches that have been read and not ended.
	inFlight *semaphore.Weighted
	begun    int64       // number of batches that have been sent; used by read
	batches  atomic.Bool // Bulk is not used any more: it was refused

	mu struct {
		sync.Mutex                 // held during Reject
		ended      map[int64]int64 // the last line of batches that have ended, by number, behind one that has not
		next       int64           // the first batch that has not ended
		fatal      error           // the error of Reject for the first line with one, or nil
		fatalLine  int64
	}
}

// errFatal means that Reject has returned an error, which is in importer.mu.
var errFatal = errors.New("a row ended the import")

// inFlightMax bounds the bytes in flight. A larger batch, of one large row, is alone.
const inFlightMax = 128 << 20

// weight returns what a batch takes of inFlight.
func (b *batch) weight() int64 { return min(int64(b.bytes), inFlightMax) }

// batch is a part of the file.
type batch struct {
	number, last int64
	items        []rowfile.Item
	bytes        int
}

// Import imports a file. Errors: those of the file, of Reject, ctx's, and those of the table that concern all rows, such as client.ErrNoTable and
// client.ErrPermission.
func Import(ctx context.Context, cfg ImportConfig, progress *Progress) error {
	im := &importer{ImportConfig: cfg, progress: progress, inFlight: semaphore.NewWeighted(inFlightMax)}
	if im.BulkMin == 0 {
		im.BulkMin = bulkMin
	}
	im.mu.ended = map[int64]int64{}
	progress.Line.Store(cfg.From)
	group, ctx := errgroup.WithContext(ctx)
	batches := make(chan *batch)
	for range cfg.Workers {
		group.Go(func() error { return im.work(ctx, batches) })
	}
	group.Go(func() error {
		defer close(batches)
		return im.read(ctx, batches)
	})
	err := group.Wait()
	im.mu.Lock()
	defer im.mu.Unlock()
	if err == nil {
		err = im.mu.fatal
	}
	return err
}

// read divides the file into batches.
func (im *importer) read(ctx context.Context, batches chan<- *batch) error {
	b := &batch{}
	for {
		if im.endedBefore(b.last) {
			return nil
		}
		var item rowfile.Item
		err := im.Source.Next(&item)
		var bad *rowfile.LineError
		switch {
		case errors.Is(err, io.EOF):
			return im.send(ctx, b, batches)
		case errors.As(err, &bad) && item.Line > im.From:
			if im.reject(&item, err) != nil { // a row before it may be bad, too
				return im.send(ctx, b, batches)
			}
			continue
		case errors.As(err, &bad) || err == nil && item.Line <= im.From:
			continue
		case err != nil:
			return err
		}
		b.items, b.bytes, b.last = append(b.items, item), b.bytes+item.Bytes, item.Line
		if item.More { // the record ends in another batch, perhaps
			b.last--
		}
		if len(b.items) >= im.BatchRows || b.bytes >= im.BatchBytes {
			if err := im.send(ctx, b, batches); err != nil {
				return err
			}
			b = &batch{}
		}
	}
}

// send hands a batch to a worker, unless it is empty.
func (im *importer) send(ctx context.Context, b *batch, batches chan<- *batch) error {
	if len(b.items) == 0 {
		return nil
	}
	if err := im.inFlight.Acquire(ctx, b.weight()); err != nil {
		return err
	}
	b.number = im.begun
	im.begun++
	select {
	case batches <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work applies batches.
func (im *importer) work(ctx context.Context, batches <-chan *batch) error {
	w := worker{im: im}
	for b := range batches {
		err := errFatal
		if !im.endedBefore(b.items[0].Line) {
			err = w.apply(ctx, b)
		}
		switch {
		case errors.Is(err, errFatal):
			im.inFlight.Release(b.weight())
		case err != nil:
			return err
		default:
			im.end(b)
		}
	}
	return nil
}

// end counts a batch that has ended (TR2).
func (im *importer) end(b *batch) {
	im.progress.Bytes.Add(int64(b.bytes))
	im.inFlight.Release(b.weight())
	im.mu.Lock()
	defer im.mu.Unlock()
	im.mu.ended[b.number] = b.last
	for {
		last, ok := im.mu.ended[im.mu.next]
		if !ok {
			return
		}
		delete(im.mu.ended, im.mu.next)
		im.mu.next++
		im.progress.Line.Store(last)
	}
}

func (im *importer) reject(item *rowfile.Item, err error) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.progress.Rejected.Add(1)
	err = im.Reject(item, err)
	if err == nil {
		return nil
	}
	if im.mu.fatal == nil || item.Line < im.mu.fatalLine {
		im.mu.fatal, im.mu.fatalLine = err, item.Line
	}
	return errFatal
}

// endedBefore reports whether a row before a line has ended the import.
func (im *importer) endedBefore(line int64) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.mu.fatal != nil && im.mu.fatalLine < line
}

// worker applies one batch at a time, with memory that it reuses.
type worker struct {
	im     *importer
	parser rowfile.Parser
	row    table.Row
	ms     []*client.RowMutation // of todo, and further ones for later batches
	todo   []todo
}

// todo is a row that has not been applied.
type todo struct {
	item  *rowfile.Item
	cells int64
}

// applied counts a row.
func (w *worker) applied(t todo) {
	w.im.progress.Rows.Add(1)
	w.im.progress.Cells.Add(t.cells)
}

// apply applies a batch.
func (w *worker) apply(ctx context.Context, b *batch) error {
	w.todo = w.todo[:0]
	for i := range b.items {
		if err := w.decode(ctx, &b.items[i]); err != nil {
			return err
		}
	}
	if w.im.Table == nil {
		return nil
	}
	if w.im.Bulk != nil {
		if err := w.bulk(ctx); err != nil {
			return err
		}
	}
	pauses := timing.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for began := time.Now(); len(w.todo) > 0; {
		passing, err := w.send(ctx)
		if err != nil || len(w.todo) == 0 {
			return err
		}
		if w.im.endedBefore(math.MaxInt64) {
			return errFatal
		}
		if time.Since(began) > w.im.RetryFor {
			return fmt.Errorf("gave up after %v: %w", w.im.RetryFor, passing)
		}
		if pauses.Sleep(ctx); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// decode decodes an item to a mutation, or rejects it.
func (w *worker) decode(ctx context.Context, item *rowfile.Item) error {
	if err := w.im.Source.Decode(item, &w.parser, &w.row); err != nil {
		return w.im.reject(item, err)
	}
	n := len(w.todo)
	if n == len(w.ms) {
		w.ms = append(w.ms, client.NewRowMutation(""))
	}
	m := w.ms[n]
	m.Reset(string(w.row.Key))
	if err := w.deletions(ctx, m, item); ofRow(err) {
		return w.im.reject(item, err)
	} else if err != nil {
		return err
	}
	for i := range w.row.Cells {
		c := &w.row.Cells[i]
		if c.Timestamp == table.ServerTimestamp {
			c.Timestamp = w.im.Timestamp
		}
		// The parser's memory is reused by the next item.
		w.add(m, &table.Cell{Family: c.Family, Qualifier: bytes.Clone(c.Qualifier), Timestamp: c.Timestamp, Value: bytes.Clone(c.Value)})
	}
	w.todo = append(w.todo, todo{item, int64(len(w.row.Cells))})
	if w.im.Table == nil || m.Len() == 0 { // with deletions only, of columns that the row has not
		w.applied(w.todo[n])
		w.todo = w.todo[:n]
	}
	return nil
}

// add adds what makes c the cell of its column and timestamp.
func (w *worker) add(m *client.RowMutation, c *table.Cell) {
	if w.im.Schema == nil {
		m.Add(table.Set(c.Family, c.Qualifier, c.Timestamp, c.Value))
		return
	}
	m.Add(w.im.Schema.ReplaceCell(c)...)
}

// send applies the rows of todo and leaves those in it whose error may pass: one of these is the first result.
func (w *worker) send(ctx context.Context) (passing, err error) {
	err = w.im.Table.ApplyAll(ctx, w.ms[:len(w.todo)], client.WithReplay(client.ReplayIdempotent))
	if err == nil {
		for _, t := range w.todo {
			w.applied(t)
		}
		w.todo = w.todo[:0]
		return nil, nil
	}
	var failed *client.BatchError
	if !errors.As(err, &failed) {
		return nil, err
	}
	return w.sort(failed.Errs)
}

// sort leaves the rows in todo whose error may pass, given the error of each, and rejects the others that failed.
func (w *worker) sort(errs []error) (passing, err error) {
	left := 0
	for i, err := range errs {
		switch {
		case err == nil:
			w.applied(w.todo[i])
		case passes(err):
			passing = err
			w.ms[left], w.ms[i] = w.ms[i], w.ms[left]
			w.todo[left] = w.todo[i]
			left++
		case ofRow(err):
			if err := w.im.reject(w.todo[i].item, err); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
	w.todo = w.todo[:left]
	return passing, nil
}

// passes reports whether an error may pass, so that the mutation is worth another attempt.
func passes(err error) bool {
	var quota *client.QuotaError
	if errors.As(err, &quota) {
		return !quota.Bytes
	}
	for _, e := range []error{
		client.ErrOverloaded, client.ErrNotServing, client.ErrUnavailable, client.ErrUnreachable, client.ErrAmbiguous, client.ErrConflict,
		client.ErrTabletBusy, api.ErrOutcomeUnknown,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ofRow reports whether an error concerns one row only.
func ofRow(err error) bool {
	for _, e := range []error{
		client.ErrNoFamily, client.ErrRowTooLarge, table.ErrLimit, table.ErrBadRowKey, table.ErrBadTimestamp, table.ErrBadName, table.ErrBadOp, table.ErrBadOperand, table.ErrAggregate,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
