package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// sharedIDs makes table t with tablets to "m" and to its last row, and table u likewise after /ids went back, as a lock service
// recovered from a lagging voter could have it. The last tablet of t and the first of u have the same id.
func sharedIDs(ctx context.Context, t *testing.T, n *Node, c *client.Client) (last, first *metadata.Row) {
	t.Helper()
	schemaT := makeTable(ctx, t, c, "m")
	if _, err := n.catalog.Meta.Set(ctx, namespace.IDsPath, binary.BigEndian.AppendUint64(nil, schemaT.ID+1), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	schemaU, err := c.Tables().CreateSplit(ctx, "u", []string{"m"}, familyF(t))
	if err != nil {
		t.Fatal(err)
	}
	if last, err = n.rows.Get(ctx, schemaT.ID, nil); err != nil {
		t.Fatal(err)
	}
	if first, err = n.rows.Get(ctx, schemaU.ID, []byte("m")); err != nil {
		t.Fatal(err)
	}
	if a, b := metaOf(t, last), metaOf(t, first); a.ID != b.ID || a.Table == b.Table {
		t.Fatalf("tablets %d of table %d and %d of table %d do not share an id", a.ID, a.Table, b.ID, b.Table)
	}
	return last, first
}

func metaOf(t *testing.T, row *metadata.Row) *tablet.Meta {
	t.Helper()
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// written are the rows of both tables, with their values.
type written map[string]map[string]string

// write writes rows of both tables that the tablets with the same id hold.
func (w written) write(ctx context.Context, t *testing.T, c *client.Client, value string) {
	t.Helper()
	for name, prefix := range map[string]string{"t": "t", "u": "b"} {
		if w[name] == nil {
			w[name] = map[string]string{}
		}
		for i := range 20 {
			row := fmt.Sprintf("%s%02d", prefix, i)
			v := fmt.Sprintf("%s of %s, %s", row, name, value)
			if err := c.Table(name).Apply(ctx, client.NewRowMutation(row).Set("f:q", []byte(v))); err != nil {
				t.Fatalf("write %s of %s: %v", row, name, err)
			}
			w[name][row] = v
		}
	}
}

// check reads all rows of both tables.
func (w written) check(ctx context.Context, t *testing.T, c *client.Client, when string) {
	t.Helper()
	for name, rows := range w {
		got := map[string]string{}
		s := c.Table(name).Scan(ctx, client.Filter(table.CellsPerColumnLimit(1)))
		for s.Next() {
			got[string(s.Row().Key)] = string(s.Row().Cells[0].Value)
		}
		err := s.Err()
		s.Close()
		if err != nil {
			t.Fatalf("%s: scan of %s: %v", when, name, err)
		}
		for row, v := range rows {
			if got[row] != v {
				t.Errorf("%s: row %s of %s is %q, want %q", when, row, name, got[row], v)
			}
		}
		if len(got) != len(rows) {
			t.Errorf("%s: %d rows of %s, want %d", when, len(got), name, len(rows))
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// checkRows checks that each row of METADATA describes the tablet that its key names, and returns the ends of both tables.
func checkRows(ctx context.Context, t *testing.T, n *Node, when string, tables ...uint64) (ends []string) {
	t.Helper()
	files := map[string]uint64{}
	for _, id := range tables {
		if err := n.rows.Tablets(ctx, id, func(r *metadata.Row) error {
			m := metaOf(t, r)
			if m.Table != r.Table || !bytes.Equal(m.End, r.End) {
				t.Errorf("%s: the row of table %d to %q describes a tablet of table %d to %q", when, r.Table, r.End, m.Table, m.End)
			}
			for _, g := range m.Groups {
				for _, f := range g.Files {
					if other := files[f.Handle.ID.String()]; other != 0 && other != r.Table {
						t.Errorf("%s: tables %d and %d name the same file", when, other, r.Table)
					}
					files[f.Handle.ID.String()] = r.Table
				}
			}
			ends = append(ends, fmt.Sprintf("%d to %q", slices.Index(tables, r.Table), r.End))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return ends
}

// TestTabletsWithTheSameID: tablets of different tables that have the same id are loaded, written, compacted, split, merged, unloaded and
// recovered each for itself, and neither changes the row of the other (I1, I5).
func TestTabletsWithTheSameID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n, c, closeAll := openFolder(t, dir)
	defer func() { closeAll() }()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	last, first := sharedIDs(ctx, t, n, c)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	data := written{}
	for i, round := range []string{"once", "again"} {
		data.write(ctx, t, c, round)
		for name, row := range map[string]string{"t": "t00", "u": "b00"} {
			must(c.Tables().Compact(ctx, name, i > 0))
			must(c.Tablets().Compact(ctx, name, client.TabletRef{Row: row}, true))
		}
		data.check(ctx, t, c, "compacted "+round)
		checkRows(ctx, t, n, "compacted "+round, last.Table, first.Table)
		for _, r := range []*metadata.Row{last, first} {
			now, err := n.rows.Get(ctx, r.Table, r.End)
			must(err)
			if m := metaOf(t, now); len(m.Groups) == 0 || len(m.Groups[0].Files) != 1 {
				t.Fatalf("compacted %s: the row of table %d names the files %+v, want one", round, r.Table, m.Groups)
			}
		}
	}
	for name, at := range map[string]string{"t": "t09", "u": "b09"} {
		_, err := c.Tablets().Split(ctx, name, at)
		must(err)
		data.write(ctx, t, c, "after a split of "+name)
		data.check(ctx, t, c, "after a split of "+name)
		checkRows(ctx, t, n, "after a split of "+name, last.Table, first.Table)
	}
	n.stopMaster(ctx)
	s := n.tabletServer.Current()
	for _, r := range []*metadata.Row{last, first} {
		generation, err := s.Unload(ctx, r.Key())
		must(err)
		for _, other := range []*metadata.Row{last, first} {
			if is := s.Has(other); is != (other != r) {
				t.Fatalf("the tablet of table %d was unloaded: that of table %d is served: %v", r.Table, other.Table, is)
			}
		}
		now, err := n.rows.Get(ctx, r.Table, r.End)
		must(err)
		if !now.Unassigned() || now.Generation != generation {
			t.Errorf("the row of the unloaded tablet: %+v, want generation %d", now, generation)
		}
		must(s.Load(ctx, r.Key(), generation))
		data.check(ctx, t, c, "unloaded and loaded")
		data.write(ctx, t, c, fmt.Sprint("loaded again ", r.Table))
		must(s.Users.Compact(ctx, "t", false))
		must(s.Users.Compact(ctx, "u", false))
		checkRows(ctx, t, n, "loaded again", last.Table, first.Table)
	}
	must(s.Merge(ctx, metadata.Key(nil, first.Table, []byte("b09")), first.Key()))
	data.check(ctx, t, c, "merged")
	want := []string{`0 to "m"`, `0 to "t09"`, `0 to ""`, `1 to "m"`, `1 to ""`}
	if got := checkRows(ctx, t, n, "merged", last.Table, first.Table); !slices.Equal(got, want) {
		t.Errorf("METADATA has tablets %q, want %q", got, want)
	}
	data.write(ctx, t, c, "in the log only")
	closeAll()
	n, c, closeAll = openFolder(t, dir)
	data.check(ctx, t, c, "after a restart")
	checkRows(ctx, t, n, "after a restart", last.Table, first.Table)
}

// openFolder starts a node on a data folder, and returns what closes it.
func openFolder(t *testing.T, dir string) (*Node, *client.Client, func()) {
	t.Helper()
	ctx := context.Background()
	n, err := Start(ctx, Config{DataDirs: []string{dir}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return n, c, func() {
		c.Close()
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := n.Close(short); err != nil {
			t.Error(err)
		}
	}
}

// TestNumbersAfterManyRecoveries: when recoveries of the lock service have used nearly all ids, generations in METADATA are far above what a 64-bit float holds
// exactly. Changes of rows are still distinguished, and no id that clients get is that large.
func TestNumbersAfterManyRecoveries(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if _, err := n.catalog.Meta.Set(ctx, namespace.IDsPath, binary.BigEndian.AppendUint64(nil, metadata.EndID-8), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	schema := makeTable(ctx, t, c, "m")
	for _, row := range []string{"a", "z"} {
		if err := c.Table("t").Apply(ctx, client.NewRowMutation(row).Set("f:q", []byte(row))); err != nil {
			t.Fatal(err)
		}
	}
	split, err := c.Tablets().Split(ctx, "t", "q")
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Tables().Describe(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	ids := []uint64{schema.ID, info.Schema.ID, split.ID, split.Lower}
	for _, x := range info.Tablets {
		ids = append(ids, x.ID)
	}
	for _, id := range ids {
		if id > wire.SafeIntegerMax || id < metadata.EndID-8 {
			t.Errorf("id %d is given to clients", id)
		}
	}
	row, err := n.rows.Get(ctx, schema.ID, nil)
	if err != nil || row.Generation <= wire.SafeIntegerMax {
		t.Fatalf("the row: %+v, %v", row, err)
	}
	cells, err := c.Table(metadata.Name).Get(ctx, string(row.Key()), client.Filter(metadata.Locations()))
	if err != nil || len(cells.Cells) == 0 {
		t.Fatal(cells, err)
	}
	for _, x := range cells.Cells {
		if string(x.Qualifier) == "generation" && binary.BigEndian.Uint64(x.Value) != row.Generation {
			t.Errorf("a client reads generation %x, want the 8 bytes of %x", x.Value, row.Generation)
		}
	}
	for _, other := range []uint64{row.Generation - 1, row.Generation + 1} {
		stale := *row
		stale.Generation, stale.Server = other, "other.1"
		if err := n.rows.Replace(ctx, &stale, ""); !errors.Is(err, metarows.ErrChanged) {
			t.Errorf("change of generation %d at %d: %v", other, row.Generation, err)
		}
	}
	if _, err := n.tabletServer.Current().Unload(ctx, row.Key()); err != nil {
		t.Fatal(err)
	}
	n.commands.NudgeMaster(ctx)
	if got, err := c.Table("t").Get(ctx, "z"); err != nil || got == nil || string(got.Cells[0].Value) != "z" {
		t.Errorf("read what the master had loaded at such a generation: %+v, %v", got, err)
	}
}
