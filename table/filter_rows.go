package table

// MatchRow reports whether Eval could return any cell of a row with that key. If not, the row need
// not be read. Errors: those of Eval.
func (e *Evaluator) MatchRow(p *Program, key []byte) (bool, error) {
	if !p.keyed {
		return true, nil
	}
	if e.err != nil { // drop the buffers that were in use at the error
		*e = Evaluator{free: e.free, work: e.work}
	}
	e.work.beginOwn()
	e.p, e.key = p, key
	out, sunk := e.canEmit(p.root)
	e.work.endSlice()
	return (out || sunk) && e.err == nil, e.err
}

// canEmit reports whether n could emit cells of the row, and whether a sink in it could receive
// any.
func (e *Evaluator) canEmit(n *node) (out, sunk bool) {
	if !e.spend(1) {
		return false, false
	}
	switch n.kind {
	case kindBlock:
		return false, false
	case kindSink:
		return false, true
	case kindRowRegex, kindRowSample:
		return e.matchKey(n), false
	case kindChain:
		out = true
		for i := 0; i < len(n.kids) && out; i++ {
			var s bool
			out, s = e.canEmit(n.kids[i])
			sunk = sunk || s
		}
		return out, sunk
	case kindInterleave:
		for _, kid := range n.kids {
			o, s := e.canEmit(kid)
			out, sunk = out || o, sunk || s
		}
		return out, sunk
	case kindCondition:
		pass := func(kid *node) bool {
			if kid == nil {
				return false
			}
			o, _ := e.canEmit(kid)
			return o
		}
		// If the predicate cannot emit a cell, only the false branch is evaluated.
		return pass(n.kids[0]) && pass(n.kids[1]) || pass(n.kids[2]), false
	}
	return true, false
}

// Rows returns a range of row keys outside of which the program emits nothing, and whether it can
// emit anything at all. A row pattern that starts with a literal restricts a scan to that prefix.
func (p *Program) Rows() (ByteRange, bool) {
	out, sunk := rowsOf(p.root)
	all := out.or(sunk)
	return all.keys, !all.none
}

// rowSpan is a range of row keys, or no rows.
type rowSpan struct {
	none bool
	keys ByteRange
}

func (s rowSpan) or(o rowSpan) rowSpan {
	if s.none {
		return o
	}
	if o.none {
		return s
	}
	return rowSpan{keys: s.keys.or(o.keys)}
}

func (s rowSpan) and(o rowSpan) rowSpan {
	if s.none || o.none {
		return rowSpan{none: true}
	}
	s.keys = s.keys.and(o.keys)
	s.none = s.keys.empty()
	return s
}

// rowsOf returns the rows whose cells n could emit, and the rows whose cells a sink in n could
// receive.
func rowsOf(n *node) (out, sunk rowSpan) {
	sunk.none = true
	switch n.kind {
	case kindBlock:
		out.none = true
	case kindSink:
		return sunk, out
	case kindRowRegex:
		out.keys = n.m.within
	case kindChain:
		for _, kid := range n.kids {
			o, s := rowsOf(kid)
			sunk = sunk.or(out.and(s))
			out = out.and(o)
		}
	case kindInterleave:
		out.none = true
		for _, kid := range n.kids {
			o, s := rowsOf(kid)
			out, sunk = out.or(o), sunk.or(s)
		}
	case kindCondition:
		out.none = true
		if n.kids[1] != nil {
			o, _ := rowsOf(n.kids[1])
			when, _ := rowsOf(n.kids[0])
			out = o.and(when)
		}
		if n.kids[2] != nil {
			o, _ := rowsOf(n.kids[2])
			out = out.or(o)
		}
	}
	return out, sunk
}
