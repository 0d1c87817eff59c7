package session

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/fsm"
	"github.com/steledb/stele/rpc"
)

// directoryServer answers reads from a namespace that changes between calls.
type directoryServer struct {
	api.Service
	ns    *fsm.Namespace
	index uint64
	rng   *rand.Rand
	old   bool // it cannot read directories
	quiet bool // nothing changes
	calls int
	// states are the contents of the directory since the last Read began.
	states []map[string]string
}

func (s *directoryServer) Dial(context.Context, string) (Peer, error) {
	return Peer{Service: s}, nil
}

// change changes up to three files, or something elsewhere.
func (s *directoryServer) change() {
	if s.quiet {
		return
	}
	for range s.rng.IntN(4) {
		s.index++
		c := &fsm.Command{Op: fsm.OpSet, Generation: api.AnyGeneration, Path: fmt.Sprintf("/d/%02d", s.rng.IntN(30))}
		switch s.rng.IntN(4) {
		case 0:
			c.Op = fsm.OpDelete
		case 1:
			c.Path = "/d0"
		default:
			c.Data = make([]byte, s.rng.IntN(60_000))
			c.Data = fmt.Appendf(c.Data, "%d", s.index)
		}
		s.ns.Apply(s.index, 1, c)
		s.states = append(s.states, s.state())
	}
}

func (s *directoryServer) state() map[string]string {
	all := map[string]string{}
	for _, n := range s.ns.Children(s.ns.Get("/d")) {
		all[n.Node.Path] = string(n.Node.Data)
	}
	return all
}

func (s *directoryServer) ReadDirectory(_ context.Context, dir string, o api.DirectoryOptions) (api.DirectoryPage, error) {
	s.calls++
	if s.old {
		return api.DirectoryPage{}, rpc.Errorf(rpc.CodeUnknownMethod, "no such method")
	}
	s.change()
	p := fsm.ReadPage(s.ns, s.ns.Get(dir), o)
	p.Index = s.index
	s.change()
	return p, nil
}

func (s *directoryServer) List(_ context.Context, dir string) (all []api.Stat, _ error) {
	for _, n := range s.ns.Children(s.ns.Get(dir)) {
		all = append(all, n.Stat())
	}
	s.change()
	return all, nil
}

func (s *directoryServer) Get(_ context.Context, path string, _ api.SessionID) (api.File, api.CachePermission, error) {
	s.calls++
	f, err := s.ns.Lookup(path).File()
	s.change()
	return f, api.CachePermission{}, err
}

// TestDirectory compares what a Directory reads, in pages, with a directory that changes meanwhile. Invariant RS8.
func TestDirectory(t *testing.T) {
	for seed := range uint64(50 * soak()) {
		s := &directoryServer{ns: fsm.NewNamespace(), rng: rand.New(rand.NewPCG(seed, 0)), index: 2}
		s.ns.Apply(2, 1, &fsm.Command{Op: fsm.OpSet, Path: "/d/00"})
		c, err := NewClient(Config{Locator: Addresses{"a"}, Dialer: s, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		d := c.Directory("/d")
		for i := range 30 {
			s.old, s.quiet, s.states = s.rng.IntN(4) == 0, s.rng.IntN(4) == 0, []map[string]string{s.state()}
			files, err := d.Read(t.Context())
			if err != nil {
				t.Fatalf("seed %d, read %d: %v", seed, i, err)
			}
			if bad := s.check(files); bad != "" {
				t.Fatalf("seed %d, read %d: %s", seed, i, bad)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// check compares what a Read returned with the states of the directory during the call.
func (s *directoryServer) check(files []api.File) string {
	if !slices.IsSortedFunc(files, func(a, b api.File) int { return byPath(a, b.Path) }) {
		return "the files are not in order"
	}
	got := map[string]string{}
	for _, f := range files {
		got[f.Path] = string(f.Data)
	}
	if len(got) != len(files) {
		return "a file is listed twice"
	}
	for i := range 30 {
		path := fmt.Sprintf("/d/%02d", i)
		data, listed := got[path]
		if !slices.ContainsFunc(s.states, func(m map[string]string) bool { was, exists := m[path]; return was == data && exists == listed }) {
			return fmt.Sprintf("%s, listed %v, never was so", path, listed)
		}
	}
	return ""
}

// TestDirectoryCalls: a directory whose files fit into a page takes one call for each Read.
func TestDirectoryCalls(t *testing.T) {
	s := &directoryServer{ns: fsm.NewNamespace(), index: 1001, quiet: true}
	for i := range uint64(1000) {
		s.ns.Apply(2+i, 1, &fsm.Command{Op: fsm.OpSet, Path: fmt.Sprintf("/d/n%04d", i), Data: []byte(`{"name":"node-1","rpc":"10.0.0.1:7106"}`)})
	}
	c, err := NewClient(Config{Locator: Addresses{"a"}, Dialer: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d := c.Directory("/d")
	for i := range 3 {
		if files, err := d.Read(t.Context()); err != nil || len(files) != 1000 || s.calls != i+1 {
			t.Fatalf("%d files after %d calls, %v", len(files), s.calls, err)
		}
	}
}
