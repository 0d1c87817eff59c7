package node

import (
	"bytes"
	"math"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
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
		table: r.Table, filter: f, left: math.MaxInt64, batchRows: r.BatchRows, batchBytes: r.BatchBytes,
		rg: tablet.Range{Start: bytes.Clone(start)},
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
	s := n.cursors.take(r.Cursor)
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
	n.cursors.take(r.Cursor) // closing twice is no error
	c.Reply(nil)
}

// scanBatch answers with the next rows of s, whose cursor is id, or 0 if it has
// none yet.
func (n *Node) scanBatch(c *rpc.Call, s *scan, id uint64) {
	size := n.results.batch(s.batchBytes)
	release, err := n.results.take(c.Context(), size)
	if err != nil {
		if id != 0 {
			_, _ = n.cursors.put(s, id) // the scan can go on later
		}
		fail(c, err)
		return
	}
	defer release()
	e := wire.GetEncoder()
	defer e.Release()
	w := api.BeginScan(e)
	next, err := n.tablets.Scan(c.Context(), s.table, s.rg, s.filter, func(key []byte, cells []table.Cell) error {
		if tooLarge(cells, api.ResultBytesMax) {
			return &api.RowTooLargeError{Limit: api.ResultBytesMax}
		}
		w.Row(key, cells)
		if s.left--; s.left == 0 || w.Rows() >= s.batchRows || w.Bytes() >= size {
			return tablet.ErrLast
		}
		return nil
	})
	if err != nil {
		fail(c, err)
		return
	}
	if next == nil || s.left == 0 {
		w.End(0, nil)
	} else {
		s.rg.Start = next
		if id, err = n.cursors.put(s, id); err != nil {
			fail(c, err)
			return
		}
		w.End(id, next)
	}
	c.Reply(func(out *wire.Encoder) { out.Raw(e.Bytes()) })
}
