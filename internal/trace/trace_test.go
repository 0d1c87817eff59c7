package trace

import (
	"strings"
	"testing"
	"time"
)

// TestParse: only traceparents as the W3C defines them are read.
func TestParse(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c, ok := Parse(good)
	if !ok || c.String() != good || !c.Sampled || c.ID.String() != good[3:35] || c.Span.String() != good[36:52] {
		t.Fatalf("%v %v", c, ok)
	}
	for s, want := range map[string]bool{
		good[:54] + "0": true, "cc" + good[2:]: true, "cc" + good[2:] + "-what": true,
		"": false, good[:54]: false, good + "-x": false, "ff" + good[2:]: false, "cc" + good[2:] + "x": false, strings.ToUpper(good): false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false, "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01": false,
	} {
		if c, ok := Parse([]byte(s)); ok != want || !ok && c != (Context{}) {
			t.Errorf("%q: %v", s, ok)
		}
	}
	if NewID() == NewID() || NewSpanID() == NewSpanID() {
		t.Error("ids repeat")
	}
}

// TestRecord: times in stages add up, those of a stage that a request is in several times at once do not, and Begin forgets all.
func TestRecord(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	var r Record
	for range 2 {
		r.Begin(began, false)
		r.Add(Disk, at(2), 10*time.Millisecond, 3)
		r.Add(Disk, at(20), 5*time.Millisecond, 1)
		r.Extend(Replicas, at(1), at(4))
		r.Extend(Replicas, at(2), at(9))
		r.Extend(Replicas, at(2), at(3))
		r.Extend(LogQueue, time.Time{}, at(3))
		r.Count(Blocks, 7)
		r.In(12)
		r.In(13)
	}
	type times struct {
		first, took time.Duration
		n           int64
	}
	got := map[Stage]times{}
	r.Stages(func(s Stage, first, took time.Duration, n int64) { got[s] = times{first, took, n} })
	if len(got) != 2 || got[Disk] != (times{2 * time.Millisecond, 15 * time.Millisecond, 4}) || got[Replicas] != (times{time.Millisecond, 8 * time.Millisecond, 3}) {
		t.Errorf("%v", got)
	}
	counts := map[Counter]int64{}
	r.Counters(func(c Counter, n int64) { counts[c] = n })
	if len(counts) != 2 || counts[Blocks] != 7 || counts[Tablets] != 2 || r.FirstTablet() != 12 {
		t.Errorf("%v, tablet %d", counts, r.FirstTablet())
	}
	if r.Kept() || !r.Detail().IsZero() || !r.Last().Equal(began) {
		t.Error("the request is sampled")
	}
	r.Mark(at(7))
	if !r.Last().Equal(at(7)) {
		t.Error("the end of a wait is forgotten")
	}
	r.Begin(began, true)
	if !r.Kept() || r.Detail().IsZero() {
		t.Error("the request is not sampled")
	}
	var none *Record
	none.Since(Disk, none.Now())
	none.Extend(Disk, at(1), at(2))
	none.In(1)
	none.Count(Rows, 1)
	if none.Kept() {
		t.Error("no record is kept")
	}
}

// TestSampling: about one request of so many is sampled.
func TestSampling(t *testing.T) {
	n, first := 0, 0
	for range 10_000 {
		var s Sampler
		for i := range 10 {
			if s.Next(100) {
				if n++; i == 0 {
					first++
				}
			}
		}
	}
	if n < 700 || n > 1300 || first < 20 || first > 200 { // nine standard deviations
		t.Errorf("%d of 100000 requests are sampled, %d of 10000 first ones", n, first)
	}
	var all Sampler
	for range 10 {
		if !all.Next(1) {
			t.Error("not all requests are sampled")
		}
	}
}

// The log replica of the longest wait is kept.
func TestSlowestReplica(t *testing.T) {
	a, b := "a", "b"
	var r Record
	r.Begin(time.Now(), false)
	if got := r.SlowestReplica(); got != "" {
		t.Errorf("none: %q", got)
	}
	r.Replica(nil, time.Hour)
	r.Replica(&a, time.Second)
	r.Replica(&b, 2*time.Second)
	r.Replica(&a, time.Millisecond)
	if got := r.SlowestReplica(); got != "b" {
		t.Errorf("slowest: %q", got)
	}
	(*Record)(nil).Replica(&a, time.Second)
}
