package table

import (
	"bytes"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// An Evaluator holds the scratch memory for evaluating programs. The zero Evaluator is ready for
// use with any program, by one goroutine at a time.
type Evaluator struct {
	p   *Program
	key []byte
	err error
	// work is the cost of the current request. slices is the input of the current match.
	work   work
	slices slicedBytes

	// free holds unused scratch buffers.
	free [][]Cell
	// held is the number of cells of scratch buffers in use; limit bounds it.
	held, limit int
	// stack holds the outputs of interleaves under evaluation.
	stack []view
	// sunk holds the cells sent to sinks, each view in its own buffer.
	sunk []view
	// result is the return value of the last Eval.
	result view
}

// view is a run of cells between two filters. If buf is set, the view owns it and the cells in it
// may be modified in place. Otherwise the cells are shared and read-only.
type view struct {
	cells []Cell
	buf   []Cell
}

// Eval applies p to the cells of a row. in must be in CompareCells order without equal cells, and
// is not modified. The result may alias in, or memory of the Evaluator that its next use
// overwrites. Copies of one cell are adjacent in the result. Errors: ErrLimit if the filter copies
// more cells than Limits.FilterCells allows, or if the request has used up its steps; the errors of
// the Pacer.
func (e *Evaluator) Eval(p *Program, key []byte, in []Cell) ([]Cell, error) {
	e.start(p, key, in)
	defer e.work.endSlice()
	out := e.eval(p.root, view{cells: in})
	if len(e.sunk) > 0 && e.err == nil {
		e.stack = append(e.stack[:0], e.sunk...)
		e.sunk = e.sunk[:0]
		if len(out.cells) > 0 {
			e.stack = append(e.stack, out)
		}
		out = e.mergeFrom(0)
	}
	e.result = out
	if e.err != nil {
		return nil, e.err
	}
	return out.cells, nil
}

// Matches reports whether Eval would return any cell. It stops at the first. Errors: those of Eval.
func (e *Evaluator) Matches(p *Program, key []byte, in []Cell) (bool, error) {
	if p.sinks {
		out, err := e.Eval(p, key, in)
		return len(out) > 0, err
	}
	e.start(p, key, in)
	defer e.work.endSlice()
	ok := e.exists(p.root, in)
	return ok && e.err == nil, e.err
}

func (e *Evaluator) start(p *Program, key []byte, in []Cell) {
	if e.err != nil { // drop the buffers that were in use at the error
		*e = Evaluator{free: e.free, work: e.work}
	}
	e.work.beginOwn()
	e.release(e.result)
	e.result = view{}
	e.p, e.key = p, key
	e.held, e.limit = 0, p.cells+4*len(in)
}

// Reset drops all references to cells, and scratch memory beyond 6 MiB. It must be called before
// the Evaluator is returned to a pool.
func (e *Evaluator) Reset() {
	// 8192 cells of 96 bytes; 8 such buffers are 6 MiB.
	const cells, buffers = 8192, 8
	e.release(e.result)
	free := e.free[:0]
	for _, b := range e.free {
		if cap(b) <= cells && len(free) < buffers {
			clear(b[:cap(b)])
			free = append(free, b)
		}
	}
	clear(e.free[len(free):])
	clear(e.stack[:cap(e.stack)])
	clear(e.sunk[:cap(e.sunk)])
	*e = Evaluator{free: free, stack: e.stack[:0], sunk: e.sunk[:0]}
}

// buffer returns an empty scratch buffer for n cells, or false if that exceeds the limit.
func (e *Evaluator) buffer(n int) ([]Cell, bool) {
	if e.held+n > e.limit {
		if e.err == nil {
			e.err = &LimitError{What: "cells copied by a filter", Limit: int64(e.limit), Got: int64(e.held + n)}
		}
		return nil, false
	}
	for i := len(e.free) - 1; i >= 0; i-- {
		if b := e.free[i]; cap(b) >= n {
			last := len(e.free) - 1
			e.free[i], e.free[last] = e.free[last], nil
			e.free = e.free[:last]
			e.held += cap(b)
			return b[:0], true
		}
	}
	// Powers of two, so that rows of similar sizes can share buffers.
	size := 32
	for size < n {
		size *= 2
	}
	e.held += size
	return make([]Cell, 0, size), true
}

// release returns the buffer of an unused view to the free list.
func (e *Evaluator) release(v view) {
	if v.buf != nil {
		e.held -= cap(v.buf)
		e.free = append(e.free, v.buf[:0])
	}
}

// own returns the view with its cells in a buffer that it owns.
func (e *Evaluator) own(v view) (view, bool) {
	if v.buf != nil {
		return v, true
	}
	buf, ok := e.buffer(len(v.cells))
	if !ok {
		return view{}, false
	}
	buf = append(buf, v.cells...)
	return view{buf, buf}, true
}

// eval applies n to v. It consumes v: if v's buffer is not part of the result, eval releases it.
func (e *Evaluator) eval(n *node, v view) view {
	if len(v.cells) == 0 || !e.spend(int64(len(v.cells))) {
		e.release(v)
		return view{}
	}
	switch n.kind {
	case kindPass:
		return v
	case kindRowRegex, kindRowSample:
		if e.matchKey(n) {
			return v
		}
	case kindCellsPerRowLimit:
		v.cells = v.cells[:min(n.n, len(v.cells))]
		return v
	case kindCellsPerRowOffset:
		v.cells = v.cells[min(n.n, len(v.cells)):]
		return v
	case kindStripValue, kindApplyLabel:
		return e.transform(n, v)
	case kindSink:
		if v, ok := e.own(v); ok {
			e.sunk = append(e.sunk, v)
		}
		return view{}
	case kindChain:
		for _, kid := range n.kids {
			v = e.eval(kid, v)
		}
		return v
	case kindInterleave:
		return e.interleave(n, v)
	case kindCondition:
		branch := n.kids[1]
		if !e.exists(n.kids[0], v.cells) {
			branch = n.kids[2]
		}
		if branch != nil && e.err == nil {
			return e.eval(branch, v)
		}
	case kindBlock:
	default:
		return e.pick(n, v)
	}
	e.release(v)
	return view{}
}

// matchKey evaluates a filter that depends only on the row key.
func (e *Evaluator) matchKey(n *node) bool {
	key := e.key
	if n.kind == kindRowRegex {
		return e.match(n.m, key)
	}
	// A hash instead of a random number, so that MatchRow, Eval and a retry agree on the row.
	var d xxhash.Digest
	d.ResetWithSeed(e.p.seed + n.salt)
	_, _ = d.Write(key)
	return float64(d.Sum64()>>11)/(1<<53) < n.p
}

func (e *Evaluator) transform(n *node, v view) view {
	v, ok := e.own(v)
	if !ok {
		return view{}
	}
	for i := range v.cells {
		if n.kind == kindStripValue {
			v.cells[i].Value = nil
		} else {
			v.cells[i].Labels = n.labels
		}
	}
	return v
}

// pick returns the cells that n keeps. If they are contiguous it returns a subslice. Otherwise it
// compacts the view's own buffer in place, or copies the cells to a new one.
func (e *Evaluator) pick(n *node, v view) view {
	cells, j := v.cells, selector{n: n, e: e}
	start := 0
	for start < len(cells) && !j.keeps(&cells[start]) {
		start++
	}
	end := start + 1
	for end < len(cells) && j.keeps(&cells[end]) {
		end++
	}
	next := end + 1
	for next < len(cells) && !j.keeps(&cells[next]) {
		next++
	}
	if start >= len(cells) {
		e.release(v)
		return view{}
	}
	if next >= len(cells) {
		v.cells = cells[start:end]
		return v
	}
	out, buf := cells[start:end], v.buf
	if buf == nil {
		var ok bool
		if buf, ok = e.buffer(end - start + len(cells) - next); !ok {
			return view{}
		}
		out = append(buf, out...)
	}
	out = append(out, cells[next])
	for i := next + 1; i < len(cells); i++ {
		if j.keeps(&cells[i]) {
			out = append(out, cells[i])
		}
	}
	return view{out, buf}
}

// A selector decides for one cell after another, in order, whether a filter keeps it. It remembers
// the previous cell, so that a pattern is matched once per column or family.
type selector struct {
	n     *node
	e     *Evaluator
	prev  *Cell
	last  bool
	count int
}

func (j *selector) keeps(c *Cell) bool {
	n, prev := j.n, j.prev
	j.prev = c
	switch n.kind {
	case kindFamilyRegex:
		if prev == nil || prev.Family != c.Family {
			j.last = j.e.matchString(n.m, c.Family)
		}
		return j.last
	case kindQualifierRegex:
		if prev == nil || !bytes.Equal(prev.Qualifier, c.Qualifier) {
			j.last = j.e.match(n.m, c.Qualifier)
		}
		return j.last
	case kindColumnRange:
		if prev == nil || !sameColumn(prev, c) {
			j.last = n.family == c.Family && n.keys.Contains(c.Qualifier)
		}
		return j.last
	case kindCellsPerColumnLimit:
		if prev == nil || !sameColumn(prev, c) {
			j.count = 0
		}
		j.count++
		return j.count <= n.n
	case kindValueRegex:
		return j.e.match(n.m, c.Value)
	case kindValueRange:
		return n.keys.Contains(c.Value)
	case kindValueMask:
		return hasBits(c.Value, n.keys.Start.Value)
	case kindTimestampRange:
		return c.Timestamp >= n.start && (n.end == 0 || c.Timestamp < n.end)
	}
	panic("BUG: no selector for filter " + kindNames[n.kind])
}

// hasBits reports whether value is as long as mask and has all of its bits set.
func hasBits(value, mask []byte) bool {
	if len(value) != len(mask) {
		return false
	}
	for ; len(mask) >= 8; value, mask = value[8:], mask[8:] {
		if m := binary.NativeEndian.Uint64(mask); binary.NativeEndian.Uint64(value)&m != m {
			return false
		}
	}
	for i, m := range mask {
		if value[i]&m != m {
			return false
		}
	}
	return true
}
