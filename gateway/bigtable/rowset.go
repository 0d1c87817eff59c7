package bigtable

import (
	"cmp"
	"slices"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// span is a row, or a range of rows.
type span struct {
	start string
	// end is exclusive; empty means unbounded. A row has none.
	end string
	one bool // only the row start
}

// empty reports whether the span contains no key.
func (s *span) empty() bool { return !s.one && s.end != "" && s.start >= s.end }

// covers reports whether s contains the start of o, or ends where o begins.
func (s *span) covers(o *span) bool {
	if s.one {
		return s.start == o.start
	}
	return s.end == "" || o.start < s.end || !o.one && o.start == s.end
}

// rowSpans converts a row set to spans in ascending order that do not overlap (GB2). A nil or empty set
// is the whole table. Errors are statuses.
func rowSpans(set *bigtablepb.RowSet) ([]span, error) {
	if len(set.GetRowKeys())+len(set.GetRowRanges()) == 0 {
		return []span{{}}, nil
	}
	spans := make([]span, 0, len(set.RowKeys)+len(set.RowRanges))
	for _, key := range set.RowKeys {
		if len(key) == 0 {
			return nil, errcode.Convert(table.ErrBadRowKey, errcode.Repeatable)
		}
		spans = append(spans, span{start: string(key), one: true})
	}
	for i, r := range set.RowRanges {
		s, err := rangeSpan(i, r)
		if err != nil {
			return nil, err
		}
		if !s.empty() {
			spans = append(spans, s)
		}
	}
	return merge(spans), nil
}

// rangeSpan converts the range at an index.
func rangeSpan(index int, r *bigtablepb.RowRange) (span, error) {
	var s span
	var first, last []byte // as in the request
	names := [2]string{"start_key_closed", "end_key_open"}
	switch k := r.GetStartKey().(type) {
	case *bigtablepb.RowRange_StartKeyClosed:
		first, s.start = k.StartKeyClosed, string(k.StartKeyClosed)
	case *bigtablepb.RowRange_StartKeyOpen:
		first, s.start, names[0] = k.StartKeyOpen, successor(k.StartKeyOpen), "start_key_open"
	}
	switch k := r.GetEndKey().(type) {
	case *bigtablepb.RowRange_EndKeyOpen:
		last, s.end = k.EndKeyOpen, string(k.EndKeyOpen)
	case *bigtablepb.RowRange_EndKeyClosed:
		if last, names[1] = k.EndKeyClosed, "end_key_closed"; len(last) > 0 { // empty: unbounded
			s.end = successor(last)
		}
	}
	if len(first) > 0 && len(last) > 0 && string(first) > string(last) {
		return s, errcode.Invalid("Error in element #%d: %s must be less than %s", index, names[0], names[1])
	}
	if n := len(s.start); n > 0 && len(s.end) == n+1 && s.end[n] == 0 && s.end[:n] == s.start {
		s.end, s.one = "", true
	}
	return s, nil
}

// successor returns the first key after key.
func successor(key []byte) string { return string(append(key[:len(key):len(key)], 0)) }

// merge sorts spans and combines those that overlap.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && merged[n-1].covers(&s) {
			merged[n-1].extend(&s)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// extend adds o, whose start s covers, to s.
func (s *span) extend(o *span) {
	switch {
	case o.one:
	case s.one:
		*s = *o
	case s.end != "" && (o.end == "" || o.end > s.end):
		s.end = o.end
	}
}
