package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Scanner iterates over the rows of a range in key order, or in descending order with Reversed. Each row is read atomically; different
// rows may be from different times. While the caller processes one batch of rows, the next one is
// fetched.
//
//	s := t.Scan(ctx, client.Prefix("com.cnn."), client.Families("anchor"))
//	defer s.Close()
//	for s.Next() {
//		use(s.Row())
//	}
//	err := s.Err()
//
// A Scanner must be used by one goroutine.
type Scanner struct {
	table  *Table
	ctx    context.Context
	cancel context.CancelFunc
	opts   scanOptions
	filter []byte

	batches chan *scanBatch // one at a time, from the fetcher
	ended   error           // error of the fetcher when it closed batches; nil at the end of the range
	started bool
	current *scanBatch
	names   *table.Interner
	rows    []table.Row  // memory for further rows
	cells   []table.Cell // memory for further cells
	row     *table.Row
	last    []byte // the key of the last row, if invariant.On
	err     error
	closed  bool
	stats   api.ScanStats
}

// scanBatch is one response of the server, or an error.
type scanBatch struct {
	result api.ScanResult
	err    error
}

// Scan returns a Scanner over the table's rows, restricted by opts. The scan starts with the first
// Next. The caller must read the Scanner to its end, close it, or end ctx.
func (t *Table) Scan(ctx context.Context, opts ...ScanOption) *Scanner {
	s := &Scanner{table: t, opts: scanOptionsOf(opts), batches: make(chan *scanBatch), names: table.NewInterner(internedMax)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.err = s.opts.err
	s.filter = encodeFilter(s.opts.filter())
	return s
}

// Next advances to the next row. It returns false at the end of the range and after an error; see
// Err.
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

// fetched waits for the next batch. It returns false at the end and after an error.
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
	s.stats.Add(&b.result.Stats)
	if s.err == nil && b.result.Count == 0 && len(b.result.Next) > 0 && s.opts.onProgress != nil {
		s.opts.onProgress(b.result.Next)
	}
	return s.err == nil
}

func (s *Scanner) start() {
	s.started = true
	if s.opts.empty {
		close(s.batches)
	} else if !s.table.client.life.spawn(s.fetch) {
		s.ended = ErrClosed
		close(s.batches)
	}
}

// Rows and cells are allocated in groups of this size. Groups take few kilobytes, so that a
// retained row retains little more than its batch.
const (
	rowsChunk  = 64
	cellsChunk = 128
)

// decode decodes the next row of the current batch.
func (s *Scanner) decode() {
	if len(s.rows) == 0 {
		s.rows = make([]table.Row, rowsChunk)
	}
	row := &s.rows[0]
	s.rows = s.rows[1:]
	if cap(s.cells) == 0 {
		s.cells = make([]table.Cell, 0, cellsChunk)
	}
	row.Cells = s.cells
	s.current.result.Count--
	if s.err = api.CheckRowCells(s.current.result.Rows, s.opts.rowBytes); s.err != nil {
		return
	}
	if s.err = table.DecodeRow(&s.current.result.Rows, row, s.names); s.err != nil {
		return
	}
	switch n := len(row.Cells); {
	case n <= cap(s.cells): // they fit into the group
		row.Cells = row.Cells[:n:n]
		s.cells = s.cells[n:n]
	case n <= cellsChunk/4: // a small row that does not fit into the rest of the group
		s.cells = nil
	}
	if invariant.On {
		s.checkOrder(row)
	}
	s.row = row
}

// checkOrder asserts that the scan's rows have ascending keys. Planted bugs break that on purpose.
func (s *Scanner) checkOrder(row *table.Row) {
	broken := planted.On(planted.ScanRepeats) || planted.On(planted.ScanNextAgain)
	ordered := s.last == nil || string(row.Key) != string(s.last) && (string(row.Key) < string(s.last)) == s.opts.reversed
	invariant.Check(ordered || broken, "a scan returns a row that is not after the previous one")
	s.last = append(s.last[:0], row.Key...)
}

// Row returns the current row. The caller owns it. It retains the memory of its batch.
func (s *Scanner) Row() *table.Row { return s.row }

// ScanStats are counts of a scan.
type ScanStats = api.ScanStats

// Stats returns the counts of the batches that Next has reached, with the option CountSeen.
func (s *Scanner) Stats() ScanStats { return s.stats }

// Buffered returns the number of rows that Next returns without waiting for a node.
func (s *Scanner) Buffered() int {
	if s.current == nil || s.err != nil || s.closed {
		return 0
	}
	return s.current.result.Count
}

// Err returns the error that ended the scan, or nil at the end of the range. Errors: ErrNoTable,
// also if the table was dropped and another one has its name; invalid options; *RowTooLargeError,
// *CorruptError; after retries, those of a node that cannot be reached or does not serve; ctx's.
func (s *Scanner) Err() error { return s.err }

// Close ends the scan and waits for its goroutine. It may be called repeatedly and after the end.
// It returns Err.
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

// Rows returns the rows as an iterator, and closes the Scanner when the loop ends. An error is
// returned last, with a nil row.
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

// fetch fetches batches and sends each to the reader. Since it fetches one while the reader has
// another, it is one batch ahead (invariant C4).
func (s *Scanner) fetch() {
	defer close(s.batches)
	f := fetcher{table: s.table, opts: &s.opts, filter: s.filter, start: []byte(s.opts.start), end: []byte(s.opts.end), left: s.opts.limit}
	f.rows = s.opts.rows()
	f.done = !f.skip()
	defer f.close()
	for !f.done {
		b := f.next(s.ctx)
		select {
		case s.batches <- b:
		case <-s.ctx.Done():
			s.ended = s.ctx.Err()
			return
		case <-s.table.client.life.ctx.Done():
			s.ended = ErrClosed
			return
		}
		if b.err != nil {
			return
		}
	}
}

// fetcher holds the position of a scan, independent of the server's cursor.
type fetcher struct {
	table     *Table
	opts      *scanOptions
	filter    []byte
	start     []byte        // lower bound of the rows not delivered yet
	end       []byte        // upper bound of them, exclusive; empty means unbounded
	rows      *table.RowSet // of which they are; nil: all
	more      bool          // rows has ranges after those of the cursor,
	rest      []byte        // from this position on
	left      int64         // rows left of the limit; 0: no limit
	id        uint64        // of the table, after the first batch; later batches must have the same id
	cursor    uint64        // 0: not open
	at        destination   // location of the cursor
	misrouted bool          // the last call was misrouted
	idle      int           // batches without rows that did not advance the position
	done      bool
}

// next returns the next batch. It opens a new cursor at start if the old one is lost, if its
// response was lost and its position is unknown, or if it has reached the end of its server's rows.
// This maintains invariant C3.
func (f *fetcher) next(ctx context.Context) *scanBatch {
	r := retrier{calls: &f.table.client.calls, started: time.Now()}
	for {
		b := &scanBatch{}
		opened := f.cursor == 0
		if opened {
			b.err = f.open(ctx, b)
		} else {
			b.err = f.advance(ctx, b)
		}
		if b.err == nil {
			b.err = f.advancePast(&b.result)
			return b
		}
		if opened || !f.misrouted && !resumable(b.err) {
			return b
		}
		if !planted.On(planted.ScanNextAgain) || !errors.Is(b.err, rpc.ErrConnLost) {
			f.cursor = 0
		}
		if planted.On(planted.ScanRepeats) {
			f.start, f.end = []byte(f.opts.start), []byte(f.opts.end)
		}
		v := decision{err: b.err, elsewhere: true}
		if !r.wait(ctx, &v) {
			b.err = v.err
			return b
		}
	}
}

// resumable reports whether a new cursor may succeed after err. A call of scan_next must not be
// repeated, so the retry after a lost connection is made here, with a new cursor.
func resumable(err error) bool {
	return errors.Is(err, api.ErrCursorExpired) || errors.Is(err, rpc.ErrConnLost) ||
		errors.Is(err, ErrNotServing) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnreachable)
}

func (f *fetcher) open(ctx context.Context, b *scanBatch) error {
	req := api.ScanOpenRequest{
		TableOptions: api.TableOptions{View: f.table.view}, Table: f.table.name, Start: f.start, End: f.end, Filter: f.filter,
		Limit: f.left, BatchRows: f.opts.batchRows, BatchBytes: f.opts.batchBytes, Reversed: f.opts.reversed, Rows: f.part(), Stats: f.opts.stats,
		RowBytes: f.opts.rowBytes,
	}
	row := f.start
	if f.opts.reversed {
		row = api.LastRow(f.end)
	}
	k := call{method: api.MethodScanOpen, table: f.table.name, row: row, id: &req.TableID, traceID: &req.TraceID, onlyID: f.id, safe: true}
	k.encode = func(e *wire.Encoder) {
		req.Parts = k.sentTo.loc != nil // otherwise the node may not know the option
		req.Append(e)
	}
	err := f.do(ctx, &k, b)
	f.at = k.sentTo
	if err == nil && f.id == 0 {
		f.id = req.TableID
	}
	return err
}

func (f *fetcher) advance(ctx context.Context, b *scanBatch) error {
	req := api.ScanNextRequest{Cursor: f.cursor}
	k := call{method: api.MethodScanNext, dest: f.at, traceID: &req.TraceID, encode: req.Append}
	err := f.do(ctx, &k, b)
	f.misrouted = k.misrouted.relocate
	return err
}

func (f *fetcher) do(ctx context.Context, k *call, b *scanBatch) error {
	k.keep, k.decode = true, b.result.Decode
	return f.table.client.calls.do(ctx, k)
}

// idleBatchesMax is the number of batches in sequence that may neither have rows nor advance the scan.
const idleBatchesMax = 1000

// advancePast advances the position past the rows of a batch.
func (f *fetcher) advancePast(r *api.ScanResult) error {
	f.cursor = r.Cursor
	at := &f.start
	if f.opts.reversed {
		at = &f.end
	}
	if f.idle++; r.Count > 0 || r.Next != nil && string(r.Next) != string(*at) {
		f.idle = 0
	}
	if f.idle > idleBatchesMax {
		return &AnswerError{Method: api.MethodScanNext, Reason: fmt.Sprintf("%d batches without rows at row %.64q", f.idle, *at)}
	}
	if r.Next != nil {
		*at = append((*at)[:0], r.Next...)
	} else if f.cursor != 0 {
		last, err := lastKey(r)
		if err != nil {
			return err
		}
		if last != nil {
			*at = append((*at)[:0], last...)
			if !f.opts.reversed {
				*at = append(*at, 0)
			}
		}
	}
	if f.left > 0 {
		if f.left -= int64(r.Count); f.left <= 0 {
			f.done = true
		}
	}
	if f.cursor == 0 && r.Next == nil && f.more {
		*at = append((*at)[:0], f.rest...)
	}
	if f.cursor == 0 && (r.Next == nil && !f.more || !f.skip()) {
		f.done = true
	}
	return nil
}

// lastKey returns the key of the last row of a batch; nil if it has none.
func lastKey(r *api.ScanResult) (key []byte, err error) {
	d := r.Rows // a copy, with its own position
	for range r.Count {
		row := wire.NewDecoder(d.Raw())
		row.Array()
		if key = row.Bytes(); row.Err() != nil {
			return nil, row.Err()
		}
	}
	return key, d.Err()
}

// close closes the cursor on the server, if there is one, without waiting. A lost request does no
// harm: the cursor expires.
func (f *fetcher) close() {
	if f.cursor == 0 {
		return
	}
	req := api.ScanNextRequest{Cursor: f.cursor}
	f.at.node.notify(f.table.client.life.ctx, api.MethodScanClose, req.Append)
}

// A request of a scan of a row set has at most partRanges of its ranges, or partBytes bytes of their keys. The rest are
// for later requests: they are often on other servers, and a server charges the user for the memory of a cursor.
const (
	partRanges = 1000
	partBytes  = 64 << 10
)

// skip moves the position of a scan to the next of its rows. It returns false if there are none.
func (f *fetcher) skip() bool {
	if f.rows != nil {
		i := f.rows.First(f.start)
		if f.opts.reversed {
			i = f.rows.Last(f.end)
		}
		if i < 0 || i == f.rows.Len() {
			return false
		}
		if in := f.rows.At(i); !f.opts.reversed && string(in.Start) > string(f.start) {
			f.start = bytes.Clone(in.Start)
		} else if f.opts.reversed && len(in.End) > 0 && (len(f.end) == 0 || string(in.End) < string(f.end)) {
			f.end = bytes.Clone(in.End)
		}
	}
	return len(f.end) == 0 || string(f.start) < string(f.end)
}

// part returns the next ranges of the row set, for one request; nil if all rows are scanned. If there are others after
// them, it sets more, and rest to the position of these.
func (f *fetcher) part() *table.RowSet {
	f.more = false
	if f.rows == nil {
		return nil
	}
	from, to, keys := f.rows.First(f.start), f.rows.Len(), 0
	fits := func(n, i int) bool {
		in := f.rows.At(i)
		keys += len(in.Start) + len(in.End)
		return n == 0 || n < partRanges && keys <= partBytes
	}
	if f.opts.reversed {
		to = f.rows.Last(f.end) + 1
		for from = to; from > 0 && fits(to-from, from-1); from-- {
		}
		if f.more = from > 0; f.more {
			f.rest = f.rows.At(from - 1).End
		}
		return f.rows.Slice(from, to)
	}
	for to = from; to < f.rows.Len() && fits(to-from, to); to++ {
	}
	if f.more = to < f.rows.Len(); f.more {
		f.rest = f.rows.At(to).Start
	}
	return f.rows.Slice(from, to)
}
