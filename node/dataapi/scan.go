package dataapi

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/results"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// scan is the state of a cursor: where the scan continues, and how. It holds no data: files may come and go between two calls.
type scan struct {
	table      string
	id         uint64 // of the table; 0: the one found by the first batch
	view       string // to which the scan is confined; empty for the whole table
	rg         tablet.Range
	filter     *table.Program
	left       int64 // rows; math.MaxInt64 is no limit
	batchRows  int
	batchBytes int
	rowBytes   int64 // api.ScanOpenRequest.RowBytes
	stats      bool  // results have api.ScanStats
	parts      bool  // the client continues on another server where this node's tablets end
	owner      string

	// resume is the key at which the client would continue without the cursor: rg.Next, or a key that was passed earlier if the client may
	// not see what is between.
	resume []byte
}

// newScan returns the scan that a request describes, without its filter.
func newScan(r *api.ScanOpenRequest, owner string) *scan {
	start, end, empty := r.Range()
	start = bytes.Clone(start)
	s := &scan{
		table: r.Table, id: r.TableID, view: r.View, left: math.MaxInt64, batchRows: r.BatchRows, batchBytes: r.BatchBytes, parts: r.Parts, stats: r.Stats, rowBytes: r.RowBytes,
		rg: tablet.Range{Start: start, Reversed: r.Reversed, Rows: r.Rows}, owner: owner,
	}
	if len(end) > 0 {
		s.rg.End = bytes.Clone(end)
	}
	s.resume = s.rg.Next()
	if r.Limit > 0 {
		s.left = r.Limit
	}
	if empty {
		s.rg.End = []byte{}
	}
	return s
}

func (d *Service) scanOpen(c *rpc.Call) {
	var r api.ScanOpenRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, d.Limits), &r.Options) {
		return
	}
	s := newScan(&r, authz.SubjectOf(c).Owner())
	cur, err := d.cursors.begin(s) // before its filter is compiled
	if err != nil {
		reply.Fail(c, err)
		return
	}
	if s.filter, err = d.program(c, r.Table, r.View, r.Filter); err == nil {
		err = d.cursors.weigh(cur)
	}
	if err != nil {
		d.cursors.drop(cur)
		reply.Fail(c, err)
		return
	}
	d.scanBatch(c, cur, false)
}

// bytes returns the memory of an open scan without its filter, which scans share.
func (s *scan) bytes() int64 {
	b := cursorOverhead + int64(len(s.table)+len(s.view)+cap(s.rg.Start)+cap(s.rg.End)) + s.rg.Rows.Bytes()
	if at := s.rg.Next(); cap(s.resume) > 0 && (cap(at) == 0 || &s.resume[:1][0] != &at[:1][0]) {
		b += int64(cap(s.resume))
	}
	return b
}

func (d *Service) scanNext(c *rpc.Call) {
	var r api.ScanNextRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	cur := d.cursors.take(r.Cursor, authz.SubjectOf(c).Owner())
	if cur == nil {
		reply.Fail(c, api.ErrCursorExpired)
		return
	}
	d.scanBatch(c, cur, true)
}

func (d *Service) scanClose(c *rpc.Call) {
	var r api.ScanNextRequest
	if err := r.Decode(&c.Params, c.NumParams); err != nil {
		reply.Fail(c, err)
		return
	}
	if cur := d.cursors.take(r.Cursor, authz.SubjectOf(c).Owner()); cur != nil { // closing twice is no error
		d.cursors.drop(cur)
	}
	c.Reply(nil)
}

// scanBatch answers with the next rows of the scan of cur. known is whether the client has the cursor already.
func (d *Service) scanBatch(c *rpc.Call, cur *cursor, known bool) {
	s, kept := cur.scan, false
	defer func() {
		if !kept {
			d.cursors.drop(cur)
		}
	}()
	size := d.Results.Batch(s.batchBytes)
	c.Trace().About(s.table)
	m := d.Quotas.Meter(c, s.table, false)
	err := m.Take(quota.ReadOps, 0, 0) // the amount is known afterwards
	memory := results.Answer{Of: d.Results, User: s.owner, Copies: 2, Trace: c.Trace()}
	defer memory.Release()
	if err == nil {
		err = memory.Await(c.Context(), size)
	}
	if err != nil {
		kept = d.scanFailed(c, cur, known, err)
		return
	}
	e := wire.GetEncoder()
	defer e.Release()
	a := d.Authz.Access(c, s.table, s.view)
	defer a.Release()
	b, err := d.readBatch(c, a, s, e, size, &memory)
	for err == results.ErrMoreMemory { // for the first row
		if err = memory.Await(c.Context(), memory.Lacks); err != nil {
			kept = d.scanFailed(c, cur, known, err)
			return
		}
		looked := b.looked
		b, err = d.readBatch(c, a, s, e, size, &memory)
		b.looked += looked
	}
	memory.UntilSent(c)
	m.Charge(quota.ReadOps, int64(b.looked), int64(e.Len()))
	if kept, err = d.finishBatch(a, cur, &b, err); err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(func(out *wire.Encoder) { out.Raw(e.Bytes()) })
}

// finishBatch completes a batch whose reading ended with err. kept reports whether the cursor remains, for the next batch.
func (d *Service) finishBatch(a *authz.Access, cur *cursor, b *batch, err error) (kept bool, _ error) {
	s := cur.scan
	switch {
	case errors.Is(err, api.ErrNotServing) && b.next != nil && !bytes.Equal(b.next, s.rg.Next()):
		// There are rows before the first one that is not served here. Without Parts the next
		// call gets the error: the client may not see where that row is.
		return d.endBatch(b, cur, s.parts && bytes.Equal(b.resume, b.next))
	case err != nil:
		if errors.Is(err, api.ErrNotServing) && !bytes.Equal(s.resume, s.rg.Next()) {
			err = fmt.Errorf("table %q: %w", s.table, api.ErrNotServing) // without the row key
		}
		return false, d.Tablets.Misrouted(a, err, s.table, s.id, s.rg.NextRow())
	case b.next == nil || s.left == 0:
		b.rows.End(0, nil)
		return false, nil
	}
	return d.endBatch(b, cur, false)
}

// scanFailed answers with an error after which a scan with a known cursor can continue: nothing was read. It reports whether the
// cursor was kept.
func (d *Service) scanFailed(c *rpc.Call, cur *cursor, known bool, err error) (kept bool) {
	if known {
		d.cursors.put(cur)
	}
	reply.Fail(c, err)
	return known
}

// A batch ends after batchLooks rows, unless more are requested, and after batchTime. Otherwise a scan that finds nothing would keep
// its memory, count as one row, and restart whenever its calls time out.
const (
	batchLooks = 10_000
	batchTime  = time.Second
)

// mostOf returns the bounds of a batch of s. It uses at most half of the time that the caller waits.
func (s *scan) mostOf(c *rpc.Call) tablet.ScanBounds {
	now := time.Now()
	m := tablet.ScanBounds{Rows: max(batchLooks, s.batchRows), Until: now.Add(batchTime)}
	if d := c.Deadline(); !d.IsZero() {
		m.Until = now.Add(min(batchTime, d.Sub(now)/2))
	}
	return m
}

// batch is what was read for one answer.
type batch struct {
	rows   api.ScanWriter
	looked int    // rows, including those that the filter dropped
	next   []byte // where the scan continues; nil if it is finished
	resume []byte // the same, as far as the client may see it
}

// readBatch reads the next rows of s into e, as many as fit. It starts again if rights change meanwhile.
func (d *Service) readBatch(c *rpc.Call, a *authz.Access, s *scan, e *wire.Encoder, size int, memory *results.Answer) (b batch, err error) {
	turn := d.turnsOf(c, s.table, s.filter)
	defer turn.release()
	left, as, looked := s.left, turn.in(d.Tablets.TabletsOf(s.table).For(a.Of(true)).Table(s.id)).Traced(c.Trace()), 0
	for {
		e.Reset()
		s.left, b = left, batch{rows: s.begin(e), resume: s.resume}
		var last []byte
		most := s.mostOf(c)
		b.next, err = as.Scan(c.Context(), s.table, s.rg, s.filter, &most, func(key []byte, cells []table.Cell) error {
			bytes := cellsBytes(cells)
			tooLarge := s.checkRow(cells, bytes)
			switch {
			case tooLarge != nil && b.rows.Rows() > 0:
				return tablet.ErrStop // the next batch has the error
			case tooLarge != nil:
				return tooLarge
			case memory.Fits(e.Len() + len(key) + bytes):
			case b.rows.Rows() > 0:
				return tablet.ErrStop // the next batch begins with it
			default:
				return results.ErrMoreMemory
			}
			b.rows.Row(key, cells)
			if most.Partly {
				last = append(last[:0], key...)
				if !s.rg.Reversed {
					last = append(last, 0)
				}
			}
			if s.left--; s.left == 0 || b.rows.Rows() >= s.batchRows || b.rows.Bytes() >= size {
				return tablet.ErrLast
			}
			return nil
		})
		looked += most.Looked
		b.rows.Seen(int64(most.Looked), most.Cells)
		if err != tablet.ErrAccessChanged {
			switch {
			case !most.Partly, errors.Is(err, api.ErrNotServing) && !most.Inside: // tablet boundaries are not secret
				b.resume = b.next
			case last != nil:
				b.resume = last
			}
			if s.id == 0 {
				s.id = most.Table // later batches must not read another table of that name
			}
			b.looked = max(looked, b.rows.Rows(), 1)
			return b, err
		}
	}
}

// checkRow returns a *api.RowTooLargeError if a row with cells of so many bytes is too large.
func (s *scan) checkRow(cells []table.Cell, bytes int) error {
	if bytes > api.ResultBytesMax {
		return &api.RowTooLargeError{Limit: api.ResultBytesMax}
	}
	return api.CheckRowBytes(cells, s.rowBytes)
}

// begin starts the result of a batch.
func (s *scan) begin(e *wire.Encoder) api.ScanWriter {
	if s.stats {
		return api.BeginScanWithStats(e)
	}
	return api.BeginScan(e)
}

// endBatch ends a batch of a scan that continues: with its cursor, or elsewhere. It reports whether the cursor was kept.
func (d *Service) endBatch(b *batch, cur *cursor, elsewhere bool) (kept bool, err error) {
	s := cur.scan
	s.rg.Resume(b.next)
	s.resume = b.resume
	if elsewhere {
		b.rows.End(0, b.next)
		return false, nil
	}
	if err := d.cursors.weigh(cur); err != nil {
		return false, err
	}
	b.rows.End(cur.id, b.resume)
	d.cursors.put(cur)
	return true, nil
}
