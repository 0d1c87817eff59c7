package master

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// smallState is a table of five tablets on two servers, all small for long.
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
		lower int // of the pair; -1 is none
	}{
		{"all are small", func(*TabletState) {}, 3},
		{"one is large", func(s *TabletState) { held(s, 4).Bytes = mergeBytesMax }, 2},
		{"one was not for long", func(s *TabletState) { s.Cool[key(3)] = mergeCool - 1 }, 1},
		{"one is wanted somewhere", func(s *TabletState) { s.Pins[key(4)] = "a" }, 2},
		{"one waits for a recovery", func(s *TabletState) { s.Tablets[3].Recoveries = []string{"c.1"} }, 1},
		{"one is moved", func(s *TabletState) { s.Busy = []Order{{Kind: Unload, Tablet: s.Tablets[4]}} }, 2},
		{"one is served by none", func(s *TabletState) { s.Servers[1].Has = nil }, -1},
		{"two are merged", func(s *TabletState) { s.Unions = []Union{{Lower: key(0), Upper: key(1)}} }, -1},
		{"a server is silent", func(s *TabletState) { s.Servers[0].Silent = true }, -1},
		{"a server leaves", func(s *TabletState) { s.Servers[0].Leaving = true }, -1},
		{"not all is known", func(s *TabletState) { s.Whole = false }, -1},
		{"all is METADATA's", func(s *TabletState) {
			for i := range s.Tablets {
				k := string(metadata.Key(nil, metadata.TableID, fmt.Appendf(nil, "%d", i)))
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

// Tablets that stay small are merged, one pair a minute, until one is left; nothing is lost.
func TestSmallTabletsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTabletFleet(rand.New(rand.NewPCG(1, 1)), 10)
		for range 3 {
			f.start()
		}
		view := &masterView{tabletFleet: f}
		_, end := reignOf(t, view, 1)
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
		// What was merged counts as new only if it has another key; the upper one's stays.
		time.Sleep(mergeCool + 20*mergePause)
		if n := users(); n != 1 {
			t.Fatalf("%d tablets in the end", n)
		}
		f.wait(t, time.Minute)
		end()
		f.check(t)
	})
}
