package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/raftmeta/api"
)

// checkNamespace checks the invariants of the tree: every node has a parent directory, and the
// totals match the nodes.
func checkNamespace(tb testing.TB, ns *Namespace) {
	tb.Helper()
	children := map[string]int{}
	var bytes int64
	files, nodes := 0, 0
	ns.nodes.Ascend(func(n *Node) bool {
		nodes++
		if n.removed > n.Generation || n.removed != 0 && !n.Dir {
			tb.Errorf("%s: generation %d, removal at %d", n.Path, n.Generation, n.removed)
		}
		if n.Generation < n.instance {
			tb.Errorf("%s: generation %d before instance %d", n.Path, n.Generation, n.instance)
		}
		if !n.Dir {
			files++
		}
		if n.Path == root {
			return true
		}
		bytes += n.size()
		children[n.parent()]++
		if p := ns.Get(n.parent()); p == nil || !p.Dir {
			tb.Errorf("%s has no directory", n.Path)
		}
		return true
	})
	ns.nodes.Ascend(func(n *Node) bool {
		if n.children != children[n.Path] {
			tb.Errorf("%s has %d children, says %d", n.Path, children[n.Path], n.children)
		}
		if names := ns.List(n); len(names) != n.children || !slices.IsSorted(names) {
			tb.Errorf("%s lists %q", n.Path, names)
		}
		return true
	})
	if bytes != ns.bytes || files != ns.files || nodes != ns.nodes.Len() {
		tb.Errorf("sums are %d, %d, %d, not %d, %d, %d", ns.bytes, ns.files, ns.nodes.Len(), bytes, files, nodes)
	}
	checkSessions(tb, ns)
	counted := ns.clone()
	counted.recount()
	if got, want := usages(ns), usages(counted); got != want {
		tb.Errorf("users have %s, counted anew %s", got, want)
	}
}

// checkSessions checks that sessions, holds and locks agree.
func checkSessions(tb testing.TB, ns *Namespace) {
	tb.Helper()
	held, holders, ephemeral := map[api.SessionID]int{}, map[string]int{}, 0
	ns.holds.Ascend(func(h hold) bool {
		held[h.session]++
		n := ns.Get(h.path)
		switch {
		case n == nil || ns.Session(h.session) == nil:
			tb.Errorf("%+v has no node or no session", h)
		case h.mode == 0:
			ephemeral++
			if n.Ephemeral != h.session {
				tb.Errorf("%+v: the file goes with %d", h, n.Ephemeral)
			}
		default:
			holders[h.path]++
			if _, ok := ns.holders.Get(holder{h.path, h.session}); !ok || n.lock.mode != h.mode || n.Ephemeral != 0 {
				tb.Errorf("%+v: lock is %+v", h, n.lock)
			}
		}
		return true
	})
	ns.sessions.Ascend(func(s *Session) bool {
		if held[s.ID] != s.Holds {
			tb.Errorf("session %d holds %d, says %d", s.ID, held[s.ID], s.Holds)
		}
		return true
	})
	locks, delays := 0, 0
	ns.nodes.Ascend(func(n *Node) bool {
		if n.Ephemeral != 0 {
			ephemeral--
		}
		l := lockState{}
		if n.lock != nil {
			l = *n.lock
		}
		locks += l.holders
		if l.holders != holders[n.Path] || (l.holders == 0) != (l.mode == 0) || l.mode == api.Exclusive && l.holders > 1 {
			tb.Errorf("%s: lock %+v has %d holders", n.Path, l, holders[n.Path])
		}
		if _, ok := ns.delayed.Get(n.Path); ok != (l.delay > 0) || ok != (l.delayMode != 0) || ok != (l.delayIndex != 0) {
			tb.Errorf("%s: lock %+v, delayed %v", n.Path, l, ok)
		}
		if l.delay > 0 {
			delays++
		}
		return true
	})
	if ephemeral != 0 || locks != ns.holders.Len() || delays != ns.delayed.Len() {
		tb.Errorf("%d ephemeral files without a hold, %d locks of %d, %d delays of %d", -ephemeral, locks, ns.holders.Len(), delays, ns.delayed.Len())
	}
}

// put and del change ns as a Set or Delete without a session does.
func put(ns *Namespace, index uint64, path string, data []byte, gen uint64) Result {
	return ns.set(index, &Command{Path: path, Data: data, Generation: gen})
}

func del(ns *Namespace, index uint64, path string, gen uint64) Result {
	return ns.remove(index, &Command{Path: path, Generation: gen})
}

// step is one command of a table and its expected result.
type step struct {
	cmd  string // "set" or "del"
	path string
	data string
	gen  uint64
	want Code
	got  uint64 // the generation in the result
}

func TestNamespaceCompareAndSet(t *testing.T) {
	const any = api.AnyGeneration
	for name, steps := range map[string][]step{
		"create": {
			{"set", "/f", "a", 0, CodeDone, 1},
			{"set", "/f", "b", 0, CodeGeneration, 1}, // must not exist
			{"set", "/f", "b", 7, CodeGeneration, 1},
			{"set", "/f", "b", 1, CodeDone, 4},
			{"set", "/f", "c", 1, CodeGeneration, 4}, // the old generation
			{"set", "/f", "c", any, CodeDone, 6},
		},
		"generation of nothing": {
			{"set", "/f", "a", 1, CodeGeneration, 0},
			{"set", "/f", "a", any, CodeDone, 2},
			{"del", "/g", "", any, CodeNotFound, 0},
			{"del", "/g", "", 0, CodeNotFound, 0},
			{"del", "/g", "", 2, CodeGeneration, 0},
		},
		"delete and create again": {
			{"set", "/f", "a", 0, CodeDone, 1},
			{"del", "/f", "", 9, CodeGeneration, 1},
			{"del", "/f", "", 0, CodeGeneration, 1},
			{"del", "/f", "", 1, CodeDone, 1},
			{"del", "/f", "", 1, CodeGeneration, 0},
			{"set", "/f", "b", 1, CodeGeneration, 0}, // the deleted file's generation
			{"set", "/f", "b", 0, CodeDone, 7},       // never 1 again
			{"set", "/f", "b", 1, CodeGeneration, 7},
		},
		"directories": {
			{"set", "/d/e/f", "a", 0, CodeDone, 1},
			{"set", "/d/e", "a", any, CodeIsDirectory, 0},
			{"set", "/d/e/f/g", "a", any, CodeNotDirectory, 0},
			{"set", "/d/e/f/g/h", "a", 3, CodeNotDirectory, 0},
			{"del", "/d", "", any, CodeNotEmpty, 0},
			{"del", "/d/e/f", "", any, CodeDone, 1},
			{"del", "/d/e", "", 1, CodeGeneration, 6}, // the deletion changed it
			{"del", "/d/e", "", 6, CodeDone, 6},
			{"del", "/d", "", any, CodeDone, 8},
			{"set", "/d", "now a file", 0, CodeDone, 10},
		},
		"bad paths": {
			{"set", "/", "a", any, CodeBadPath, 0},
			{"del", "/", "", any, CodeBadPath, 0},
			{"set", "f", "a", any, CodeBadPath, 0},
			{"del", "/a//b", "", any, CodeBadPath, 0},
			{"set", "/f", strings.Repeat("x", api.FileBytesMax+1), any, CodeFileBytes, 0},
			{"set", "/f", strings.Repeat("x", api.FileBytesMax), any, CodeDone, 6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := NewNamespace()
			for i, s := range steps {
				index := uint64(i + 1)
				var r Result
				if s.cmd == "set" {
					r = put(ns, index, s.path, []byte(s.data), s.gen)
				} else {
					r = del(ns, index, s.path, s.gen)
				}
				if r.Code != s.want || r.Generation != s.got {
					t.Errorf("step %d: %s %s: got code %d, generation %d; want %d, %d",
						index, s.cmd, s.path, r.Code, r.Generation, s.want, s.got)
				}
				checkNamespace(t, ns)
			}
		})
	}
}

// A file is not created under AbsentSince if its directory lost a child after that index: not even in a new directory of that path, nor after
// a snapshot was read.
func TestNamespaceAbsentSince(t *testing.T) {
	ns := NewNamespace()
	for i, c := range []struct {
		path           string
		since, removed uint64 // since 0: delete the path. removed: the set is rejected for a removal at this index
	}{
		2:  {"/d/a", 1, 0},
		3:  {"/d/b", 1, 0},
		4:  {"/d/a", 0, 0},
		5:  {"/d/a", 3, 4},
		6:  {"/d/c", 3, 4},
		7:  {"/d/a", 4, 0},
		8:  {"/d/e/x", 3, 4}, // a directory that would be new
		9:  {"/d/e/x", 4, 0},
		10: {"/e/x", 1, 0}, // another directory
		11: {"/e/x", 0, 0},
		12: {"/e", 0, 0},
		13: {"/e/x", 10, 12},
		14: {"/e/y", 12, 0}, // in a new directory of that path
		15: {"/e/x", 11, 12},
		16: {"/e/x", 12, 0},
	} {
		if c.path == "" {
			continue
		}
		index := uint64(i)
		var r Result
		if c.since == 0 {
			r = del(ns, index, c.path, api.AnyGeneration)
		} else {
			r = ns.set(index, &Command{Op: OpSet, Path: c.path, AbsentSince: c.since})
		}
		var want error
		if c.removed != 0 {
			want = &api.GenerationError{Path: c.path, Removed: c.removed}
		}
		if err := r.Err(0); fmt.Sprint(err) != fmt.Sprint(want) {
			t.Errorf("%d: %v, want %v", index, err, want)
		}
		restored, _, err := ReadSnapshot(bytes.NewReader(stream(t, ns, index)))
		if err != nil {
			t.Fatalf("%d: %v", index, err)
		}
		sameNamespace(t, ns, restored)
		checkNamespace(t, restored)
		ns = restored
	}
}

// A rename creates a file and deletes another one, or changes nothing.
func TestNamespaceRename(t *testing.T) {
	ns := NewNamespace()
	for i, p := range []string{"/d/a", "/d/b", "/d/dir/f", "/e/a"} {
		put(ns, uint64(2+i), p, []byte(p), 0)
	}
	for i, c := range []struct {
		path, from string
		gen        uint64 // of from
		err        error
	}{
		{"/d/new", "/d/a", 7, &api.GenerationError{Path: "/d/a", Got: 2}},
		{"/d/new", "/d/absent", 2, &api.GenerationError{Path: "/d/absent"}},
		{"/d/b", "/d/a", 2, &api.GenerationError{Path: "/d/b", Got: 3}},
		{"/d/new", "/d/dir", 4, api.ErrIsDirectory},
		{"/d/new", "/e/a", 5, &api.PathError{Path: "/e/a", Reason: "is not another file of the same directory"}},
		{"/d/new", "/d/dir/f", 4, &api.PathError{Path: "/d/dir/f", Reason: "is not another file of the same directory"}},
		{"/d/new", "/d/new", 2, &api.PathError{Path: "/d/new", Reason: "is not another file of the same directory"}},
		{"/d/new", "/", 2, &api.PathError{Path: "/", Reason: "is the root directory"}},
		{"/d/new", "/d/a", 2, nil},
		{"/d/late", "/d/a", 2, &api.GenerationError{Path: "/d/a"}}, // a request that arrives again
		{"/d/new", "/d/a", 2, &api.GenerationError{Path: "/d/new", Got: 18}},
	} {
		before := ns.Get("/d/a")
		r := ns.set(uint64(10+i), &Command{Op: OpSet, Path: c.path, Data: []byte("v"), From: c.from, FromGeneration: c.gen})
		if err := r.Err(0); fmt.Sprint(err) != fmt.Sprint(c.err) {
			t.Errorf("%+v: %v", c, err)
		}
		if c.err != nil && ns.Get("/d/a") != before {
			t.Errorf("%+v: it has changed", c)
		}
		checkNamespace(t, ns)
	}
	if n := ns.Get("/d/new"); ns.Get("/d/a") != nil || n == nil || string(n.Data) != "v" || n.Generation != 18 || n.instance != 18 {
		t.Errorf("renamed to %+v, and %+v", n, ns.Get("/d/a"))
	}
}

func TestNamespaceInstanceStays(t *testing.T) {
	ns := NewNamespace()
	put(ns, 5, "/d/f", nil, 0)
	put(ns, 6, "/d/f", nil, 5)
	if n := ns.Get("/d/f"); n.instance != 5 || n.Generation != 6 {
		t.Errorf("after two sets: %+v", n)
	}
	if n := ns.Get("/d"); n.instance != 5 || n.Generation != 5 {
		t.Errorf("a set of a file's content changed its directory: %+v", n)
	}
	del(ns, 7, "/d/f", api.AnyGeneration)
	put(ns, 8, "/d/f", nil, 0)
	if n := ns.Get("/d/f"); n.instance != 8 || n.Generation != 8 {
		t.Errorf("after delete and create: %+v", n)
	}
}

// TestNamespaceListsOnlyChildren has names that sort between a directory and its subtree.
func TestNamespaceListsOnlyChildren(t *testing.T) {
	ns := NewNamespace()
	for i, p := range []string{"/a/b/c/d", "/a/b-c", "/a/b.c", "/a/b0", "/a/bb", "/a-b", "/b", "/a/b/x"} {
		put(ns, uint64(i+1), p, nil, 0)
	}
	for dir, want := range map[string][]string{
		"/":      {"a", "a-b", "b"},
		"/a":     {"b", "b-c", "b.c", "b0", "bb"},
		"/a/b":   {"c", "x"},
		"/a/b/c": {"d"},
	} {
		if got := ns.List(ns.Get(dir)); !slices.Equal(got, want) {
			t.Errorf("list %s: %q, want %q", dir, got, want)
		}
	}
}

func TestNamespaceLimits(t *testing.T) {
	ns := NewNamespace()
	ns.bytes = NamespaceBytesMax - 10
	if r := put(ns, 1, "/1234", []byte("123456"), 0); r.Code != CodeBytes || r.size != NamespaceBytesMax+1 {
		t.Errorf("one byte too many: %+v", r)
	}
	if r := put(ns, 2, "/123", []byte("123456"), 0); r.Code != CodeDone {
		t.Errorf("the last byte: %+v", r)
	}
	if r := put(ns, 3, "/123", []byte("1234567"), api.AnyGeneration); r.Code != CodeBytes {
		t.Errorf("grow when full: %+v", r)
	}
	if r := put(ns, 4, "/123", []byte("123"), api.AnyGeneration); r.Code != CodeDone {
		t.Errorf("shrink when full: %+v", r)
	}
	if err := (Result{Code: CodeBytes, size: 1}).Err(0); !errors.Is(err, api.ErrTooLarge) {
		t.Error(err)
	}
}

// TestNamespaceCloneIsFrozen changes a namespace under its clone.
func TestNamespaceCloneIsFrozen(t *testing.T) {
	ns := filled(3000)
	c := ns.clone()
	for i := range 3000 {
		path := fmt.Sprintf("/tables/d%d/file-%d", i/1000, i)
		if i%2 == 0 {
			del(ns, uint64(10_000+i), path, api.AnyGeneration)
		} else {
			put(ns, uint64(10_000+i), path, []byte("new"), api.AnyGeneration)
		}
		put(ns, uint64(20_000+i), fmt.Sprintf("/more/%d", i), nil, 0)
	}
	checkNamespace(t, ns)
	checkNamespace(t, c)
	if c.files != 3000 || len(c.Get("/tables/d1/file-1001").Data) != 100 || c.Get("/more") != nil {
		t.Error("the clone has changed")
	}
}

func TestErrorTexts(t *testing.T) {
	for want, err := range map[string]error{
		"/f exists already, at generation 7":                               &api.GenerationError{Path: "/f", Want: 0, Got: 7},
		"/f is at generation 7, not 5":                                     &api.GenerationError{Path: "/f", Want: 5, Got: 7},
		"/f does not exist: expected generation 5":                         &api.GenerationError{Path: "/f", Want: 5, Got: 0},
		"file too large: 300000 bytes, at most 262144":                     &api.TooLargeError{What: api.LimitFile, Limit: api.FileBytesMax, Got: 300000},
		"namespace nodes too large: 9, at most 8":                          &api.TooLargeError{What: api.LimitNodes, Limit: 8, Got: 9},
		`bad path "a": it does not begin with a slash`:                     CheckFile("a"),
		"/a is not a directory":                                            Result{Code: CodeNotDirectory, path: "/a"}.Err(0),
		"command version 2 is newer than 1, the newest this program knows": &VersionError{What: "command", Version: 2, Known: 1},
	} {
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
	if !errors.Is(&api.GenerationError{Path: "/f", Want: 5, Got: 0}, api.ErrNotFound) || errors.Is(&api.GenerationError{Path: "/f", Want: 5, Got: 1}, api.ErrNotFound) {
		t.Error("only a api.GenerationError of nothing is api.ErrNotFound")
	}
}
