package node

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// metaAccess is the node's access to the lock service. It implements namespace.
type metaAccess struct {
	client  *session.Client
	session atomic.Pointer[session.Session] // nil before the first
}

func (m *metaAccess) open(ctx context.Context, name string) error {
	s, err := m.client.Open(ctx, session.Options{Name: name})
	if err != nil {
		return err
	}
	m.session.Store(s)
	return nil
}

// current returns the node's session, which may have expired; nil before the first.
func (m *metaAccess) current() *session.Session { return m.session.Load() }

// Get implements namespace.
func (m *metaAccess) Get(ctx context.Context, path string) (metaapi.File, error) {
	return m.client.Get(ctx, path)
}

// Set implements namespace. Within a change it is guarded by the mastership of the change.
func (m *metaAccess) Set(ctx context.Context, path string, data []byte, gen uint64) (uint64, error) {
	return m.SetGuarded(ctx, path, data, gen, mastershipIn(ctx).options())
}

// SetGuarded implements namespace.
func (m *metaAccess) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	made, err := m.client.Set(ctx, path, data, gen, o)
	mastershipIn(ctx).note(path, err)
	return made, err
}

// Delete implements namespace. It is guarded as Set is.
func (m *metaAccess) Delete(ctx context.Context, path string, gen uint64) error {
	return m.deleteGuarded(ctx, path, gen, mastershipIn(ctx).options())
}

// deleteGuarded is Delete, subject to a guard.
func (m *metaAccess) deleteGuarded(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error {
	err := m.client.Delete(ctx, path, gen, o)
	mastershipIn(ctx).note(path, err)
	return err
}

// List implements namespace.
func (m *metaAccess) List(ctx context.Context, dir string) ([]metaapi.Stat, error) {
	return m.client.List(ctx, dir)
}

// farewellTimeout bounds the closing of a session: when all nodes stop there may be no leader, and the session ends with its lease.
const farewellTimeout = time.Second

// close ends the session and the connections.
func (m *metaAccess) close(ctx context.Context, log *slog.Logger) {
	if s := m.current(); s != nil {
		ctx, cancel := context.WithTimeout(ctx, farewellTimeout)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			log.Debug("lock service session not closed; it ends with its lease", "err", err)
		}
	}
	if m.client != nil {
		_ = m.client.Close()
	}
}
