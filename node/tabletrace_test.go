package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/tablet"
)

// servedTable makes a table, waits until a row of it is written, and returns its tablet's row of METADATA.
func servedTable(ctx context.Context, t *testing.T, n *Node, c *client.Client) *metadata.Row {
	t.Helper()
	schema, err := c.Tables().Create(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	for {
		row, err := n.rows.Get(ctx, schema.ID, nil)
		if err == nil && n.server.Load().has(row) {
			return row
		}
		if ctx.Err() != nil {
			t.Fatalf("the table is not served: %v", err)
		}
		timing.Sleep(ctx, 10*time.Millisecond)
	}
}

// TestUnloadAndLoadTakeTurns: a tablet that is being loaded is not unloaded, nor the other way round: the order
// of a master whose time is over would take a tablet out of METADATA that is served (I4).
func TestUnloadAndLoadTakeTurns(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	row := servedTable(ctx, t, n, c)
	s := n.server.Load()
	if !s.begin(row.Key()) {
		t.Fatal("the tablet is not idle")
	}
	_, unloadErr := s.unload(ctx, row.Key())
	for name, err := range map[string]error{"unload": unloadErr, "load": s.load(ctx, row.Key(), row.Generation)} {
		if !errors.Is(err, errBusyTablet) {
			t.Errorf("%s meanwhile: %v", name, err)
		}
	}
	s.end(row.Key())
	if now, err := n.rows.Get(ctx, row.Table, row.End); err != nil || now.Server != s.name || !s.has(row) {
		t.Errorf("the tablet's server is %+v, %v", now, err)
	}
}

// TestUnloadByADeadServer: a server that has lost its lock takes no tablet out of METADATA: it has closed them, and what
// they had in memory is in its log only (I1).
func TestUnloadByADeadServer(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	whole := servedTable(ctx, t, n, c)
	dead := n.server.Load()
	if err := n.meta.Current().Close(ctx); err != nil {
		t.Fatal(err)
	}
	<-dead.lock.Done()
	for { // until METADATA is served by the next one
		if row, err := n.rows.Get(ctx, whole.Table, whole.End); err == nil && row.Server == n.server.Load().name {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("the table is not served again: %v", err)
		}
		timing.Sleep(ctx, 10*time.Millisecond)
	}
	n.stopMaster(ctx)
	m := tablet.Meta{ID: 1000, Table: whole.Table, End: []byte("g"), LastMajor: time.Now()}
	row := &metadata.Row{
		Table: m.Table, End: m.End, Generation: metadata.FirstGeneration(m.ID), Server: dead.name, Addr: n.RPCAddr(), Meta: tablet.EncodeMeta(&m),
	}
	if err := n.rows.Create(ctx, row, "made"); err != nil {
		t.Fatal(err)
	}
	if _, err := dead.unload(ctx, row.Key()); !errors.Is(err, errLeaseEnded) {
		t.Errorf("it unloads a tablet: %v", err)
	}
	if now, err := n.rows.Get(ctx, row.Table, row.End); err != nil || now.Server != dead.name {
		t.Errorf("the tablet's row is %+v, %v", now, err)
	}
}

// TestMergeCutInTwo: a server that was stopped between the two steps of a merge does not take the second step after another server has loaded the upper tablet
// without the lower one: its rows would be in no tablet (I1, I5).
func TestMergeCutInTwo(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	whole := servedTable(ctx, t, n, c)
	n.stopMaster(ctx)
	const dead = "n0.1"
	r := master.Recovery{Server: dead}
	if _, err := n.catalog.Set(ctx, namespace.RecoveryPath(dead), master.EncodeRecovery(&r), 0); err != nil {
		t.Fatal(err)
	}
	// The first step is made: the upper one has the rows of both.
	var rows [2]*metadata.Row
	for i, end := range []string{"g", "m"} {
		m := tablet.Meta{ID: uint64(1000 + i), Table: whole.Table, End: []byte(end), LastMajor: time.Now()}
		rows[i] = &metadata.Row{
			Table: whole.Table, End: m.End, Generation: metadata.FirstGeneration(m.ID), Server: dead, Addr: "127.0.0.1:1", Meta: tablet.EncodeMeta(&m),
		}
		if err := n.rows.Create(ctx, rows[i], "made"); err != nil {
			t.Fatal(err)
		}
	}
	s := n.server.Load()
	upper := *rows[1]
	if err := s.take(ctx, &upper, false); err != nil {
		t.Fatal(err)
	}
	l, err := s.prepare(ctx, &upper)
	if err != nil || string(l.Meta.Start) != "g" {
		t.Fatalf("the upper one is loaded from %+v, %v", l, err)
	}
	if err := n.rows.Remove(ctx, rows[0]); !errors.Is(err, metarows.ErrChanged) {
		t.Errorf("the second step is taken after that: %v", err)
	}
	if _, err := n.rows.Get(ctx, whole.Table, []byte("g")); err != nil {
		t.Errorf("the lower one: %v", err)
	}
}
