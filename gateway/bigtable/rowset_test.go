package bigtable

import (
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

// keys are all keys of up to three of two bytes, in order.
var keys = func() (all []string) {
	var below func(prefix string)
	below = func(prefix string) {
		if prefix != "" {
			all = append(all, prefix)
		}
		if len(prefix) < 3 {
			below(prefix + "\x00")
			below(prefix + "a")
		}
	}
	below("")
	return all
}()

func drawRange(t *rapid.T) *bigtablepb.RowRange {
	r := &bigtablepb.RowRange{}
	key := func(name string) []byte {
		return []byte(rapid.SampledFrom(append([]string{""}, keys...)).Draw(t, name))
	}
	switch rapid.IntRange(0, 2).Draw(t, "start") {
	case 1:
		r.StartKey = &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: key("start key")}
	case 2:
		r.StartKey = &bigtablepb.RowRange_StartKeyOpen{StartKeyOpen: key("start key")}
	}
	switch rapid.IntRange(0, 2).Draw(t, "end") {
	case 1:
		r.EndKey = &bigtablepb.RowRange_EndKeyClosed{EndKeyClosed: key("end key")}
	case 2:
		r.EndKey = &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: key("end key")}
	}
	return r
}

// inRange reports whether a key is in a range, by the definition of Google's API.
func inRange(r *bigtablepb.RowRange, key string) bool {
	switch k := r.StartKey.(type) {
	case *bigtablepb.RowRange_StartKeyClosed:
		if key < string(k.StartKeyClosed) {
			return false
		}
	case *bigtablepb.RowRange_StartKeyOpen:
		if key <= string(k.StartKeyOpen) {
			return false
		}
	}
	switch k := r.EndKey.(type) {
	case *bigtablepb.RowRange_EndKeyClosed:
		return len(k.EndKeyClosed) == 0 || key <= string(k.EndKeyClosed)
	case *bigtablepb.RowRange_EndKeyOpen:
		return len(k.EndKeyOpen) == 0 || key < string(k.EndKeyOpen)
	}
	return true
}

func inverted(r *bigtablepb.RowRange) bool {
	start, end := string(r.GetStartKeyClosed())+string(r.GetStartKeyOpen()), string(r.GetEndKeyClosed())+string(r.GetEndKeyOpen())
	return end != "" && start > end
}

// TestSpans: the spans of a row set ascend, do not overlap, and contain its rows (GB2).
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := &bigtablepb.RowSet{}
		for range rapid.IntRange(0, 5).Draw(t, "keys") {
			set.RowKeys = append(set.RowKeys, []byte(rapid.SampledFrom(keys).Draw(t, "key")))
		}
		bad := false
		for range rapid.IntRange(0, 4).Draw(t, "ranges") {
			r := drawRange(t)
			bad = bad || inverted(r)
			set.RowRanges = append(set.RowRanges, r)
		}
		spans, err := rowSpans(set)
		if bad {
			if status.Code(err) != codes.InvalidArgument {
				t.Fatalf("inverted range: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			want := len(set.RowKeys)+len(set.RowRanges) == 0
			for _, k := range set.RowKeys {
				want = want || string(k) == key
			}
			for _, r := range set.RowRanges {
				want = want || inRange(r, key)
			}
			in := 0
			for _, s := range spans {
				if s.one && s.start == key || !s.one && s.start <= key && (s.end == "" || key < s.end) {
					in++
				}
			}
			if in > 1 || (in == 1) != want {
				t.Fatalf("key %q is in %d spans, in the set: %t", key, in, want)
			}
		}
		for i := 1; i < len(spans); i++ {
			if spans[i-1].start >= spans[i].start || spans[i-1].end > spans[i].start {
				t.Fatalf("span %d: %v", i, spans)
			}
		}
	})
}

func TestEmptyKey(t *testing.T) {
	_, err := rowSpans(&bigtablepb.RowSet{RowKeys: [][]byte{[]byte("a"), {}}})
	if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != "Row keys must be non-empty" {
		t.Errorf("%v", err)
	}
	spans, err := rowSpans(&bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{{
		StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte("a")}, EndKey: &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte("a")}}}})
	if err != nil || len(spans) != 0 {
		t.Errorf("an empty range: %v, %v; want no span, not the whole table", spans, err)
	}
}

// TestBelow: the key is less than the other one, and no key of the test is between them.
func TestBelow(t *testing.T) {
	for _, key := range keys {
		b := string(below([]byte(key)))
		if b >= key {
			t.Errorf("below %q: %q", key, b)
		}
		for _, other := range keys {
			if b < other && other < key {
				t.Errorf("%q is between %q and %q", other, b, key)
			}
		}
	}
}
