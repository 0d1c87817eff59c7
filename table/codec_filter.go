package table

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/internal/wire"
)

// AppendFilter encodes a filter as [name, argument…]:
//
//	["pass"] ["block"] ["sink"] ["strip"]
//	["row", re] ["family", re] ["qualifier", re] ["value", re]
//	["sample", p] ["label", s]
//	["columns", family, range] ["values", range] ["value_mask", mask]
//	["timestamps", start, end]
//	["cells_limit", n] ["cells_offset", n] ["versions", n]
//	["chain", f…] ["interleave", f…] ["condition", predicate, true, false]
//
// A range is a map with at most one of "start_closed" and "start_open" and at most one of
// "end_closed" and "end_open". A nil filter and an absent timestamp bound are encoded as nil.
func AppendFilter(e *wire.Encoder, f Filter) {
	if f == nil {
		e.Nil()
		return
	}
	head := func(n int) {
		e.Array(1 + n)
		e.Str(kindNames[f.kind()])
	}
	pattern := func(p string) {
		head(1)
		e.Bin([]byte(p))
	}
	switch f := f.(type) {
	case RowRegex:
		pattern(string(f))
	case FamilyRegex:
		pattern(string(f))
	case QualifierRegex:
		pattern(string(f))
	case ValueRegex:
		pattern(string(f))
	case Chain:
		head(len(f))
		appendFilters(e, f...)
	case Interleave:
		head(len(f))
		appendFilters(e, f...)
	case Condition:
		head(3)
		appendFilters(e, f.Predicate, f.True, f.False)
	default:
		appendLeaf(e, f, head)
	}
}

func appendFilters(e *wire.Encoder, parts ...Filter) {
	for _, f := range parts {
		AppendFilter(e, f)
	}
}

func appendLeaf(e *wire.Encoder, f Filter, head func(int)) {
	number := func(n int64) {
		head(1)
		e.Int(n)
	}
	switch f := f.(type) {
	case PassAll, BlockAll, Sink, StripValue:
		head(0)
	case RowSample:
		head(1)
		e.Float(float64(f))
	case ApplyLabel:
		head(1)
		e.Str(string(f))
	case ColumnRange:
		head(2)
		e.Str(f.Family)
		appendRange(e, &f.Qualifiers)
	case ValueRange:
		head(1)
		appendRange(e, (*ByteRange)(&f))
	case ValueMask:
		head(1)
		e.Bin([]byte(f))
	case TimestampRange:
		head(2)
		e.Int(f.Start)
		appendTimestampEnd(e, f.End)
	case CellsPerRowLimit:
		number(int64(f))
	case CellsPerRowOffset:
		number(int64(f))
	case CellsPerColumnLimit:
		number(int64(f))
	default:
		panic(fmt.Sprintf("BUG: unknown filter %T", f))
	}
}

func appendRange(e *wire.Encoder, r *ByteRange) {
	n := 0
	for _, b := range []*Bound{&r.Start, &r.End} {
		if b.Kind != Unbounded {
			n++
		}
	}
	e.Map(n)
	appendBound(e, "start", &r.Start)
	appendBound(e, "end", &r.End)
}

func appendBound(e *wire.Encoder, side string, b *Bound) {
	switch b.Kind {
	case Unbounded:
		return
	case BoundClosed:
		e.Str(side + "_closed")
	case BoundOpen:
		e.Str(side + "_open")
	default:
		panic("BUG: encode a bound of unknown kind")
	}
	e.Bin(b.Value)
}

// DecodeFilter decodes a filter; nil decodes to a nil Filter. The filter does not alias the input.
// Depth, number of nodes and bytes are checked against lim before memory is allocated for them; nil
// means the defaults. Compile checks everything else. Errors: ErrBadFilter, as a *FilterError with
// the path of the invalid node.
func DecodeFilter(d *wire.Decoder, lim *Limits) (Filter, error) {
	l := filterDecoder{d: d, l: lim.orDefault()}
	f, err := l.filter(scope{depth: 1})
	return f, finish(d, err)
}

type filterDecoder struct {
	d            *wire.Decoder
	l            *Limits
	nodes, bytes int64
}

// bad returns an error for the filter at s. It wraps the decoder's own error if there is one.
func (f *filterDecoder) bad(s *scope, reason string) error {
	if err := f.d.Err(); err != nil {
		return &FilterError{Path: s.path(), Reason: reason, Err: err}
	}
	return s.bad(reason)
}

func (f *filterDecoder) filter(s scope) (Filter, error) {
	if f.nodes++; f.nodes > f.l.FilterNodes {
		return nil, s.over("filters in one tree", f.l.FilterNodes, f.nodes)
	}
	if s.depth > f.l.FilterDepth {
		return nil, s.over("levels of a filter", f.l.FilterDepth, s.depth)
	}
	if f.d.IsNil() {
		return nil, nil
	}
	n := f.d.Array()
	name := f.d.Bytes()
	kind := slices.Index(kindNames[:], string(name))
	if f.d.Err() != nil || n == 0 {
		return nil, f.bad(&s, "is not an array that begins with a name")
	}
	if kind < 0 {
		return nil, f.bad(&s, fmt.Sprintf("unknown name %.32q", name))
	}
	s.kind = filterKind(kind)
	n--
	if want := filterArgs[kind]; n < want.least || n > want.most {
		return nil, s.bad(fmt.Sprintf("%s has %d arguments, want %d", name, n, want.least))
	}
	var out Filter
	var err error
	switch s.kind {
	case kindChain, kindInterleave, kindCondition:
		out, err = f.composite(&s, n)
	default:
		out, err = f.leaf(&s)
	}
	if err == nil && f.d.Err() != nil {
		err = f.bad(&s, "arguments of "+kindNames[kind])
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// filterArgs is the number of arguments of each filter.
var filterArgs = [numKinds]struct{ least, most int }{
	kindRowRegex: {1, 1}, kindRowSample: {1, 1}, kindFamilyRegex: {1, 1}, kindQualifierRegex: {1, 1},
	kindValueRegex: {1, 1}, kindColumnRange: {2, 2}, kindValueRange: {1, 1}, kindValueMask: {1, 1}, kindTimestampRange: {2, 2},
	kindCellsPerRowLimit: {1, 1}, kindCellsPerRowOffset: {1, 1}, kindCellsPerColumnLimit: {1, 1},
	kindApplyLabel: {1, 1}, kindCondition: {3, 3},
	kindChain: {1, 1 << 30}, kindInterleave: {1, 1 << 30},
}

func (f *filterDecoder) composite(s *scope, n int) (Filter, error) {
	// Every part is a node, so the parts must fit in the nodes that are left.
	if left := f.l.FilterNodes - f.nodes; int64(n) > left {
		return nil, s.over("filters in one tree", f.l.FilterNodes, f.nodes+int64(n))
	}
	parts := make([]Filter, n)
	for i := range parts {
		var err error
		if parts[i], err = f.filter(scope{depth: s.depth + 1, up: s, index: i}); err != nil {
			return nil, err
		}
	}
	switch s.kind {
	case kindChain:
		return Chain(parts), nil
	case kindInterleave:
		return Interleave(parts), nil
	}
	return Condition{parts[0], parts[1], parts[2]}, nil
}

func (f *filterDecoder) leaf(s *scope) (Filter, error) {
	d := f.d
	switch s.kind {
	case kindPass:
		return PassAll{}, nil
	case kindBlock:
		return BlockAll{}, nil
	case kindSink:
		return Sink{}, nil
	case kindStripValue:
		return StripValue{}, nil
	case kindRowSample:
		return RowSample(d.Float()), nil
	case kindCellsPerRowLimit:
		return CellsPerRowLimit(d.Int()), nil
	case kindCellsPerRowOffset:
		return CellsPerRowOffset(d.Int()), nil
	case kindCellsPerColumnLimit:
		return CellsPerColumnLimit(d.Int()), nil
	case kindTimestampRange:
		var r TimestampRange
		if !d.IsNil() {
			r.Start = d.Int()
		}
		r.End = decodeTimestampEnd(d)
		return r, nil
	}
	return f.leafOfBytes(s)
}

func (f *filterDecoder) leafOfBytes(s *scope) (Filter, error) {
	if s.kind == kindValueRange {
		r, err := f.byteRange(s)
		return ValueRange(r), err
	}
	b, err := f.take(s)
	if err != nil {
		return nil, err
	}
	switch text := string(b); s.kind {
	case kindRowRegex:
		return RowRegex(text), nil
	case kindFamilyRegex:
		return FamilyRegex(text), nil
	case kindQualifierRegex:
		return QualifierRegex(text), nil
	case kindValueRegex:
		return ValueRegex(text), nil
	case kindValueMask:
		return ValueMask(text), nil
	case kindApplyLabel:
		return ApplyLabel(text), nil
	case kindColumnRange:
		r, err := f.byteRange(s)
		return ColumnRange{text, r}, err
	}
	panic("BUG: no decoder for filter " + kindNames[s.kind])
}

// take reads a byte string, which aliases the input, and counts its bytes against the limit.
func (f *filterDecoder) take(s *scope) ([]byte, error) {
	b := f.d.Bytes()
	if f.bytes += int64(len(b)); f.bytes > f.l.FilterBytes {
		return nil, s.over("filter bytes", f.l.FilterBytes, f.bytes)
	}
	return b, nil
}

func (f *filterDecoder) byteRange(s *scope) (ByteRange, error) {
	var r ByteRange
	for range f.d.Map() {
		key := f.d.Bytes()
		end, kind := &r.Start, BoundClosed
		switch string(key) {
		case "start_closed":
		case "start_open":
			kind = BoundOpen
		case "end_closed":
			end = &r.End
		case "end_open":
			end, kind = &r.End, BoundOpen
		default:
			return r, f.bad(s, fmt.Sprintf("unknown bound %.32q of a range", key))
		}
		if end.Kind != Unbounded {
			return r, f.bad(s, "a range has two starts or two ends")
		}
		b, err := f.take(s)
		if err != nil {
			return r, err
		}
		*end = Bound{kind, append([]byte{}, b...)}
	}
	return r, nil
}
