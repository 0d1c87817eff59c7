package session

import (
	"testing"

	"github.com/steledb/stele/raftmeta/api"
)

// The generation of a cached file is told while the lease holds, and neither longer nor
// of what was taken back.
func TestCachedGeneration(t *testing.T) {
	valid := true
	c := newCache(10, 1<<20, func() bool { return valid })
	c.newTerm(1)
	c.finish(c.begin("/f"), &api.File{Stat: api.Stat{Path: "/f", Generation: 7}}, api.CacheLeave{OK: true, Term: 1, At: 1})
	expect := func(what string, generation uint64, cached bool) {
		t.Helper()
		got, ok := c.generation("/f")
		if ok != cached || ok && got != generation {
			t.Errorf("%s: generation %d, %v; want %d, %v", what, got, ok, generation, cached)
		}
	}
	expect("cached", 7, true)
	valid = false
	expect("without a lease", 0, false)
	valid = true
	expect("with it again", 7, true)
	c.invalidate("/f", 2)
	expect("taken back", 0, false)
}
