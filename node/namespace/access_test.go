package namespace

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/session/sessiontest"
)

// openAccess returns access to a lock service without files.
func openAccess(t *testing.T) (*Access, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	m := &Access{Client: sessiontest.NewClient(t)}
	if err := m.Open(ctx, "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background(), slog.New(slog.DiscardHandler)) })
	return m, ctx
}

// newCatalog returns the catalog of a lock service without files.
func newCatalog(t *testing.T) (*Catalog, context.Context) {
	t.Helper()
	m, ctx := openAccess(t)
	return &Catalog{Meta: m}, ctx
}
