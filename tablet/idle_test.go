package tablet

import (
	"fmt"
	"runtime"
	"testing"
)

// TestIdleTabletIsSmall: an empty, idle tablet takes at most 4 KiB, since a server may have
// thousands.
func TestIdleTabletIsSmall(t *testing.T) {
	const tablets, most = 1000, 4 << 10
	f := newCluster(t, Config{}, 1)
	s := f.servers[0]
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	start := []byte(nil)
	for i := range tablets {
		end := fmt.Appendf(nil, "row%06d", i)
		m := &Meta{ID: 100 + uint64(i), Table: 2, Start: start, End: end, LastMajor: f.clock.now()}
		schema := *f.schema
		schema.ID, schema.Name = 2, "many"
		if err := s.Load(t.Context(), Load{Meta: m, Schema: &schema}); err != nil {
			t.Fatal(err)
		}
		start = end
	}
	if got := (heap() - before) / tablets; got > most {
		t.Fatalf("an idle tablet uses %d bytes, more than %d", got, most)
	} else {
		t.Logf("an idle tablet uses %d bytes", got)
	}
	if !s.Served().Has(Ref{2, string(start)}) || !s.Served().Has(lastTablet) || s.Served().Has(Ref{2, ""}) || s.Served().Has(Ref{3, ""}) {
		t.Fatal("the server does not know what it has")
	}
	if n := len(s.Served().Loaded()); n != tablets+1 {
		t.Fatalf("%d tablets are served, want %d", n, tablets+1)
	}
}
