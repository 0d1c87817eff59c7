package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// serveTablet has a node serve a tablet that METADATA does not tell of.
func serveTablet(t *testing.T, n *Node, s *table.Schema, id uint64, start, end []byte) {
	t.Helper()
	m := &tablet.Meta{ID: id, Table: s.ID, Start: start, End: end, LastMajor: time.Now()}
	if err := n.tablets.AddTablet(context.Background(), tablet.Load{Meta: m, Schema: s}); err != nil {
		t.Fatal(err)
	}
}

// Two nodes share METADATA and a table. They know nothing of each other: it is the client
// that finds its way.
func TestClientFindsTabletsOfTwoNodes(t *testing.T) {
	ctx := context.Background()
	a, _ := oneNode(t)
	b, _ := oneNode(t)
	meta := metadata.Schema()
	serveTablet(t, a, meta, 901, nil, metadata.RootEnd())
	serveTablet(t, b, meta, 902, metadata.RootEnd(), nil)
	root := &metadata.Row{Table: metadata.TableID, End: metadata.RootEnd(), Server: "a.1", Addr: a.RPCAddr()}
	if _, err := a.meta.Set(ctx, metadata.RootPath, metadata.EncodeRoot(root), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	s, err := table.NewSchema("web", 99).Apply(table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.catalog.saveSchema(ctx, s, 0); err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(ctx, a.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create := func(r *metadata.Row) {
		t.Helper()
		change := metadata.Create(r, "created")
		m := client.NewRowMutation(string(change.Key)).Add(change.Else...)
		matched, err := c.Table(metadata.Name).CheckAndMutate(ctx, string(change.Key), change.Predicate, nil, m)
		if err != nil || !change.Matched(matched) {
			t.Fatalf("make the row %q of METADATA: %v, %v", change.Key, matched, err)
		}
	}
	create(&metadata.Row{Table: metadata.TableID, Generation: 1, Server: "b.1", Addr: b.RPCAddr(), Meta: []byte{1}})
	var from []byte
	for i, end := range []string{"r019", "r039", "r059", ""} { // a, b, b, a
		n := []*Node{a, b, b, a}[i]
		r := &metadata.Row{Table: s.ID, Generation: 1, Server: fmt.Sprintf("%s.1", n.id()), Addr: n.RPCAddr(), Meta: []byte{1}}
		if end != "" {
			r.End = []byte(end)
		}
		create(r)
		serveTablet(t, n, s, uint64(910+i), from, r.End)
		from = r.End
	}
	tb := c.Table("web")
	var ms []*client.RowMutation
	var rows []string
	for i := range 80 {
		rows = append(rows, fmt.Sprintf("r%03d", i))
		ms = append(ms, client.NewRowMutation(rows[i]).Set("f:q", []byte(rows[i])))
	}
	if err := tb.ApplyAll(ctx, ms); err != nil {
		t.Fatal(err)
	}
	found, err := tb.GetAll(ctx, rows)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range found {
		if row == nil || string(row.Key) != rows[i] {
			t.Errorf("row %s is %v", rows[i], row)
		}
	}
	for _, batch := range []int{7, 20, 1000} {
		var scanned []string
		for row, err := range tb.Scan(ctx, client.BatchRows(batch)).Rows() {
			if err != nil {
				t.Fatal(err)
			}
			scanned = append(scanned, string(row.Key))
		}
		if !slices.Equal(scanned, rows) {
			t.Errorf("scan by %d has %d rows: %q", batch, len(scanned), scanned)
		}
	}
	if n, err := tb.Increment(ctx, "r045", "f:n", 3); n != 3 || err != nil {
		t.Errorf("increment %d, %v", n, err)
	}
	samples, err := tb.SampleRowKeys(ctx)
	var keys []string
	for _, s := range samples {
		keys = append(keys, string(s.Key))
	}
	if err != nil || !slices.Equal(keys, []string{"r019", "r039", "r059", ""}) {
		t.Errorf("samples %q, %v", keys, err)
	}
	if stats := c.Stats(); stats.RoundTrips > 12 {
		t.Errorf("%+v", stats)
	}
}
