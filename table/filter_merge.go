package table

// interleave applies the parts of n to v and merges their outputs.
func (e *Evaluator) interleave(n *node, v view) view {
	if len(n.kids) == 1 {
		return e.eval(n.kids[0], v)
	}
	base := len(e.stack)
	for _, kid := range n.kids {
		out := e.eval(kid, view{cells: v.cells})
		if len(out.cells) > 0 {
			e.stack = append(e.stack, out)
		} else {
			e.release(out)
		}
	}
	if len(e.stack) == base+1 && e.stack[base].buf == nil {
		// The only output is a part of v and inherits v's buffer.
		v.cells = e.stack[base].cells
		e.stack = e.stack[:base]
		return v
	}
	out := e.mergeFrom(base)
	e.release(v)
	return out
}

// mergeFrom pops the views from position base on and returns them merged, in a buffer of its own
// unless there is only one. Equal cells are ordered by the position of their views.
func (e *Evaluator) mergeFrom(base int) view {
	for len(e.stack) > base+1 {
		// Each round merges adjacent views, which preserves their order, and halves their number.
		outs := e.stack[base:]
		for i := 0; i < len(outs); i += 2 {
			if i+1 == len(outs) {
				outs[i/2] = outs[i]
				continue
			}
			v, ok := e.merge(outs[i], outs[i+1])
			if !ok {
				e.stack = e.stack[:base]
				return view{}
			}
			outs[i/2] = v
		}
		e.stack = e.stack[:base+(len(outs)+1)/2]
	}
	if len(e.stack) == base {
		return view{}
	}
	v := e.stack[base]
	e.stack = e.stack[:base]
	return v
}

// merge merges two nonempty views and releases them.
func (e *Evaluator) merge(a, b view) (view, bool) {
	buf, ok := e.buffer(len(a.cells) + len(b.cells))
	if !ok {
		return view{}, false
	}
	x, y, out := a.cells, b.cells, buf
	for len(x) > 0 && len(y) > 0 {
		if CompareCells(&x[0], &y[0]) <= 0 {
			out, x = append(out, x[0]), x[1:]
		} else {
			out, y = append(out, y[0]), y[1:]
		}
	}
	out = append(append(out, x...), y...)
	e.release(a)
	e.release(b)
	return view{out, buf}, true
}

// exists reports whether n emits any of the cells. n must not contain a Sink. It stops at the first
// cell.
func (e *Evaluator) exists(n *node, cells []Cell) bool {
	if len(cells) == 0 || e.err != nil || !e.spend(1) {
		return false
	}
	switch n.kind {
	case kindPass, kindStripValue, kindApplyLabel, kindCellsPerRowLimit, kindCellsPerColumnLimit:
		return true
	case kindBlock:
		return false
	case kindRowRegex, kindRowSample:
		return e.matchKey(n)
	case kindCellsPerRowOffset:
		return len(cells) > n.n
	case kindChain:
		v, last := view{cells: cells}, len(n.kids)-1
		for _, kid := range n.kids[:last] {
			v = e.eval(kid, v)
		}
		ok := e.exists(n.kids[last], v.cells)
		e.release(v)
		return ok
	case kindInterleave:
		for _, kid := range n.kids {
			if e.exists(kid, cells) {
				return true
			}
		}
		return false
	case kindCondition:
		branch := n.kids[1]
		if !e.exists(n.kids[0], cells) {
			branch = n.kids[2]
		}
		return branch != nil && e.exists(branch, cells)
	}
	j := selector{n: n, e: e}
	for i := range cells {
		if !e.spend(1) {
			return false
		}
		if j.keeps(&cells[i]) {
			return true
		}
	}
	return false
}
