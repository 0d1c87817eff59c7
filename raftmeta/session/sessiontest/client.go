package sessiontest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/raftmeta/session"
)

// NewClient starts a lock service without files and returns a client of it. Both are closed when the test ends.
func NewClient(t testing.TB) *session.Client {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	g, err := raftmeta.Open(raftmeta.Config{Dir: t.TempDir(), ID: "n1", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := g.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := session.NewClient(session.Config{Locator: session.Addresses{"n1"}, Dialer: local{g}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// local connects to a group in the same process. It implements session.Dialer.
type local struct{ g *raftmeta.Group }

// Dial implements session.Dialer.
func (l local) Dial(context.Context, string) (session.Peer, error) {
	return session.Peer{Service: l.g.Service()}, nil
}
