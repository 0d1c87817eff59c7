package raftmeta

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/raftmeta/api"
)

// modelNode is a node of the model, which maps paths to nodes.
type modelNode struct {
	dir  bool
	data string
	gen  uint64
}

type model map[string]modelNode

func (m model) children(dir string) []string {
	var names []string
	for p := range m {
		if p != "/" && path.Dir(p) == dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names
}

// set returns the expected error of Set; made is the generation that it returned.
func (m model) set(p, data string, gen, made uint64) error {
	for d := path.Dir(p); d != "/"; d = path.Dir(d) {
		if n, ok := m[d]; ok && !n.dir {
			return ErrNotDirectory
		}
	}
	n, ok := m[p]
	if ok && n.dir {
		return ErrIsDirectory
	}
	if gen != api.AnyGeneration && gen != n.gen {
		return ErrGeneration
	}
	if !ok {
		for d := p; d != "/"; d = path.Dir(d) {
			parent := path.Dir(d)
			_, there := m[parent]
			m[parent] = modelNode{dir: true, gen: made}
			if there {
				break
			}
		}
	}
	m[p] = modelNode{data: data, gen: made}
	return nil
}

func (m model) remove(p string, gen uint64, made uint64) error {
	n, ok := m[p]
	switch {
	case !ok && (gen == api.AnyGeneration || gen == 0):
		return ErrNotFound
	case gen != api.AnyGeneration && gen != n.gen:
		return ErrGeneration
	case n.dir && len(m.children(p)) > 0:
		return ErrNotEmpty
	}
	delete(m, p)
	m[path.Dir(p)] = modelNode{dir: true, gen: made}
	return nil
}

// TestModel makes random calls on a group and on a map, with restarts and snapshots in between. It
// compares every answer, and at random the whole state.
func TestModel(t *testing.T) {
	seed := testseed.New(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	m := model{"/": {dir: true}}
	g := openGroup(t, Config{Dir: dir, SnapshotBytes: 64 << 10})
	seen := map[uint64]bool{} // generations made
	for i := range 3000 {
		p := randomPath(rng)
		gen := uint64(api.AnyGeneration)
		switch rng.IntN(4) {
		case 0:
			gen = 0
		case 1, 2:
			gen = m[p].gen
		}
		before := g.Stats().LastIndex
		switch n := rng.IntN(100); {
		case n < 45:
			data := strings.Repeat(fmt.Sprint(i), rng.IntN(40))
			made, err := g.Set(t.Context(), p, []byte(data), gen)
			if want := m.set(p, data, gen, before+1); !errors.Is(err, want) || err == nil && made != before+1 {
				t.Fatalf("call %d: set %s at %d: got %d, %v; want %d, %v", i, p, gen, made, err, before+1, want)
			}
			if err == nil && seen[made] {
				t.Fatalf("call %d: generation %d twice", i, made)
			}
			seen[made] = true
		case n < 75:
			err := g.Delete(t.Context(), p, gen)
			if want := m.remove(p, gen, before+1); !errors.Is(err, want) {
				t.Fatalf("call %d: delete %s at %d: %v, want %v", i, p, gen, err, want)
			}
		case n < 90:
			checkPath(t, g, m, p)
		case n < 98:
			checkList(t, g, m, path.Dir(p))
		case n < 99:
			if err := g.raft.Snapshot().Error(); err != nil && err != raft.ErrNothingNewToSnapshot {
				t.Fatal(err)
			}
		default:
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			g = openGroup(t, Config{Dir: dir, SnapshotBytes: 64 << 10})
		}
		if i%250 == 0 {
			checkAll(t, g, m)
		}
	}
	checkAll(t, g, m)
}

// randomPath has few names, so that files and directories collide.
func randomPath(rng *rand.Rand) string {
	var b strings.Builder
	for range 1 + rng.IntN(4) {
		b.WriteString([]string{"/a", "/b", "/b-b", "/c0"}[rng.IntN(4)])
	}
	return b.String()
}

func checkPath(t *testing.T, g *Group, m model, p string) {
	t.Helper()
	f, err := g.Get(t.Context(), p)
	n, ok := m[p]
	switch {
	case !ok:
		if !errors.Is(err, ErrNotFound) {
			t.Fatalf("get %s: %+v, %v", p, f, err)
		}
	case n.dir:
		if !errors.Is(err, ErrIsDirectory) {
			t.Fatalf("get %s: %+v, %v", p, f, err)
		}
	case err != nil || string(f.Data) != n.data || f.Generation != n.gen:
		t.Fatalf("get %s: %+v, %v; want %+v", p, f, err, n)
	}
}

func checkList(t *testing.T, g *Group, m model, dir string) {
	t.Helper()
	names, err := g.List(t.Context(), dir)
	n, ok := m[dir]
	switch {
	case !ok:
		if !errors.Is(err, ErrNotFound) {
			t.Fatalf("list %s: %q, %v", dir, names, err)
		}
	case !n.dir:
		if !errors.Is(err, ErrNotDirectory) {
			t.Fatalf("list %s: %q, %v", dir, names, err)
		}
	case err != nil || !slices.Equal(names, m.children(dir)):
		t.Fatalf("list %s: %q, %v; want %q", dir, names, err, m.children(dir))
	}
}

func checkAll(t *testing.T, g *Group, m model) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(m)) {
		checkPath(t, g, m, p)
		checkList(t, g, m, p)
	}
	stateOf(t, g.machine)
	g.machine.View(func(ns *fsm.Namespace, _ uint64) {
		if c := ns.Counts(); c.Files+c.Directories != len(m) {
			t.Fatalf("%d files and %d directories, want %d nodes", c.Files, c.Directories, len(m))
		}
		for p, n := range m {
			if got := ns.Get(p); got.Generation != n.gen || got.Dir != n.dir || !bytes.Equal(got.Data, []byte(n.data)) {
				t.Fatalf("%s is %+v, want %+v", p, got, n)
			}
		}
	})
}
