package raftmeta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/raftmeta/api"
)

func TestGroupCalls(t *testing.T) {
	g := openGroup(t, Config{Dir: t.TempDir()})
	ctx := t.Context()
	gen := mustSet(t, g, "/cluster", "id", 0)
	f, err := g.Get(ctx, "/cluster")
	if err != nil || f.Path != "/cluster" || string(f.Data) != "id" || f.Generation != gen || f.Instance != gen {
		t.Errorf("get: %+v, %v", f, err)
	}
	f.Data[0] = 'X' // the caller owns it
	again := mustSet(t, g, "/cluster", "", gen)
	if f, err := g.Get(ctx, "/cluster"); err != nil || f.Data == nil || len(f.Data) != 0 || f.Generation != again || f.Instance != gen {
		t.Errorf("get after set: %+v, %v", f, err)
	}
	mustSet(t, g, "/tables/web", "schema", api.AnyGeneration)
	mustSet(t, g, "/tables/a/b", "", 0)
	for dir, want := range map[string][]string{"/": {"cluster", "tables"}, "/tables": {"a", "web"}} {
		if names, err := g.List(ctx, dir); err != nil || !slices.Equal(names, want) {
			t.Errorf("list %s: %q, %v", dir, names, err)
		}
	}
	get := func(p string) error { _, err := g.Get(ctx, p); return err }
	list := func(p string) error { _, err := g.List(ctx, p); return err }
	set := func(p string, n int, gen uint64) error {
		_, err := g.Set(ctx, p, make([]byte, n), gen)
		return err
	}
	for _, tc := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"get nothing", get("/none"), ErrNotFound, "get /none: not found"},
		{"get below a file", get("/cluster/x"), ErrNotFound, ""},
		{"get a directory", get("/tables"), ErrIsDirectory, "get /tables: is a directory"},
		{"get the root", get("/"), ErrIsDirectory, ""},
		{"get a bad path", get("x"), ErrBadPath, ""},
		{"list nothing", list("/none"), ErrNotFound, ""},
		{"list a file", list("/cluster"), ErrNotDirectory, "list /cluster: is not a directory"},
		{"list a bad path", list("/a/"), ErrBadPath, ""},
		{"set what exists", set("/cluster", 1, 0), ErrGeneration, ""},
		{"set at an old generation", set("/cluster", 1, gen), ErrGeneration, ""},
		{"set at a generation of nothing", set("/none", 1, 5), ErrNotFound, ""},
		{"set a directory", set("/tables", 1, api.AnyGeneration), ErrIsDirectory, ""},
		{"set below a file", set("/cluster/x", 1, api.AnyGeneration), ErrNotDirectory, "set /cluster/x: /cluster is not a directory"},
		{"set the root", set("/", 1, api.AnyGeneration), ErrBadPath, ""},
		{"set too much", set("/big", api.FileBytesMax+1, api.AnyGeneration), ErrTooLarge, "set /big: file too large: 262145 bytes, at most 262144"},
		{"delete nothing", g.Delete(ctx, "/none", api.AnyGeneration), ErrNotFound, ""},
		{"delete at a generation", g.Delete(ctx, "/cluster", gen), ErrGeneration, ""},
		{"delete a full directory", g.Delete(ctx, "/tables", api.AnyGeneration), ErrNotEmpty, ""},
		{"delete the root", g.Delete(ctx, "/", api.AnyGeneration), ErrBadPath, ""},
	} {
		if !errors.Is(tc.err, tc.want) || tc.text != "" && tc.err.Error() != tc.text {
			t.Errorf("%s: %v", tc.name, tc.err)
		}
	}
	var ge *GenerationError
	if err := set("/cluster", 1, gen); !errors.As(err, &ge) || *ge != (GenerationError{Path: "/cluster", Want: gen, Got: again}) {
		t.Errorf("got %+v", ge)
	}
	if err := set("/big", api.FileBytesMax, 0); err != nil {
		t.Errorf("the largest file: %v", err)
	}
	if err := g.Delete(ctx, "/cluster", again); err != nil {
		t.Errorf("delete: %v", err)
	}
	if fresh := mustSet(t, g, "/cluster", "new", 0); fresh <= again {
		t.Errorf("generation %d after %d", fresh, again)
	}
	// Raft answers a command before it advances its applied index.
	eventually(t, "the applied index is that of the last entry", func() bool { s := g.Stats(); return s.AppliedIndex == s.LastIndex })
	s := g.Stats()
	if !s.Leader || !s.Ready || s.Voters != 1 || s.Files != 4 || s.Directories != 3 || s.Refused == 0 || s.LogWrites == 0 || s.AppliedIndex != s.LastIndex {
		t.Errorf("stats: %+v", s)
	}
}

// TestGroupKeepsItsState closes and reopens a group, with and without snapshots in between.
func TestGroupKeepsItsState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "meta")
	var gens []uint64
	for round := range 6 {
		g := openGroup(t, Config{Dir: dir})
		for i, gen := range gens {
			f, err := g.Get(t.Context(), fmt.Sprintf("/d/%d", i))
			if err != nil || f.Generation != gen || string(f.Data) != fmt.Sprint(i) {
				t.Fatalf("round %d: file %d: %+v, %v", round, i, f, err)
			}
		}
		gens = append(gens, mustSet(t, g, fmt.Sprintf("/d/%d", round), fmt.Sprint(round), 0))
		if round%2 == 1 {
			if err := g.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
			gens = append(gens, mustSet(t, g, fmt.Sprintf("/d/%d", round+1), fmt.Sprint(round+1), 0))
			mustSet(t, g, "/later", "", api.AnyGeneration)
			gens = gens[:len(gens)-1]
			if err := g.Delete(t.Context(), fmt.Sprintf("/d/%d", round+1), api.AnyGeneration); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGroupIsInitializedOnce kills Open after each operation on the file system, and then opens the
// directory normally.
func TestGroupIsInitializedOnce(t *testing.T) {
	cut := errors.New("the process ends here")
	for n := int64(1); ; n++ {
		dir := filepath.Join(t.TempDir(), "meta")
		fs := vfs.NewFaulty(vfs.OS())
		fs.SetHook(func(op vfs.Op) error {
			if op.N >= n {
				return cut
			}
			return nil
		})
		g, err := Open(Config{Dir: dir, ID: "n1", FS: fs})
		if err == nil {
			if n < 4 {
				t.Error("nothing was cut")
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, cut) {
			t.Fatalf("operation %d: %v", n, err)
		}
		g = openGroup(t, Config{Dir: dir})
		mustSet(t, g, "/cluster", "id", 0)
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGroupRefusesFolders(t *testing.T) {
	dir := t.TempDir()
	g := openGroup(t, Config{Dir: dir})
	for range 3 {
		mustSet(t, g, "/f", "x", api.AnyGeneration)
	}
	if _, err := Open(Config{Dir: dir, ID: "n1"}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("open twice: %v", err)
	}
	if err := Verify(t.Context(), nil, dir, nil, func(error) {}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("verify while open: %v", err)
	}
	if err := g.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir, ID: "n2"}); !errors.Is(err, ErrWrongServer) {
		t.Errorf("open as another: %v", err)
	}
	for _, cfg := range []Config{
		{ID: "n1"},
		{Dir: dir},
		{Dir: dir, ID: strings.Repeat("n", 65)},
		{Dir: dir, ID: "n1", StallTimeout: time.Millisecond},
		{Dir: dir, ID: "n1", SnapshotBytes: 1},
		{Dir: dir, ID: "n1", ReserveBytes: -1},
	} {
		if _, err := Open(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	snaps, _ := filepath.Glob(filepath.Join(dir, storage.SnapshotsName, "*"))
	log := filepath.Join(dir, storage.LogName)
	for name, spoil := range map[string]func() (mend func()){
		"log is gone":          func() func() { return hide(t, log) },
		"log is empty":         func() func() { return replace(t, log, nil) },
		"log is something":     func() func() { return replace(t, log, bytes.Repeat([]byte("text\n"), 9000)) },
		"snapshot is empty":    func() func() { return replace(t, snaps[0], nil) },
		"snapshot is spoilt":   func() func() { return flip(t, snaps[0], 70) },
		"snapshot head spoilt": func() func() { return flip(t, snaps[0], 25) },
		"log is spoilt":        func() func() { return flip(t, log, 20) },
	} {
		mend := spoil()
		_, err := Open(Config{Dir: dir, ID: "n1", OnFatal: func(err error) { t.Errorf("%s: fatal: %v", name, err) }})
		var c *CorruptError
		if !errors.As(err, &c) || !strings.HasPrefix(c.File, dir) {
			t.Errorf("%s: %v", name, err)
		}
		problems := 0
		if err := Verify(t.Context(), nil, dir, nil, func(error) { problems++ }); problems == 0 && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: verify found nothing, %v", name, err)
		}
		mend()
	}
	openGroup(t, Config{Dir: dir})
}

func hide(tb testing.TB, file string) (mend func()) {
	tb.Helper()
	if err := os.Rename(file, file+".hidden"); err != nil {
		tb.Fatal(err)
	}
	return func() { _ = os.Rename(file+".hidden", file) }
}

func replace(tb testing.TB, file string, b []byte) (mend func()) {
	tb.Helper()
	mend = hide(tb, file)
	if err := os.WriteFile(file, b, 0o600); err != nil {
		tb.Fatal(err)
	}
	return mend
}

func flip(tb testing.TB, file string, at int) (mend func()) {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	b[at] ^= 0x10
	return replace(tb, file, b)
}

// TestGroupMissingSnapshot loses the snapshot that the log begins after.
func TestGroupMissingSnapshot(t *testing.T) {
	dir := t.TempDir()
	g := openGroup(t, Config{Dir: dir})
	var wg sync.WaitGroup
	for w := range 50 {
		wg.Go(func() {
			for range 30 {
				mustSet(t, g, fmt.Sprintf("/%d", w), "x", api.AnyGeneration)
			}
		})
	}
	wg.Wait()
	if err := g.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	mend := hide(t, filepath.Join(dir, storage.SnapshotsName))
	if _, err := Open(Config{Dir: dir, ID: "n1"}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filepath.Join(dir, storage.SnapshotsName)); err != nil {
		t.Fatal(err)
	}
	mend()
}

// TestGroupSnapshotsAreBounded writes much and keeps little: the log file and the snapshots stay
// small.
func TestGroupSnapshotsAreBounded(t *testing.T) {
	dir := t.TempDir()
	g := openGroup(t, Config{Dir: dir, SnapshotBytes: 256 << 10})
	data := bytes.Repeat([]byte("x"), 10_000)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for range 500 {
				mustSet(t, g, fmt.Sprintf("/f%d", w), string(data), api.AnyGeneration)
			}
		})
	}
	wg.Wait()
	s := g.Stats()
	info, err := os.Stat(filepath.Join(dir, storage.LogName))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := g.store.FirstIndex()
	t.Logf("%d bytes logged, %d snapshots, log from %d to %d in a file of %d bytes", s.LogBytes, s.Snapshots, first, s.LastIndex, info.Size())
	if s.Snapshots < 10 || s.LastIndex-first > trailingLogs+300 || info.Size() > 40<<20 {
		t.Error("not bounded")
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	names, _ := os.ReadDir(filepath.Join(dir, storage.SnapshotsName))
	if len(names) != storage.SnapshotsKept {
		t.Errorf("%d snapshots", len(names))
	}
}

func TestGroupContexts(t *testing.T) {
	release := make(chan struct{})
	var slow *slowBolt
	cfg := Config{Dir: t.TempDir(), OpenLog: wrapBolt(func(b storage.Backend) storage.Backend {
		slow = &slowBolt{Backend: b}
		return slow
	})}
	g := openGroup(t, cfg)
	gen := mustSet(t, g, "/f", "old", 0)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Set(gone, "/f", nil, api.AnyGeneration); !errors.Is(err, context.Canceled) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("set with a context that has ended: %v", err)
	}
	if _, err := g.Get(gone, "/f"); !errors.Is(err, context.Canceled) {
		t.Errorf("get with a context that has ended: %v", err)
	}
	slow.during = func() { <-release }
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := g.Set(short, "/f", []byte("new"), gen); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("set while the disk is slow: %v", err)
	}
	if _, err := g.Get(short, "/f"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get while the disk is slow: %v", err)
	}
	close(release)
	// The write commits after all, as the error reported that it may.
	for {
		f, err := g.Get(t.Context(), "/f")
		if err != nil {
			t.Fatal(err)
		}
		if string(f.Data) == "new" {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// TestGroupQueueIsBounded fills the capacity for commands in flight.
func TestGroupQueueIsBounded(t *testing.T) {
	release := make(chan struct{})
	var slow *slowBolt
	g := openGroup(t, Config{Dir: t.TempDir(), OpenLog: wrapBolt(func(b storage.Backend) storage.Backend {
		slow = &slowBolt{Backend: b}
		return slow
	})})
	slow.during = func() { <-release }
	var wg sync.WaitGroup
	data := make([]byte, api.FileBytesMax)
	for w := range inFlightBytesMax/api.FileBytesMax + 20 {
		wg.Go(func() {
			if _, err := g.Set(t.Context(), fmt.Sprintf("/f%d", w), data, 0); err != nil {
				t.Error(err)
			}
		})
	}
	for g.proposer.inFlight.TryAcquire(api.FileBytesMax) {
		g.proposer.inFlight.Release(api.FileBytesMax)
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := g.Set(ctx, "/one-more", data, 0); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	close(release)
	wg.Wait()
	if _, err := g.Get(t.Context(), "/one-more"); !errors.Is(err, ErrNotFound) {
		t.Errorf("what never entered the queue: %v", err)
	}
}

func TestGroupClosed(t *testing.T) {
	g := openGroup(t, Config{Dir: t.TempDir()})
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for i := 0; ; i++ {
				_, err := g.Set(t.Context(), fmt.Sprintf("/%d", w), nil, api.AnyGeneration)
				if err == nil {
					_, err = g.Get(t.Context(), fmt.Sprintf("/%d", w))
				}
				if errors.Is(err, ErrClosed) && !errors.Is(err, ErrOutcomeUnknown) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := g.WaitReady(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := g.List(t.Context(), "/"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	_ = g.Stats()
}

func TestGroupDiskFull(t *testing.T) {
	free := int64(1 << 40)
	g := openGroup(t, Config{Dir: t.TempDir()})
	var mu sync.Mutex
	g.disk.free = func() (int64, error) { mu.Lock(); defer mu.Unlock(); return free, nil }
	mustSet(t, g, "/f", "x", 0)
	mu.Lock()
	free = 64<<20 - 1
	mu.Unlock()
	g.disk.measured.Store(0)
	if _, err := g.Set(t.Context(), "/f", nil, api.AnyGeneration); !errors.Is(err, ErrDiskFull) {
		t.Errorf("got %v", err)
	}
	if err := g.Delete(t.Context(), "/f", api.AnyGeneration); err != nil {
		t.Errorf("a deletion makes room: %v", err)
	}
	mu.Lock()
	free++
	mu.Unlock()
	g.disk.measured.Store(0)
	mustSet(t, g, "/f", "x", 0)
}

// A follower whose disk is full does not answer for the leader: it names the leader.
func TestFollowerDiskFull(t *testing.T) {
	c := newCluster(t, 3, nil)
	defer c.close()
	l := c.leader()
	for _, id := range c.ids() {
		g := c.group(id)
		if g == l {
			continue
		}
		g.disk.free = func() (int64, error) { return 0, nil }
		g.disk.measured.Store(0)
		var elsewhere *api.NotLeaderError
		if _, _, err := g.Service().OpenSession(t.Context(), "s", time.Second); !errors.As(err, &elsewhere) || elsewhere.Leader == "" {
			t.Errorf("a session of %s: %v", id, err)
		}
		if _, err := g.Service().Set(t.Context(), "/f", nil, api.AnyGeneration, api.SetOptions{}); !errors.As(err, &elsewhere) {
			t.Errorf("a change at %s: %v", id, err)
		}
	}
}

// logLines collects log lines.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *logLines) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
}

// TestGroupIsQuiet starts, uses and stops a single voter: it logs one line and no warning.
func TestGroupIsQuiet(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		var log logLines
		g := openGroup(t, Config{Dir: dir, Logger: log.logger(slog.LevelInfo)})
		mustSet(t, g, "/f", "x", api.AnyGeneration)
		if err := g.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if len(log.lines) != 1 || !strings.Contains(log.lines[0], "raftmeta is ready") {
			t.Errorf("logged %q", log.lines)
		}
	}
}

func TestLogBridge(t *testing.T) {
	var log logLines
	b := &logBridge{to: log.logger(slog.LevelDebug)}
	l := b.newLogger().With("peer", "n2")
	l.Debug("a debug line")
	l.Info("an info line")
	l.Warn("a warning", "servers", []any{1})
	l.Named("net").Error("an error", "err", errors.New("cause"))
	want := []string{"level=DEBUG msg=\"raft: a debug line\" peer=n2", "level=DEBUG msg=\"raft: an info line\"", "level=WARN", "level=WARN msg=\"raft: an error\" peer=n2 err=cause"}
	if len(log.lines) != len(want) {
		t.Fatalf("logged %q", log.lines)
	}
	for i, w := range want {
		if !strings.Contains(log.lines[i], w) {
			t.Errorf("line %d is %q", i, log.lines[i])
		}
	}
}

// loopback is a Streams on a TCP port of this machine. Servers are identified by their addresses.
type loopback struct{ net.Listener }

func (l loopback) Dial(address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", address, timeout)
}

func newLoopback(tb testing.TB) loopback {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return loopback{l}
}

// TestGroupWithStreams runs a single voter on a network, at a different address each time, which
// must not matter.
func TestGroupWithStreams(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		s := newLoopback(t)
		g := openGroup(t, Config{Dir: dir, Streams: s})
		mustSet(t, g, "/f", "x", api.AnyGeneration)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is open after Close: %v", err)
		}
	}
}

// TestGroupNeedsStreams opens a server of two voters without streams.
func TestGroupNeedsStreams(t *testing.T) {
	dir := t.TempDir()
	g := openGroup(t, Config{Dir: dir})
	if err := g.raft.AddVoter("n2", "n2", 0, time.Second).Error(); err != nil && !errors.Is(err, raft.ErrLeadershipLost) {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir, ID: "n1"}); !errors.Is(err, ErrNoStreams) {
		t.Errorf("got %v", err)
	}
}
