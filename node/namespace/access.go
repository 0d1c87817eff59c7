package namespace

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// Access is the node's access to the lock service. It implements Files.
type Access struct {
	Client  *session.Client
	session atomic.Pointer[session.Session] // nil before the first
}

// Open opens a session with that name, which becomes the current one.
func (m *Access) Open(ctx context.Context, name string) error {
	s, err := m.Client.Open(ctx, session.Options{Name: name})
	if err != nil {
		return err
	}
	m.session.Store(s)
	return nil
}

// Current returns the node's session, which may have expired; nil before the first.
func (m *Access) Current() *session.Session { return m.session.Load() }

// Get implements Files.
func (m *Access) Get(ctx context.Context, path string) (metaapi.File, error) {
	return m.Client.Get(ctx, path)
}

// Stat implements Files.
func (m *Access) Stat(ctx context.Context, path string) (metaapi.Stat, error) {
	return m.Client.Stat(ctx, path)
}

// Set implements Files. Within a change it is guarded by the mastership of the change.
func (m *Access) Set(ctx context.Context, path string, data []byte, gen uint64) (uint64, error) {
	return m.SetGuarded(ctx, path, data, gen, MastershipIn(ctx).options())
}

// SetGuarded implements Files.
func (m *Access) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	made, err := m.Client.Set(ctx, path, data, gen, o)
	MastershipIn(ctx).note(path, err)
	return made, err
}

// Delete implements Files. It is guarded as Set is.
func (m *Access) Delete(ctx context.Context, path string, gen uint64) error {
	return m.DeleteGuarded(ctx, path, gen, MastershipIn(ctx).options())
}

// DeleteGuarded is Delete, subject to a guard.
func (m *Access) DeleteGuarded(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error {
	err := m.Client.Delete(ctx, path, gen, o)
	MastershipIn(ctx).note(path, err)
	return err
}

// List implements Files.
func (m *Access) List(ctx context.Context, dir string) ([]metaapi.Stat, error) {
	return m.Client.List(ctx, dir)
}

// farewellTimeout bounds the closing of a session: when all nodes stop there may be no leader, and the session ends with its lease.
const farewellTimeout = time.Second

// Close ends the session and the connections.
func (m *Access) Close(ctx context.Context, log *slog.Logger) {
	if s := m.Current(); s != nil {
		ctx, cancel := context.WithTimeout(ctx, farewellTimeout)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			log.Debug("lock service session not closed; it ends with its lease", "err", err)
		}
	}
	if m.Client != nil {
		_ = m.Client.Close()
	}
}
