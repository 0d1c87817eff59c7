package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Scanner passes over the rows of a range in the order of their keys. Each row is
// whole, as of one moment; different rows may be of different moments. While the
// caller works on one batch of rows, the next is fetched.
//
//	s := t.Scan(ctx, client.Prefix("com.cnn."), client.Families("anchor"))
//	defer s.Close()
//	for s.Next() {
//		use(s.Row())
//	}
//	err := s.Err()
//
// A Scanner is for one goroutine.
type Scanner struct {
	table  *Table
	ctx    context.Context
	cancel context.CancelFunc
	opts   scanOptions
	filter []byte

	batches chan *scanBatch // one at a time, from the fetcher
	ended   error           // why the fetcher closed batches; nil at the end of the range
	started bool
	current *scanBatch
	names   *table.Interner
	rows    []table.Row  // room for rows to come
	cells   []table.Cell // and for their cells
	row     *table.Row
	err     error
	closed  bool
}

// scanBatch is one answer of the server, or why there is none.
type scanBatch struct {
	result api.ScanResult
	err    error
}

// Scan returns a Scanner over the table's rows, or those that opts ask for. It
// starts with the first Next. The Scanner must be read to its end or closed, or
// ctx must end.
func (t *Table) Scan(ctx context.Context, opts ...ScanOption) *Scanner {
	s := &Scanner{table: t, opts: scanOptionsOf(opts), batches: make(chan *scanBatch), names: table.NewInterner(namesKept)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.err = s.opts.err
	s.filter = encodeFilter(s.opts.filter())
	return s
}

// Next goes to the next row. It returns false at the end of the range and after an
// error; see Err.
func (s *Scanner) Next() bool {
	s.row = nil
	for s.err == nil && !s.closed {
		if s.current != nil && s.current.result.Count > 0 {
			s.decode()
			return s.err == nil
		}
		if !s.fetched() {
			return false
		}
	}
	return false
}

// fetched waits for the next batch; false at the end and after an error.
func (s *Scanner) fetched() bool {
	if !s.started {
		s.start()
	}
	b, ok := <-s.batches
	if !ok {
		s.current, s.err = nil, s.ended
		s.cancel()
		return false
	}
	s.current, s.err = b, b.err
	return s.err == nil
}

func (s *Scanner) start() {
	s.started = true
	if s.opts.empty {
		close(s.batches)
	} else if !s.table.client.spawn(s.fetch) {
		s.ended = ErrClosed
		close(s.batches)
	}
}

// Rows and cells get their memory so many at a time: few kilobytes, so that a row
// that is kept keeps little more than its batch.
const (
	rowsRoom  = 64
	cellsRoom = 128
)

// decode reads the next row of the current batch.
func (s *Scanner) decode() {
	if len(s.rows) == 0 {
		s.rows = make([]table.Row, rowsRoom)
	}
	row := &s.rows[0]
	s.rows = s.rows[1:]
	if cap(s.cells) == 0 {
		s.cells = make([]table.Cell, 0, cellsRoom)
	}
	row.Cells = s.cells
	s.current.result.Count--
	if s.err = table.DecodeRow(&s.current.result.Rows, row, s.names); s.err != nil {
		return
	}
	switch n := len(row.Cells); {
	case n <= cap(s.cells): // they are in the room
		row.Cells = row.Cells[:n:n]
		s.cells = s.cells[n:n]
	case n <= cellsRoom/4: // small, and yet the rest of the room did not do
		s.cells = nil
	}
	s.row = row
}

// Row returns the row that Next went to. It is the caller's; it keeps the memory of
// its batch from being freed.
func (s *Scanner) Row() *table.Row { return s.row }

// Err returns the error that ended the scan, nil if it was the end of the range.
// Errors: ErrNoTable, also if the table was dropped meanwhile and another has its name; what is wrong with an option, *RowTooLargeError,
// *CorruptError; after retries, those of a node that cannot be reached or does not
// serve; ctx's.
func (s *Scanner) Err() error { return s.err }

// Close ends the scan, and waits for what is under way. It may be called more than
// once, and after the end. It returns Err.
func (s *Scanner) Close() error {
	if s.closed {
		return s.err
	}
	s.closed = true
	s.cancel()
	if s.started {
		for range s.batches { // until the fetcher has ended
		}
	}
	s.current, s.row = nil, nil
	return s.err
}

// Rows returns the rows as an iterator, and closes the Scanner when the loop ends.
// An error comes last, with a nil row.
//
//	for row, err := range t.Scan(ctx, client.Prefix("com.cnn.")).Rows() {
func (s *Scanner) Rows() iter.Seq2[*table.Row, error] {
	return func(yield func(*table.Row, error) bool) {
		defer s.Close()
		for s.Next() {
			if !yield(s.Row(), nil) {
				return
			}
		}
		if s.err != nil {
			yield(nil, s.err)
		}
	}
}

// fetch is the fetcher: it gets batch after batch and hands each over. As that
// waits for the reader, it is one batch ahead (invariant C4).
func (s *Scanner) fetch() {
	defer close(s.batches)
	f := fetcher{table: s.table, opts: &s.opts, filter: s.filter, start: []byte(s.opts.start), left: s.opts.limit}
	defer f.close()
	for !f.done {
		b := f.next(s.ctx)
		select {
		case s.batches <- b:
		case <-s.ctx.Done():
			s.ended = s.ctx.Err()
			return
		case <-s.table.client.ctx.Done():
			s.ended = ErrClosed
			return
		}
		if b.err != nil {
			return
		}
	}
}

// fetcher knows where a scan is, whatever the server has forgotten.
type fetcher struct {
	table  *Table
	opts   *scanOptions
	filter []byte
	start  []byte // the first row that has not been delivered is at or after this
	left   int64  // of the limit; 0 is none
	id     uint64 // of the table, once a batch of it has come: no later batch is of another by the name
	cursor uint64 // 0: to be opened
	at     place  // where the cursor is
	moved  bool   // the last call's rows were not there
	done   bool
}

// next returns the next batch. A cursor that is gone, or whose answer was lost, so
// that nobody knows where it stands, is replaced by a new one at start, and so is one that
// has come to the end of what its server has: that is how invariant C3 is kept.
func (f *fetcher) next(ctx context.Context) *scanBatch {
	r := retrier{client: f.table.client, started: time.Now()}
	for {
		b := &scanBatch{}
		opened := f.cursor == 0
		if opened {
			b.err = f.open(ctx, b)
		} else {
			b.err = f.advance(ctx, b)
		}
		if b.err == nil {
			b.err = f.passed(&b.result)
			return b
		}
		if opened || !f.moved && !resumable(b.err) {
			return b
		}
		f.cursor = 0
		if planted.On(planted.ScanRepeats) {
			f.start = []byte(f.opts.start)
		}
		v := verdict{err: b.err, elsewhere: true}
		if !r.wait(ctx, &v) {
			b.err = v.err
			return b
		}
	}
}

// resumable tells whether a new cursor may get further than err. A call of
// scan_next is not safe to make twice, so it is here and not in retry that it is
// taken on after a lost connection.
func resumable(err error) bool {
	return errors.Is(err, api.ErrCursorExpired) || errors.Is(err, rpc.ErrConnLost) ||
		errors.Is(err, ErrNotServing) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnreachable)
}

func (f *fetcher) open(ctx context.Context, b *scanBatch) error {
	req := api.ScanOpenRequest{
		Table: f.table.name, Start: f.start, End: []byte(f.opts.end), Filter: f.filter,
		Limit: f.left, BatchRows: f.opts.batchRows, BatchBytes: f.opts.batchBytes,
	}
	k := call{method: api.MethodScanOpen, table: f.table.name, row: f.start, id: &req.TableID, only: f.id, safe: true}
	k.encode = func(e *wire.Encoder) {
		req.Parts = k.went.loc != nil // or it is a node that may not know what that is
		req.Append(e)
	}
	err := f.do(ctx, &k, b)
	f.at = k.went
	if err == nil && f.id == 0 {
		f.id = req.TableID
	}
	return err
}

func (f *fetcher) advance(ctx context.Context, b *scanBatch) error {
	req := api.ScanNextRequest{Cursor: f.cursor}
	k := call{method: api.MethodScanNext, at: f.at, encode: req.Append}
	err := f.do(ctx, &k, b)
	f.moved = k.moved.moved
	return err
}

func (f *fetcher) do(ctx context.Context, k *call, b *scanBatch) error {
	k.keep, k.decode = true, b.result.Decode
	return f.table.client.do(ctx, k)
}

// passed moves on behind the rows of a batch.
func (f *fetcher) passed(r *api.ScanResult) error {
	f.cursor = r.Cursor
	if r.Next != nil {
		f.start = append(f.start[:0], r.Next...)
	} else if f.cursor != 0 {
		last, err := lastKey(r)
		if err != nil {
			return err
		}
		if last != nil {
			f.start = append(append(f.start[:0], last...), 0)
		}
	}
	if f.left > 0 {
		if f.left -= int64(r.Count); f.left <= 0 {
			f.done = true
		}
	}
	if f.cursor == 0 && (r.Next == nil || f.opts.end != "" && string(f.start) >= f.opts.end) {
		f.done = true
	}
	return nil
}

// lastKey returns the key of the last row of a batch; nil if it has none.
func lastKey(r *api.ScanResult) (key []byte, err error) {
	d := r.Rows // a copy: its place is its own
	for range r.Count {
		row := wire.NewDecoder(d.Raw())
		row.Array()
		if key = row.Bytes(); row.Err() != nil {
			return nil, row.Err()
		}
	}
	return key, d.Err()
}

// close has the server drop the cursor, if there is one, without waiting for it:
// a cursor that is forgotten expires.
func (f *fetcher) close() {
	if f.cursor == 0 {
		return
	}
	req := api.ScanNextRequest{Cursor: f.cursor}
	f.table.client.notify(f.at.node, api.MethodScanClose, req.Append)
}
