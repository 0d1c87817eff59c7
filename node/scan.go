package node

import (
	"bytes"
	"errors"
	"math"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// scan is what a cursor stands for: where the scan goes on, and how. It holds no
// part of the data: between two calls files may come and go.
type scan struct {
	table      string
	rg         tablet.Range
	filter     *table.Program
	left       int64 // rows; math.MaxInt64 is no limit
	batchRows  int
	batchBytes int
	parts      bool // who asks goes on elsewhere when it comes to what is not here
	owner      string
}

func (n *Node) scanOpen(c *rpc.Call) {
	var r api.ScanOpenRequest
	if err := r.Decode(&c.Params, c.NumParams, &n.limits); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	f, err := n.filters.program(r.Filter, &n.limits)
	if err != nil {
		fail(c, err)
		return
	}
	start, end, empty := r.Range()
	s := &scan{
		table: r.Table, filter: f, left: math.MaxInt64, batchRows: r.BatchRows, batchBytes: r.BatchBytes, parts: r.Parts,
		rg: tablet.Range{Start: bytes.Clone(start)}, owner: subjectOf(c).owner(),
	}
	if len(end) > 0 {
		s.rg.End = bytes.Clone(end)
	}
	if r.Limit > 0 {
		s.left = r.Limit
	}
	if empty {
		s.rg.End = []byte{}
	}
	n.scanBatch(c, s, 0)
}

func (n *Node) scanNext(c *rpc.Call) {
	var r api.ScanNextRequest
	if err := r.Decode(&c.Params, c.NumParams); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	s := n.cursors.take(r.Cursor, subjectOf(c).owner())
	if s == nil {
		fail(c, api.ErrCursorExpired)
		return
	}
	n.scanBatch(c, s, r.Cursor)
}

func (n *Node) scanClose(c *rpc.Call) {
	var r api.ScanNextRequest
	if err := r.Decode(&c.Params, c.NumParams); err != nil {
		fail(c, err)
		return
	}
	n.cursors.take(r.Cursor, subjectOf(c).owner()) // closing twice is no error
	c.Reply(nil)
}

// scanBatch answers with the next rows of s, whose cursor is id, or 0 if it has
// none yet.
func (n *Node) scanBatch(c *rpc.Call, s *scan, id uint64) {
	size := n.results.batch(s.batchBytes)
	m := n.meter(c, s.table, false)
	err := m.take(quota.ReadOps, 0, 0) // what it comes to is known afterwards
	var release func()
	if err == nil {
		release, err = n.results.take(c.Context(), size)
	}
	if err != nil {
		if id != 0 {
			_, _ = n.cursors.put(s, id) // the scan can go on later
		}
		fail(c, err)
		return
	}
	c.OnSent(release)
	e := wire.GetEncoder()
	defer e.Release()
	a := n.access(c, s.table)
	defer a.release()
	w, next, err := n.readBatch(c, a, s, e, size)
	m.charge(quota.ReadOps, int64(max(w.Rows(), 1)), int64(e.Len()))
	switch {
	case errors.Is(err, api.ErrNotServing) && next != nil && !bytes.Equal(next, s.rg.Start):
		// There is something before what is not here. Without Parts it is the next call
		// that is told.
		err = n.endScan(&w, s, id, next, s.parts)
	case err != nil:
		err = n.astrayFor(a, err, s.table, s.rg.Start)
	case next == nil || s.left == 0:
		w.End(0, nil)
	default:
		err = n.endScan(&w, s, id, next, false)
	}
	if err != nil {
		fail(c, err)
		return
	}
	c.Reply(func(out *wire.Encoder) { out.Raw(e.Bytes()) })
}

// readBatch reads the next rows of s into e. They are read again if rights have changed
// meanwhile.
func (n *Node) readBatch(c *rpc.Call, a *access, s *scan, e *wire.Encoder, size int) (w api.ScanWriter, next []byte, err error) {
	left, as := s.left, n.tabletsOf(s.table).For(a.of(true))
	for {
		e.Reset()
		s.left, w = left, api.BeginScan(e)
		next, err = as.Scan(c.Context(), s.table, s.rg, s.filter, func(key []byte, cells []table.Cell) error {
			if tooLarge(cells, api.ResultBytesMax) {
				return &api.RowTooLargeError{Limit: api.ResultBytesMax}
			}
			w.Row(key, cells)
			if s.left--; s.left == 0 || w.Rows() >= s.batchRows || w.Bytes() >= size {
				return tablet.ErrLast
			}
			return nil
		})
		if err != tablet.ErrAccessChanged {
			return w, next, err
		}
	}
}

// endScan ends a batch of a scan that goes on at next: by its cursor, unless it is
// elsewhere.
func (n *Node) endScan(w *api.ScanWriter, s *scan, id uint64, next []byte, elsewhere bool) (err error) {
	s.rg.Start = next
	if elsewhere {
		id = 0
	} else if id, err = n.cursors.put(s, id); err != nil {
		return err
	}
	w.End(id, next)
	return nil
}
