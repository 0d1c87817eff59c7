package session

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// TestOptionBounds: options are accepted at their bounds, rejected beyond them, and zero is the default.
func TestOptionBounds(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		good bool
	}{
		"none":              {Options{}, true},
		"shortest lease":    {Options{Lease: api.LeaseMin}, true},
		"shorter lease":     {Options{Lease: api.LeaseMin - 1}, false},
		"longest lease":     {Options{Lease: api.LeaseMax}, true},
		"longer lease":      {Options{Lease: api.LeaseMax + 1}, false},
		"longest name":      {Options{Name: strings.Repeat("n", api.SessionNameBytesMax)}, true},
		"longer name":       {Options{Name: strings.Repeat("n", api.SessionNameBytesMax+1)}, false},
		"a queue of one":    {Options{QueueMax: 1}, true},
		"a negative queue":  {Options{QueueMax: -1}, false},
		"a cache of a byte": {Options{CacheBytes: 1}, true},
		"a negative cache":  {Options{CacheBytes: -1}, false},
		"no grace":          {Options{Grace: -1}, true},
	} {
		if _, err := c.o.withDefaults(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	o, _ := Options{}.withDefaults()
	if want := (Options{Lease: api.LeaseDefault, Grace: 45 * time.Second, CacheFiles: 10_000, CacheBytes: 67_108_864, QueueMax: 4096}); o != want {
		t.Errorf("the defaults are %+v, want %+v", o, want)
	}
	if o, _ = (Options{Grace: -1}).withDefaults(); o.Grace != 0 {
		t.Errorf("no grace is %v", o.Grace)
	}
}

// TestConfigBounds: negative durations are rejected, zero means the default, and other values are
// kept.
func TestConfigBounds(t *testing.T) {
	for name, c := range map[string]struct {
		cfg         Config
		dial, retry time.Duration // 0: rejected
	}{
		"defaults":               {Config{}, time.Second, 45 * time.Second},
		"the shortest":           {Config{DialTimeout: 1, RetryTimeMax: 1}, 1, 1},
		"a negative DialTimeout": {Config{DialTimeout: -1}, 0, 0},
		"a negative RetryTime":   {Config{RetryTimeMax: -1}, 0, 0},
	} {
		if _, err := c.cfg.withDefaults(); err == nil {
			t.Errorf("%s: accepted without a Locator", name)
		}
		c.cfg.Locator = Addresses{"here"}
		got, err := c.cfg.withDefaults()
		if (err == nil) != (c.dial != 0) || err == nil && (got.DialTimeout != c.dial || got.RetryTimeMax != c.retry) {
			t.Errorf("%s: %v and %v, %v", name, got.DialTimeout, got.RetryTimeMax, err)
		}
		if err == nil && (got.Dialer == nil || got.Clock == nil || got.Logger == nil) {
			t.Errorf("%s: %+v lacks a default", name, got)
		}
	}
	clock, dialer, logger := &stillClock{}, &scripted{}, slog.New(slog.DiscardHandler)
	got, err := Config{Locator: Addresses{"here"}, Clock: clock, Dialer: dialer, Logger: logger}.withDefaults()
	if err != nil || got.Clock != Clock(clock) || got.Dialer != Dialer(dialer) || got.Logger != logger {
		t.Errorf("%+v is not what was set: %v", got, err)
	}
}

// TestCacheKeepsOnlyWhatIsCurrent: an answer is cached if it was read in this term, after the last
// event that emptied the cache and after the last invalidation of its path, and is not older than
// the cached file.
func TestCacheKeepsOnlyWhatIsCurrent(t *testing.T) {
	type permission = api.CachePermission
	for _, c := range []struct {
		name       string
		perm       permission
		generation uint64
		before     func(c *cache) // called during the fetch
		kept       bool
	}{
		{"current", permission{OK: true, Term: 3, At: 9}, 5, nil, true},
		{"no permission", permission{Term: 3, At: 9}, 5, nil, false},
		{"an older term", permission{OK: true, Term: 2, At: 9}, 5, nil, false},
		{"a later term", permission{OK: true, Term: 4, At: 9}, 5, nil, false},
		{"emptied at that event", permission{OK: true, Term: 3, At: 9}, 5, func(c *cache) { c.empty(9) }, true},
		{"emptied after it", permission{OK: true, Term: 3, At: 9}, 5, func(c *cache) { c.empty(10) }, false},
		{"invalid at that event", permission{OK: true, Term: 3, At: 9}, 5, func(c *cache) { c.invalidate("/f", 9) }, true},
		{"invalid after it", permission{OK: true, Term: 3, At: 9}, 5, func(c *cache) { c.invalidate("/f", 10) }, false},
		{"another file invalid", permission{OK: true, Term: 3, At: 9}, 5, func(c *cache) { c.invalidate("/g", 10) }, true},
		{"a new term meanwhile", permission{OK: true, Term: 4, At: 9}, 5, func(c *cache) { c.newTerm(4) }, false},
	} {
		cache := newCache(10, 1<<20, func() bool { return true })
		cache.newTerm(3)
		f := cache.begin("/f", true)
		if c.before != nil {
			c.before(cache)
		}
		v := cache.finish(f, &api.File{Stat: api.Stat{Path: "/f", Generation: c.generation}, Data: []byte("x")}, c.perm)
		if _, ok := cache.get("/f"); ok != c.kept || (v != nil) != c.kept {
			t.Errorf("%s: kept %v, with a version %v", c.name, ok, v != nil)
		}
		if n := len(cache.mu.fetches); n != 0 {
			t.Errorf("%s: %d fetches are left", c.name, n)
		}
	}
	cache := newCache(10, 1<<20, func() bool { return true })
	for _, c := range []struct{ put, want uint64 }{{5, 5}, {4, 5}, {5, 5}, {6, 6}} {
		cache.finish(cache.begin("/f", false), &api.File{Stat: api.Stat{Path: "/f", Generation: c.put}}, permission{OK: true})
		if got, ok := cache.generation("/f"); !ok || got != c.want {
			t.Errorf("after generation %d it is %d, want %d", c.put, got, c.want)
		}
	}
}

// TestCacheIsBounded: a cache never exceeds its limits of files and bytes, and counts them exactly.
func TestCacheIsBounded(t *testing.T) {
	put := func(c *cache, path string, n int) {
		c.finish(c.begin(path, false), &api.File{Stat: api.Stat{Path: path}, Data: make([]byte, n)}, api.CachePermission{OK: true})
	}
	c := newCache(3, 1<<20, func() bool { return true })
	for i := range 5 {
		put(c, fmt.Sprintf("/%d", i), 10)
		if got, want := c.len(), min(i+1, 3); got != want || c.mu.bytes != int64(want*(10+2*2+fileBytes)) {
			t.Errorf("after %d files it has %d of %d bytes", i+1, got, c.mu.bytes)
		}
	}
	put(c, "/4", 20) // replaces the previous one
	if c.len() != 3 || c.mu.bytes != 3*(10+4+fileBytes)+10 {
		t.Errorf("with a larger one it has %d files of %d bytes", c.len(), c.mu.bytes)
	}
	most := int64(1000)
	for n, want := range map[int]bool{int(most) - fileBytes - 4: true, int(most) - fileBytes - 3: false} {
		c := newCache(3, most, func() bool { return true })
		put(c, "/x", n)
		if _, ok := c.get("/x"); ok != want {
			t.Errorf("a file of %d bytes in a cache of %d is kept: %v", n, most, ok)
		}
	}
	c = newCache(10, 2*(100+4+fileBytes), func() bool { return true })
	put(c, "/a", 100)
	put(c, "/b", 100)
	if c.len() != 2 {
		t.Errorf("of two files that fill the cache there are %d", c.len())
	}
	put(c, "/c", 100)
	if c.len() != 2 {
		t.Errorf("with a third file there are %d", c.len())
	}
	for _, files := range []int{-1, 0} {
		none := newCache(files, 1<<20, func() bool { return true })
		put(none, "/a", 1)
		if none.len() != 0 || none.mu.bytes != 0 {
			t.Errorf("a file is kept in a cache of %d files", files)
		}
	}
}
