package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// changeSchema commits a change of the table t, and sends no word of it to any server: the process that makes a change may
// end at that moment.
func changeSchema(ctx context.Context, t *testing.T, n *Node, edit func(*table.Schema) *table.Schema) {
	t.Helper()
	old, cut, gen, err := namespace.ReadTable(ctx, n.catalog.Meta, "t")
	if err != nil {
		t.Fatal(err)
	}
	if next := edit(old); next == nil {
		err = n.catalog.Remove(ctx, namespace.TablePath("t"), gen)
	} else {
		err = n.catalog.SaveTable(ctx, next, cut, gen)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func dropped(*table.Schema) *table.Schema { return nil }

func setF(ctx context.Context, c *client.Client) error {
	m := client.NewRowMutation("r")
	m.Set("f:q", []byte("v"))
	return c.Table("t").Apply(ctx, m)
}

// TestDropIsTheCommit (I15): once the schema of a table is gone, its server acknowledges no write and answers no read of
// the table, although nothing notifies the server.
func TestDropIsTheCommit(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	makeTable(ctx, t, c)
	if err := setF(ctx, c); err != nil {
		t.Fatal(err)
	}
	n.stopMaster(ctx)
	changeSchema(ctx, t, n, dropped)
	for what, do := range map[string]func() error{
		"write":     func() error { return setF(ctx, c) },
		"read":      func() error { _, err := c.Table("t").Get(ctx, "r"); return err },
		"increment": func() error { _, err := c.Table("t").Increment(ctx, "r", "f:n", 1); return err },
		"scan": func() error {
			s := c.Table("t").Scan(ctx)
			defer s.Close()
			for s.Next() {
			}
			return s.Err()
		},
	} {
		if err := do(); !errors.Is(err, client.ErrNoTable) {
			t.Errorf("%s after the drop: %v, want %v", what, err, client.ErrNoTable)
		}
	}
	for len(n.tabletServer.Users().Served().Loaded()) > 0 { // and the server lets go of the tablets by itself
		if timing.Sleep(ctx, 10*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("tablets of a dropped table are served still: %v", n.tabletServer.Users().Served().Loaded())
		}
	}
}

// TestLoadBesideDrop (I15): a server that began to load a tablet before its table was dropped, and registers it after,
// acknowledges no write into it: not before another table has the name, and not after.
func TestLoadBesideDrop(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	first := makeTable(ctx, t, c)
	if err := setF(ctx, c); err != nil {
		t.Fatal(err)
	}
	n.stopMaster(ctx)
	server := n.tabletServer.Current()
	if err := server.Users.Unload(ctx, tablet.Ref{Table: first.ID}); err != nil {
		t.Fatal(err)
	}
	row, err := n.rows.Get(ctx, first.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := server.Prepare(ctx, row)
	if err != nil {
		t.Fatal(err)
	}
	changeSchema(ctx, t, n, dropped)
	load := func() {
		if err := server.Users.Load(ctx, *l); err != nil {
			t.Logf("load of the dropped table's tablet: %v", err) // which is as good
		}
	}
	load()
	if err := setF(ctx, c); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("write after the drop: %v, want %v", err, client.ErrNoTable)
	}
	again := *first
	again.ID = 1 << 40
	if err := n.catalog.SaveTable(ctx, &again, nil, 0); err != nil {
		t.Fatal(err)
	}
	load()
	m := tablet.Meta{ID: again.ID + 1, Table: again.ID, LastMajor: time.Now()}
	fresh := &metadata.Row{Table: again.ID, Generation: metadata.FirstGeneration(m.ID), Meta: tablet.EncodeMeta(&m)}
	if err := n.rows.Create(ctx, fresh, "created"); err != nil {
		t.Fatal(err)
	}
	if err := server.Load(ctx, metadata.Key(nil, again.ID, nil), fresh.Generation); err != nil {
		t.Fatalf("load of the table that has the name now: %v", err)
	}
	if err := setF(ctx, c); err != nil {
		t.Errorf("write to the table that has the name now: %v", err)
	}
	for _, x := range n.tabletServer.Users().Served().Loaded() {
		if x.Table != again.ID {
			t.Errorf("a tablet of table %d is served beside those of table %d", x.Table, again.ID)
		}
	}
}

// TestFamilyChangeIsTheCommit (I15): once the change of a family is committed, the server reads and writes by it: a
// write into a family that was dropped and added again is not acknowledged into the dropped one.
func TestFamilyChangeIsTheCommit(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	makeTable(ctx, t, c)
	if err := setF(ctx, c); err != nil {
		t.Fatal(err)
	}
	edit := func(do func(*table.Schema) (*table.Schema, error)) {
		changeSchema(ctx, t, n, func(s *table.Schema) *table.Schema {
			next, err := do(s)
			if err != nil {
				t.Fatal(err)
			}
			return next
		})
	}
	edit(func(s *table.Schema) (*table.Schema, error) { return s.DropFamily("f") })
	if err := setF(ctx, c); !errors.Is(err, table.ErrNoFamily) {
		t.Errorf("write to a dropped family: %v, want %v", err, table.ErrNoFamily)
	}
	if row, err := c.Table("t").Get(ctx, "r"); row != nil || err != nil {
		t.Errorf("read of a dropped family: %v, %v", row, err)
	}
	edit(func(s *table.Schema) (*table.Schema, error) { return s.Apply(familyF(t)) })
	if row, err := c.Table("t").Get(ctx, "r"); row != nil || err != nil {
		t.Errorf("read of a family that was added again: %v, %v", row, err)
	}
	if err := setF(ctx, c); err != nil {
		t.Errorf("write to a family that was added again: %v", err)
	}
	if err := n.tabletServer.Users().Compact(ctx, "t", true); err != nil {
		t.Fatal(err)
	}
	if row, err := c.Table("t").Get(ctx, "r"); row == nil || err != nil {
		t.Errorf("acknowledged write to a family that was added again: %v, %v", row, err)
	}
}
