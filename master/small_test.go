package master

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// smallState is a table of five tablets on two servers, all small for a long time.
func smallState() *TabletState {
	s := &TabletState{Whole: true, Servers: []TabletServer{{Name: "a.1", Node: "a"}, {Name: "b.1", Node: "b"}}, Cool: map[string]time.Duration{}, Pins: map[string]string{}}
	for i := range 5 {
		key := string(metadata.Key(nil, 16, fmt.Appendf(nil, "%d", i)))
		v := &s.Servers[i%2]
		v.Has = append(v.Has, Held{Key: key, Bytes: int64(5-i) << 20})
		s.Tablets = append(s.Tablets, Tablet{Key: key, Server: v.Name})
		s.Cool[key] = mergeCool
	}
	return s
}

func TestSmallNeighbours(t *testing.T) {
	key := func(i int) string { return smallState().Tablets[i].Key }
	held := func(s *TabletState, i int) *Held { return &s.Servers[i%2].Has[i/2] }
	for _, x := range []struct {
		what  string
		do    func(s *TabletState)
		lower int // index of the pair; -1 for none
	}{
		{"all are small", func(*TabletState) {}, 3},
		{"one is large", func(s *TabletState) { held(s, 4).Bytes = mergeBytesMax }, 2},
		{"one was not for long", func(s *TabletState) { s.Cool[key(3)] = mergeCool - 1 }, 1},
		{"one is pinned", func(s *TabletState) { s.Pins[key(4)] = "a" }, 2},
		{"one waits for a recovery", func(s *TabletState) { s.Tablets[3].Recoveries = []string{"c.1"} }, 1},
		{"the first waits for a recovery", func(s *TabletState) { s.Tablets[0].Recoveries = []string{"c.1"} }, 3},
		{"one is moved", func(s *TabletState) { s.Busy = []Order{{Kind: Unload, Tablet: s.Tablets[4]}} }, 2},
		{"the row of one cannot be read", func(s *TabletState) { s.Tablets[4].Damaged = errors.New("damaged") }, 2},
		{"one is served by none", func(s *TabletState) { s.Servers[1].Has = nil }, -1},
		{"two are merged", func(s *TabletState) { s.PendingMerges = []PendingMerge{{Lower: key(0), Upper: key(1)}} }, -1},
		{"a server is silent", func(s *TabletState) { s.Servers[0].Silent = true }, -1},
		{"a server leaves", func(s *TabletState) { s.Servers[0].Draining = true }, -1},
		{"not all is known", func(s *TabletState) { s.Whole = false }, -1},
		{"all is METADATA's", func(s *TabletState) {
			for i := range s.Tablets {
				k := string(metadata.Key(nil, metadata.TableID, fmt.Appendf(nil, "%d", i)))
				held(s, i).Key, s.Tablets[i].Key, s.Cool[k] = k, k, mergeCool
			}
		}, -1},
		{"no key is one of METADATA", func(s *TabletState) {
			for i := range s.Tablets {
				k := fmt.Sprintf("x%d", i)
				held(s, i).Key, s.Tablets[i].Key, s.Cool[k] = k, k, mergeCool
			}
		}, -1},
		{"each is another table's", func(s *TabletState) {
			for i := range s.Tablets {
				k := string(metadata.Key(nil, 16+uint64(i), nil))
				held(s, i).Key, s.Tablets[i].Key, s.Cool[k] = k, k, mergeCool
			}
		}, -1},
	} {
		s := smallState()
		x.do(s)
		u := SmallNeighbours(s)
		if x.lower < 0 {
			if u != nil {
				t.Errorf("%s: %q and %q are to be merged", x.what, u.Lower, u.Upper)
			}
		} else if u == nil || u.Lower != key(x.lower) || u.Upper != key(x.lower+1) {
			t.Errorf("%s: %+v, want the pair at %d", x.what, u, x.lower)
		}
	}
}

// Tablets that stay small are merged, one pair a minute, until one is left. No data is lost.
func TestSmallTabletsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSimCluster(rand.New(rand.NewPCG(1, 1)), 10)
		for range 3 {
			f.start()
		}
		view := &masterView{simCluster: f}
		_, end := runMaster(t, view, 1)
		f.wait(t, time.Minute)
		for i := range 50 {
			f.write(i)
		}
		users := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.rows) - 2
		}
		time.Sleep(mergeCool - 5*time.Minute)
		if n := users(); n != 10 {
			t.Fatalf("%d tablets of 10 after less than %v", n, mergeCool)
		}
		time.Sleep(5*time.Minute + 3*mergePause)
		if n := users(); n < 5 || n == 10 {
			t.Fatalf("%d tablets of 10 some minutes later", n)
		}
		// A merged tablet is new only if it has another key; the upper tablet's key stays.
		time.Sleep(mergeCool + 20*mergePause)
		if n := users(); n != 1 {
			t.Fatalf("%d tablets in the end", n)
		}
		f.wait(t, time.Minute)
		end()
		f.check(t)
	})
}

// TestSmallTime: the time for which a tablet has been small continues while its server does not
// answer, and starts again after the tablet was large or busy.
func TestSmallTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := func(i int) string { return string(metadata.Key(nil, 16, fmt.Appendf(nil, "%d", i))) }
		a := newAssigner(Config{}, nil)
		look := func(servers ...TabletServer) map[string]time.Duration {
			t.Helper()
			s := &TabletState{Servers: servers, Tablets: []Tablet{{Key: key(0), Server: "a"}, {Key: key(1), Server: "a"}, {Key: key(2), Server: "b"}}}
			a.noteSmall(s)
			return s.Cool
		}
		small, large := func(i int) Held { return Held{Key: key(i)} }, func(i int) Held { return Held{Key: key(i), Bytes: mergeBytesMax + 1} }
		look(TabletServer{Name: "a", Has: []Held{large(1), small(0)}}, TabletServer{Name: "b", Has: []Held{small(2)}})
		time.Sleep(time.Hour)
		look(TabletServer{Name: "a", Silent: true}, TabletServer{Name: "b", Has: []Held{large(2)}})
		time.Sleep(time.Hour)
		got := look(TabletServer{Name: "a", Has: []Held{small(0), small(1)}}, TabletServer{Name: "b", Has: []Held{small(2)}})
		if got[key(0)] != 2*time.Hour {
			t.Errorf("one whose server was unresponsive meanwhile is small for %v, want 2h", got[key(0)])
		}
		if got[key(1)] != 0 || got[key(2)] != 0 {
			t.Errorf("two that were large are small for %v and %v", got[key(1)], got[key(2)])
		}
		time.Sleep(time.Minute)
		got = look(TabletServer{Name: "a", Has: []Held{small(0)}}, TabletServer{Name: "b", Has: []Held{small(1), small(2)}})
		if got[key(0)] != 2*time.Hour+time.Minute || got[key(1)] != time.Minute {
			t.Errorf("a minute later they are small for %v and %v", got[key(0)], got[key(1)])
		}
	})
}

// TestMergePause: a merge starts exactly a minute after the previous one.
func TestMergePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAssigner(Config{}, nil)
		merges := func() int {
			s := smallState()
			a.small = map[string]time.Time{}
			for i := range s.Tablets {
				a.small[s.Tablets[i].Key] = time.Now().Add(-mergeCool)
			}
			a.mu.requests = nil
			a.noteSmall(s)
			return len(s.PendingMerges)
		}
		if n := merges(); n != 1 {
			t.Errorf("%d merges begin, want 1", n)
		}
		time.Sleep(mergePause - 1)
		if n := merges(); n != 0 {
			t.Errorf("%d merges begin within a minute", n)
		}
		time.Sleep(1)
		if n := merges(); n != 1 {
			t.Errorf("%d merges begin after a minute, want 1", n)
		}
	})
}
