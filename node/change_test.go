package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

func startInternal(t *testing.T) (*Node, *client.Client) {
	t.Helper()
	n, err := Start(context.Background(), Config{
		DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(context.Background()) })
	c, err := client.Open(context.Background(), n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return n, c
}

// makeTable makes the table t of one family, f, split at these rows, and returns its schema.
func makeTable(ctx context.Context, t *testing.T, c *client.Client, at ...string) *table.Schema {
	t.Helper()
	schema, err := c.Tables().CreateSplit(ctx, "t", at, familyF(t))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func familyF(t *testing.T) table.FamilySpec {
	t.Helper()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestChangeOutlivesCaller: a change that was begun goes on when its caller's time
// is up, the next one waits for it, and so does Close.
func TestChangeOutlivesCaller(t *testing.T) {
	t.Parallel()
	n, _ := startInternal(t)
	ctx, cancel := context.WithCancel(context.Background())
	release, ended := make(chan struct{}), make(chan error, 1)
	err := n.changes.Do(ctx, authz.ChangeRequest{}, func(ctx context.Context) error {
		cancel()
		<-release
		ended <- ctx.Err()
		return ctx.Err()
	})
	var e *rpc.Error
	if !errors.As(err, &e) || e.Code != rpc.CodeDeadlineExceeded || e.Details["executed"] != nil {
		t.Errorf("the caller got %v", err)
	}
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err = n.changes.Do(short, authz.ChangeRequest{}, func(context.Context) error { t.Error("two changes at a time"); return nil })
	if !errors.As(err, &e) || e.Details["executed"] != 0 {
		t.Errorf("the second caller got %v", err)
	}
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	if err := n.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the change was given up: %v", err)
	}
	if err := n.changes.Do(context.Background(), authz.ChangeRequest{}, func(context.Context) error { return nil }); !errors.Is(err, raftmeta.ErrClosed) {
		t.Errorf("a change after Close: %v", err)
	}
}

// TestImpatientChanges: whenever callers of create and drop leave, the catalog and
// the tablet server know the same tables.
func TestImpatientChanges(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx := context.Background()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		name := fmt.Sprintf("t%d", i)
		soon, cancel := context.WithTimeout(ctx, time.Duration(i%20)*200*time.Microsecond)
		if i%2 == 0 {
			_, _ = c.Tables().Create(soon, name, spec)
		} else {
			if _, err := c.Tables().Create(ctx, name, spec); err != nil {
				t.Fatal(err)
			}
			cancel()
			soon, cancel = context.WithTimeout(ctx, time.Duration(i%20)*200*time.Microsecond)
			_ = c.Tables().Drop(soon, name)
		}
		cancel()
		if err := n.changes.Do(ctx, authz.ChangeRequest{}, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		agree := func() bool {
			_, _, inCatalog := n.catalog.Schema(ctx, name)
			_, served := n.tabletServer.Users().TabletStats(name)
			return errors.Is(inCatalog, api.ErrNoTable) == (served != nil)
		}
		for end := time.Now().Add(10 * time.Second); !agree(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: catalog and tablet server do not agree on whether there is such a table", name)
			}
		}
	}
}
