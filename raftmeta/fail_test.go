package raftmeta

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/raftmeta/api"
)

// wrapBolt opens a bbolt log, wrapped.
func wrapBolt(wrap func(storage.Backend) storage.Backend) storage.OpenFunc {
	return func(file string) (storage.Backend, error) {
		b, err := storage.OpenBolt(file)
		if err != nil {
			return nil, err
		}
		return wrap(b), nil
	}
}

// openFailing opens a group whose disk can be made to fail, without the cleanup that expects a
// clean end.
func openFailing(tb testing.TB, cfg Config) (*Group, *slowBolt, chan error) {
	tb.Helper()
	fatal := make(chan error, 10)
	var disk *slowBolt
	cfg.Dir, cfg.ID = tb.TempDir(), "n1"
	cfg.OnFatal = func(err error) { fatal <- err }
	cfg.OpenLog = wrapBolt(func(b storage.Backend) storage.Backend {
		disk = &slowBolt{Backend: b}
		return disk
	})
	g, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if err := g.WaitReady(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	// Raft steps down when a write fails. It would then call an election, and stop permanently
	// because it cannot save its term; the test closes it before that.
	patient := g.raft.ReloadableConfig()
	patient.HeartbeatTimeout, patient.ElectionTimeout = time.Hour, time.Hour
	if err := g.raft.ReloadConfig(patient); err != nil {
		tb.Fatal(err)
	}
	return g, disk, fatal
}

// TestGroupStall hangs the disk: the node is notified in time, callers get an answer, and Close
// succeeds once the disk continues.
func TestGroupStall(t *testing.T) {
	release := make(chan struct{})
	g, disk, fatal := openFailing(t, Config{StallTimeout: time.Second})
	mustSet(t, g, "/f", "x", 0)
	disk.during = func() { <-release }
	start := time.Now()
	_, err := g.Set(context.Background(), "/f", nil, api.AnyGeneration)
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrStalled) {
		t.Errorf("set: %v", err)
	}
	var d *DiskError
	if err := <-fatal; !errors.As(err, &d) || d.Err != ErrStalled || d.Op != "store log entries" {
		t.Errorf("told %v", err)
	}
	if took := time.Since(start); took < time.Second || took > 30*time.Second {
		t.Errorf("told after %v", took)
	}
	for name, err := range map[string]error{
		"set":  func() error { _, err := g.Set(context.Background(), "/f", nil, api.AnyGeneration); return err }(),
		"get":  func() error { _, err := g.Get(context.Background(), "/f"); return err }(),
		"wait": g.WaitReady(context.Background()),
	} {
		if !errors.Is(err, ErrNotReady) || !errors.Is(err, ErrStalled) {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
	close(release)
	if err := g.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if len(fatal) != 0 {
		t.Errorf("told again: %v", <-fatal)
	}
}

// TestGroupWriteFails fails one write: its outcome is unknown, and no further write is attempted
// although the disk would accept it.
func TestGroupWriteFails(t *testing.T) {
	broken := errors.New("input/output error")
	g, disk, fatal := openFailing(t, Config{})
	mustSet(t, g, "/f", "x", 0)
	disk.err = broken
	_, err := g.Set(context.Background(), "/f", []byte("lost"), api.AnyGeneration)
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, broken) {
		t.Errorf("set: %v", err)
	}
	if err := <-fatal; !errors.Is(err, broken) {
		t.Errorf("told %v", err)
	}
	writes := disk.writes.Load()
	disk.err = nil
	if _, err := g.Set(context.Background(), "/f", nil, api.AnyGeneration); !errors.Is(err, ErrNotReady) {
		t.Errorf("set afterwards: %v", err)
	}
	if disk.writes.Load() != writes {
		t.Error("it wrote again")
	}
	if err := g.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	verifyFolder(t, g.cfg.Dir)
	again := openGroup(t, Config{Dir: g.cfg.Dir})
	if f, err := again.Get(t.Context(), "/f"); err != nil || string(f.Data) != "x" {
		t.Errorf("after a restart: %+v, %v", f, err)
	}
}

// TestGroupUnknownCommand appends a newer program's command to the log: this server stops, and a
// restart reports why.
func TestGroupUnknownCommand(t *testing.T) {
	g, _, fatal := openFailing(t, Config{})
	mustSet(t, g, "/f", "x", 0)
	f := g.raft.Apply([]byte("\x92\x01\x63"), 0)
	if err := f.Error(); err != nil {
		t.Fatal(err)
	}
	if r := f.Response().(fsm.Result); r.Code != fsm.CodeUnknown || r.Err(0) == nil {
		t.Errorf("answer %+v", r)
	}
	var newer *fsm.VersionError
	if err := <-fatal; !errors.As(err, &newer) || newer.What != "operation" || newer.Version != 0x63 {
		t.Errorf("told %v", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(Config{Dir: g.cfg.Dir, ID: "n1"}); !errors.As(err, &newer) || newer.File == "" {
		t.Errorf("open: %v", err)
	}
}

// TestMachineIsDeterministic gives two machines the same log, one entry at a time and in batches,
// with entries in between that are not commands.
func TestMachineIsDeterministic(t *testing.T) {
	var logs []*raft.Log
	for i, c := range []fsm.Command{
		{Op: fsm.OpSet, Path: "/a/b", Data: []byte("1"), Generation: 0},
		{Op: fsm.OpSet, Path: "/a/b", Data: []byte("2"), Generation: 0},
		{Op: fsm.OpSet, Path: "/a/b", Data: []byte("3"), Generation: 11},
		{Op: fsm.OpDelete, Path: "/a", Generation: api.AnyGeneration},
		{Op: fsm.OpSet, Path: "bad", Generation: api.AnyGeneration},
		{Op: fsm.OpDelete, Path: "/a/b", Generation: api.AnyGeneration},
	} {
		logs = append(logs, &raft.Log{Index: uint64(11 + 2*i), Type: raft.LogCommand, Data: c.Encode()},
			&raft.Log{Index: uint64(12 + 2*i), Type: raft.LogConfiguration})
	}
	fail := func(err error) { t.Error(err) }
	one, all := machineFSM{fsm.NewMachine(fail)}, machineFSM{fsm.NewMachine(fail)}
	var single []any
	for _, l := range logs {
		single = append(single, one.Apply(l))
	}
	for i, r := range all.ApplyBatch(logs) {
		if r != single[i] {
			t.Errorf("entry %d: %+v in a batch, %+v alone", i, r, single[i])
		}
	}
	sameState(t, one.machine, all.machine)
	if applied := one.machine.Freeze().Applied(); applied != 21 {
		t.Errorf("applied %d", applied)
	}
}

// slowBolt fails or delays writes.
type slowBolt struct {
	storage.Backend
	err    error
	during func()
	writes atomic.Int64
}

func (b *slowBolt) StoreLogs(logs []*raft.Log) error {
	b.writes.Add(1)
	if b.during != nil {
		b.during()
	}
	if b.err != nil {
		return b.err
	}
	return b.Backend.StoreLogs(logs)
}
