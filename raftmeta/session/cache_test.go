package session

import (
	"testing"

	"github.com/steledb/stele/raftmeta/api"
)

// TestCachedGeneration: the generation of a cached file is returned only while the lease is valid
// and the file is not invalidated.
func TestCachedGeneration(t *testing.T) {
	valid := true
	c := newCache(10, 1<<20, func() bool { return valid })
	c.newTerm(1)
	c.finish(c.begin("/f", false), &api.File{Stat: api.Stat{Path: "/f", Generation: 7}}, api.CachePermission{OK: true, Term: 1, At: 1})
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

// TestVersionEnds: a Version outlives the eviction of its file, and nothing else that could let the
// file change unnoticed. RS7.
func TestVersionEnds(t *testing.T) {
	valid := true
	c := newCache(1, 1<<20, func() bool { return valid })
	c.newTerm(1)
	at := uint64(0)
	read := func(path string, perm api.CachePermission) *Version {
		f := api.File{Stat: api.Stat{Path: path, Generation: at}}
		return c.finish(c.begin(path, true), &f, perm)
	}
	granted := func() api.CachePermission { at++; return api.CachePermission{OK: true, Term: 1, At: at} }
	v := read("/f", granted())
	if v == nil || !v.Current() {
		t.Fatal("no Version of what may be cached")
	}
	if _, same := c.getVersion("/f"); same != v {
		t.Error("two Versions of the same file")
	}
	read("/g", granted())
	if _, again := c.getVersion("/f"); again != nil || !v.Current() {
		t.Error("the file was to be evicted, and its Version not")
	}
	if read("/f", granted()) != v {
		t.Error("two Versions of a file that was read again")
	}
	for what, end := range map[string]func(){
		"invalidation": func() { at++; c.invalidate("/f", at) },
		"lost events":  func() { at++; c.empty(at) },
		"the lease":    func() { c.empty(0) },
		"another term": func() { at = 0; c.newTerm(2); c.newTerm(1) },
	} {
		v := read("/f", granted())
		select {
		case <-c.ended:
		default:
		}
		end()
		if v.Current() {
			t.Errorf("%s: the Version is current", what)
		}
		select {
		case <-c.ended:
		default:
			t.Errorf("%s: nothing says that a Version has ended", what)
		}
	}
	if v := read("/f", api.CachePermission{}); v != nil {
		t.Error("a Version of what may not be cached")
	}
	at++
	fetch := c.begin("/f", true)
	c.invalidate("/f", at+1)
	if c.finish(fetch, &api.File{}, api.CachePermission{OK: true, Term: 1, At: at}) != nil {
		t.Error("a Version of what was taken back before it came")
	}
	read("/f", api.CachePermission{OK: true, Term: 1, At: at + 2})
	valid = false
	if _, v := c.getVersion("/f"); v != nil {
		t.Error("a Version without a lease")
	}
}
