package namespace

import (
	"errors"
	"testing"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/security/acl"
)

// TestWritesUnderMastership (NS3): writes of a change succeed while its mastership lasts and fail after it, and the change records that it
// wrote something besides the epoch of rights.
func TestWritesUnderMastership(t *testing.T) {
	m, ctx := openAccess(t)
	const path = "/master"
	if _, err := m.Set(ctx, path, nil, 0); err != nil {
		t.Fatal(err)
	}
	lock, err := m.Current().Acquire(ctx, path, metaapi.Exclusive, session.LockOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change := WithMastership(ctx, metaapi.SetOptions{Guard: lock.Sequencer()})
	if _, err := m.Set(change, acl.EpochFile, EpochBytes(0), 0); err != nil {
		t.Fatal(err)
	}
	if MastershipIn(change).Wrote.Load() {
		t.Error("the epoch of rights counts as a write")
	}
	if _, err := m.Set(change, "/x", nil, 7); !errors.Is(err, metaapi.ErrGeneration) || MastershipIn(change).Wrote.Load() {
		t.Errorf("a write that fails: %v, counts as one: %v", err, MastershipIn(change).Wrote.Load())
	}
	if _, err := m.Set(change, "/x", nil, 0); err != nil || !MastershipIn(change).Wrote.Load() {
		t.Errorf("a write: %v, counts as one: %v", err, MastershipIn(change).Wrote.Load())
	}
	if err := lock.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"write":  func() error { _, err := m.Set(change, "/y", nil, 0); return err }(),
		"delete": m.Delete(change, "/x", metaapi.AnyGeneration),
	} {
		if !errors.Is(err, metaapi.ErrStale) {
			t.Errorf("a %s after the mastership: %v, want %v", what, err, metaapi.ErrStale)
		}
	}
	if MastershipIn(ctx) != nil {
		t.Error("a mastership outside of a change")
	}
	if err := m.Delete(ctx, "/x", metaapi.AnyGeneration); err != nil {
		t.Errorf("a change without a mastership: %v", err)
	}
}

// TestInstancesAlive: the tablet servers are those that hold their locks, each by the generation of its lock.
func TestInstancesAlive(t *testing.T) {
	m, ctx := openAccess(t)
	if alive, err := m.InstancesAlive(ctx); err != nil || len(alive) != 0 {
		t.Errorf("before there is a server: %v, %v", alive, err)
	}
	for _, name := range []string{"n1", "n2"} {
		if _, err := m.Set(ctx, ServersDir+"/"+name, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := m.Current().Acquire(ctx, ServersDir+"/n1", metaapi.Exclusive, session.LockOptions{})
	if err != nil {
		t.Fatal(err)
	}
	alive, err := m.InstancesAlive(ctx)
	if want := ServerName("n1", lock.Sequencer().LockGeneration); err != nil || len(alive) != 1 || !alive[want] {
		t.Errorf("servers: %v, %v; want %s", alive, err, want)
	}
}
