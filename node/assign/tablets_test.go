package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/metarows/metarowstest"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/raftmeta/session/sessiontest"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the tablet server of METADATA's tablets.
const server = "n1.1"

// cluster is a lock service and METADATA, whose tablets are served, and access of a candidate for master to them.
type cluster struct {
	*Tablets
	rows *metarowstest.Rows
	t    *testing.T
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	meta := &namespace.Access{Client: sessiontest.NewClient(t)}
	if err := meta.Open(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { meta.Close(context.Background(), log) })
	rows := metarowstest.New(t)
	c := &cluster{rows: rows, t: t, Tablets: New(Config{
		Ctx: t.Context(), Background: &sync.WaitGroup{}, Log: log, Catalog: &namespace.Catalog{Meta: meta}, Meta: meta,
		Metadata: metarows.NewTable(meta, func() metaapi.SetOptions { return metaapi.SetOptions{} }, rows.Table()),
		Members:  func() []blobfs.Member { return []blobfs.Member{{ID: "n2", Draining: true}} },
	})}
	c.alive = map[string]bool{server: true}
	c.begin()
	return c
}

// begin creates METADATA's own tablets, on server.
func (c *cluster) begin() {
	c.t.Helper()
	ctx := c.t.Context()
	if err := c.Begin(ctx); err != nil {
		c.t.Fatal(err)
	}
	root, err := c.Metadata.Root(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	root.Server = server
	if err := c.Metadata.Replace(ctx, root, ""); err != nil {
		c.t.Fatal(err)
	}
	if _, whole, err := c.Rows(ctx); err != nil || whole { // creates the first tablet
		c.t.Fatal(whole, err)
	}
	c.assign(metadata.TableID, "", server)
}

// assign assigns a tablet to a server.
func (c *cluster) assign(tableID uint64, end, to string) {
	c.t.Helper()
	r, err := c.Metadata.Get(c.t.Context(), tableID, []byte(end))
	if err == nil {
		r.Server = to
		err = c.Metadata.Replace(c.t.Context(), r, "")
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// round reads all rows as the master does in a round, and returns them.
func (c *cluster) round() []master.Tablet {
	c.t.Helper()
	all, whole, err := c.Rows(c.t.Context())
	if err != nil || !whole {
		c.t.Fatalf("the rows are whole: %v, %v", whole, err)
	}
	return all
}

// addTable adds a table whose first tablets end at these rows.
func (c *cluster) addTable(name string, splits ...string) *table.Schema {
	c.t.Helper()
	ctx := c.t.Context()
	id, err := c.Catalog.NextIDs(ctx, uint64(len(splits))+2)
	if err != nil {
		c.t.Fatal(err)
	}
	s := table.NewSchema(name, id)
	var points *namespace.SplitPoints
	if len(splits) > 0 {
		points = &namespace.SplitPoints{First: id + 1}
		for _, row := range splits {
			points.Ends = append(points.Ends, []byte(row))
		}
	}
	if err := c.Catalog.SaveTable(ctx, s, points, 0); err != nil {
		c.t.Fatal(err)
	}
	return s
}

// drop removes a table.
func (c *cluster) drop(name string) {
	c.t.Helper()
	if err := c.Catalog.Remove(c.t.Context(), namespace.TablePath(name), metaapi.AnyGeneration); err != nil {
		c.t.Fatal(err)
	}
}

// addRow adds the row of a tablet.
func (c *cluster) addRow(id, tableID uint64, start, end string) *metadata.Row {
	c.t.Helper()
	r := metarowstest.Row(id, tableID, start, end)
	if err := c.Metadata.Create(c.t.Context(), r, ""); err != nil {
		c.t.Fatal(err)
	}
	return r
}

// ends returns the ends of a table's tablets that have rows.
func (c *cluster) ends(tableID uint64) (all []string) {
	c.t.Helper()
	for _, key := range c.rows.Keys() {
		if id, end, err := metadata.ParseKey([]byte(key)); err == nil && id == tableID {
			all = append(all, string(end))
		}
	}
	return all
}

// split reports whether a table still has split points.
func (c *cluster) split(name string) bool {
	c.t.Helper()
	_, points, _, err := namespace.ReadTable(c.t.Context(), c.Meta, name)
	if err != nil {
		c.t.Fatal(err)
	}
	return points != nil
}

// TestBegin: the first master of a cluster creates the root tablet, and METADATA's first tablet when the root tablet is served. Others
// find them.
func TestBegin(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	root, err := c.Metadata.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Begin(t.Context()); err != nil {
		t.Errorf("begun again: %v", err)
	}
	if now, err := c.Metadata.Root(t.Context()); err != nil || now.Generation != root.Generation {
		t.Errorf("the root tablet is written again: %+v, %v", now, err)
	}
	all := c.round()
	if len(all) != 2 || all[0].Key != master.RootKey || all[0].Server != server || !all[1].OfMetadata() {
		t.Errorf("tablets: %+v", all)
	}
	r, err := c.Metadata.Get(t.Context(), metadata.TableID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := tablet.DecodeMeta(r.Meta); err != nil || m.ID != metadata.FirstTabletID || string(m.Start) != string(metadata.RootEnd()) || len(m.End) != 0 {
		t.Errorf("METADATA's first tablet: %+v, %v", m, err)
	}
}

// TestLevels: rows whose tablet of METADATA is not served are not read, and the round then is not whole.
func TestLevels(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addTable("t")
	c.round()
	if all := c.round(); len(all) != 3 || all[2].Table != "t" {
		t.Errorf("all are served: %+v", all)
	}
	c.assign(metadata.TableID, "", "n9.9")
	if all, whole, err := c.Rows(t.Context()); len(all) != 2 || whole || err != nil {
		t.Errorf("METADATA's first tablet is not served: %+v, whole %v, %v", all, whole, err)
	}
	c.alive = nil
	if all, whole, err := c.Rows(t.Context()); len(all) != 1 || whole || err != nil {
		t.Errorf("the root tablet is not served: %+v, whole %v, %v", all, whole, err)
	}
	c.alive = map[string]bool{server: true}
	c.rows.Before(func(method, _ string) error {
		if method == api.MethodScanOpen {
			return api.ErrNotServing
		}
		return nil
	})
	if all, whole, err := c.Rows(t.Context()); len(all) != 1 || whole || err != nil {
		t.Errorf("rows cannot be read: %+v, whole %v, %v", all, whole, err)
	}
}

// TestNewTables: a round creates the missing rows of new tables' tablets, that of the last tablet last, and the next one removes the split
// points, once all rows are there.
func TestNewTables(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	plain, split := c.addTable("plain"), c.addTable("split", "c", "f", "i")
	c.addRow(split.ID+2, split.ID, "c", "f") // by an earlier master
	var order []string
	var mu sync.Mutex
	c.rows.After(func(method, key string) error {
		if id, end, err := metadata.ParseKey([]byte(key)); method == api.MethodCheckAndMutate && err == nil && id == split.ID {
			mu.Lock()
			order = append(order, string(end))
			mu.Unlock()
		}
		return nil
	})
	c.round()
	c.rows.After(nil)
	if got := c.ends(plain.ID); !slices.Equal(got, []string{""}) {
		t.Errorf("tablets of a table without split points: %q", got)
	}
	if got := c.ends(split.ID); !slices.Equal(got, []string{"c", "f", "i", ""}) || len(order) != 3 || order[2] != "" || !c.split("split") {
		t.Errorf("tablets: %q, created in the order %q", got, order)
	}
	for i, end := range []string{"c", "f", "i", ""} {
		r, err := c.Metadata.Get(t.Context(), split.ID, []byte(end))
		if err != nil {
			t.Fatal(err)
		}
		m, err := tablet.DecodeMeta(r.Meta)
		if err != nil || m.ID != split.ID+1+uint64(i) || m.Table != split.ID || string(m.Start) != []string{"", "c", "f", "i"}[i] || string(m.End) != end || r.Server != "" {
			t.Errorf("tablet %d: %+v, %v", i, m, err)
		}
	}
	c.round()
	if c.split("split") {
		t.Error("split points are left")
	}
	before := c.rows.Changes()
	c.round()
	if n := c.rows.Changes() - before; n != 0 {
		t.Errorf("%d changes in a round with nothing to do", n)
	}
}

// TestInterruptedCreation: a creation that fails halfway is completed by the next round, by the same or another master, with the same tablets.
// A row that another master has created meanwhile is no error.
func TestInterruptedCreation(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.addTable("t", "c", "f")
	c.rows.Before(func(method, key string) error {
		if id, end, err := metadata.ParseKey([]byte(key)); method == api.MethodCheckAndMutate && err == nil && id == s.ID && string(end) == "f" {
			return api.ErrDiskFull
		}
		return nil
	})
	c.round()
	if got := c.ends(s.ID); slices.Contains(got, "") || slices.Contains(got, "f") {
		t.Errorf("tablets after a failure: %q", got)
	}
	c.rows.Before(func(method, key string) error { // another master is faster
		if id, _, err := metadata.ParseKey([]byte(key)); method == api.MethodCheckAndMutate && err == nil && id == s.ID {
			c.rows.Before(nil)
			return errors.Join(c.Tablets.CreateFirstTablet(t.Context(), &namespace.SplitPoints{First: s.ID + 1, Ends: [][]byte{[]byte("c"), []byte("f")}}, s.ID, 1))
		}
		return nil
	})
	c.round()
	if got := c.ends(s.ID); !slices.Equal(got, []string{"c", "f", ""}) {
		t.Errorf("tablets: %q", got)
	}
	other := New(c.Config)
	other.alive = c.alive
	if _, whole, err := other.Rows(t.Context()); err != nil || !whole || c.split("t") {
		t.Errorf("another master: whole %v, %v; split points are left: %v", whole, err, c.split("t"))
	}
}

// TestDroppedTables (A1): rows of dropped tables are removed, and those of others stay. A row whose table was created after the tables were
// listed cannot have been read before.
func TestDroppedTables(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	kept, dropped := c.addTable("kept"), c.addTable("dropped", "c", "f")
	c.round()
	c.drop("dropped")
	again := c.addTable("dropped", "x")
	c.round()
	c.round()
	for id, want := range map[uint64][]string{kept.ID: {""}, dropped.ID: nil, again.ID: {"x", ""}} {
		if got := c.ends(id); !slices.Equal(got, want) {
			t.Errorf("table %d has tablets %q, want %q", id, got, want)
		}
	}
	// The rows were read, and then a table is created, of which they have nothing.
	level, ok := c.level(t.Context(), string(metadata.RootEnd())+"\x00", "")
	if !ok {
		t.Fatal("rows cannot be read")
	}
	late := c.addTable("late")
	c.addRow(9000, late.ID, "", "")
	if err := c.reconcile(t.Context(), level, map[uint64]string{kept.ID: "kept", again.ID: "dropped"}); err != nil {
		t.Error(err)
	}
	if got := c.ends(late.ID); !slices.Equal(got, []string{""}) {
		t.Errorf("a table that is newer than the lists has tablets %q", got)
	}
}

// TestRowChangesMeanwhile: a row of a dropped table that has changed, or is gone, since it was read is left to the next round.
func TestRowChangesMeanwhile(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := c.addRow(9000, 8000, "", "")
	c.rows.Before(func(method, key string) error {
		if method == api.MethodCheckAndMutate && key == string(r.Key()) {
			c.rows.Before(nil)
			next := *r
			next.Server = "n2.5"
			return c.Metadata.Replace(t.Context(), &next, "")
		}
		return nil
	})
	s := c.addTable("t")
	c.round()
	if got := c.ends(8000); len(got) != 1 {
		t.Errorf("a changed row was removed: %q", got)
	}
	if got := c.ends(s.ID); len(got) != 1 {
		t.Errorf("the same round creates %q of a new table", got)
	}
	c.round()
	if got := c.ends(8000); len(got) != 0 {
		t.Errorf("the next round leaves %q", got)
	}
}

// damage is a kind of damage of the row to f of the table 8000, which has no schema.
type damage struct {
	plant func(c *cluster, key []byte)
	kept  bool
}

// TestDamagedRows (A2): a damaged row of a dropped table is removed, unless it describes a tablet of an existing table that has no other
// row, or its generation cannot be read. A damaged row of an existing table stays, and is reported.
func TestDamagedRows(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	kept := c.addTable("kept", "m")
	c.round()
	describe := func(tableID uint64, end string) []byte {
		return tablet.EncodeMeta(&tablet.Meta{ID: 9999, Table: tableID, End: []byte(end)})
	}
	meta := func(b []byte) func(*cluster, []byte) {
		return func(c *cluster, key []byte) { c.rows.Plant(key, "files", "meta", b) }
	}
	for name, d := range map[string]damage{
		"unreadable contents":                     {meta([]byte{0xc1}), false},
		"a tablet of another dropped table":       {meta(describe(7000, "f")), false},
		"a tablet of its own table":               {meta(describe(8000, "g")), false},
		"a tablet with a row of its own":          {meta(describe(kept.ID, "m")), false},
		"a tablet without a row of its own":       {meta(describe(kept.ID, "x")), true},
		"a tablet of METADATA":                    {meta(describe(metadata.TableID, "x")), true},
		"METADATA's first tablet, which has one":  {meta(describe(metadata.TableID, "")), false},
		"a split of a tablet without a row":       {func(c *cluster, key []byte) { c.rows.Plant(key, "files", "split", describe(kept.ID, "x")) }, true},
		"no generation":                           {func(c *cluster, key []byte) { c.rows.Drop(key, "loc", "generation") }, true},
		"an unreadable generation":                {func(c *cluster, key []byte) { c.rows.Plant(key, "loc", "generation", []byte("x")) }, true},
		"unreadable recoveries, which are places": {func(c *cluster, key []byte) { c.rows.Plant(key, "log", "recoveries", []byte{0xc1}) }, true},
	} {
		r := c.addRow(9000, 8000, "", "f")
		c.assign(8000, "f", "n2.1") // without a generation and a server it would have no location to be read
		d.plant(c, r.Key())
		c.round()
		if got := c.ends(8000); (len(got) == 1) != d.kept {
			t.Errorf("%s: the row is left: %v, want %v", name, len(got) == 1, d.kept)
		}
		if d.kept { // it is reported in the next round
			all := c.round()
			i := slices.IndexFunc(all, func(x master.Tablet) bool { return x.Key == string(r.Key()) })
			if i < 0 || all[i].Damaged == nil || all[i].Server != "" {
				t.Errorf("%s: the master sees %+v", name, all)
			}
		}
		c.rows.Wipe(r.Key())
	}
	r, err := c.Metadata.Get(t.Context(), kept.ID, []byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	c.rows.Plant(r.Key(), "loc", "server", []byte{0xc1})
	c.rows.Plant([]byte("short"), "loc", "generation", []byte("12345678"))
	damaged, later := 0, c.addTable("later")
	for _, x := range c.round() {
		if x.Damaged != nil {
			damaged++
		}
	}
	if got := c.ends(kept.ID); damaged != 2 || len(got) != 2 {
		t.Errorf("%d rows are reported, want that of an existing table, and the one of no table; left are %q", damaged, got)
	}
	if got := c.ends(later.ID); len(got) != 1 {
		t.Errorf("the same round creates %q of a new table", got)
	}
}

// TestRefused: a row that turns out to be unreadable when a server rejects an order is reported until it changes. A server's other
// errors, and its corrupt files, damage no row.
func TestRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.addTable("t")
	c.round()
	all := c.round()
	x := &all[len(all)-1]
	key := []byte(x.Key)
	reported := func() error {
		for _, x := range c.round() {
			if x.Key == string(key) {
				return x.Damaged
			}
		}
		return errors.New("no row")
	}
	corrupt := api.ToRPC(api.ErrCorrupt)
	for _, err := range []error{nil, api.ErrUnavailable, corrupt} {
		if got := c.refused(t.Context(), err, x); got != err || reported() != nil {
			t.Errorf("%v of a good row: %v, reported %v", err, got, reported())
		}
	}
	c.rows.Plant(key, "files", "meta", []byte{0xc1})
	if err := c.refused(t.Context(), api.ErrUnavailable, x); err == nil || reported() != nil {
		t.Errorf("another error of a damaged row: reported %v", reported())
	}
	if err := c.refused(t.Context(), corrupt, &master.Tablet{Key: master.RootKey}, x); !errors.Is(err, api.CodeCorrupt) || reported() == nil {
		t.Errorf("a damaged row: %v, reported %v", err, reported())
	}
	c.rows.Plant(key, "files", "meta", metarowstest.Row(s.ID+1, s.ID, "", "").Meta)
	c.assign(s.ID, "", "n2.1")
	if err := reported(); err != nil {
		t.Errorf("a repaired row: %v", err)
	}
	conflict := &master.Tablet{Key: string(key)}
	if err := overtaken(c.refused(t.Context(), api.ToRPC(api.ErrConflict), conflict)); !errors.Is(err, master.ErrOvertaken) {
		t.Errorf("a conflict: %v", err)
	}
}

// TestServers: the tablet servers are the nodes that hold the lock of their file, each with the server of METADATA's tablets.
func TestServers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.AddressOf = func(node string) (string, bool) { return node + ":1", true }
	if all, err := c.lockHolders(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("without nodes: %+v, %v", all, err)
	}
	for _, id := range []string{"n1", "n2", "n3"} {
		path := namespace.ServersDir + "/" + id
		if _, err := c.Meta.Set(t.Context(), path, nil, 0); err != nil {
			t.Fatal(err)
		}
		if id == "n3" { // which is down
			continue
		}
		lock, err := c.Meta.Current().Acquire(t.Context(), path, metaapi.Exclusive, session.LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Release(context.Background()) }()
	}
	all, err := c.lockHolders(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("servers: %+v, %v", all, err)
	}
	for i, v := range all {
		id := fmt.Sprintf("n%d", i+1)
		if v.Node != id || namespace.NodeOf(v.Name) != id || v.Addr != id+":1" || v.Draining != (id == "n2") {
			t.Errorf("server %d: %+v", i, v)
		}
	}
	v := all[0]
	v.Has = []master.Held{{Key: master.RootKey}, {Key: master.KeyOf(metadata.TableID, nil)}, {Key: master.KeyOf(500, nil)}}
	parts := both(v)
	if len(parts) != 2 || !parts[0].Metadata || parts[1].Metadata || len(parts[0].Has) != 2 || len(parts[1].Has) != 1 || parts[0].Name != namespace.MetadataServer(v.Name) || parts[1].Name != v.Name {
		t.Errorf("the node's two servers: %+v", parts)
	}
}

// TestRecoveries: the logs of dead servers are listed with those that are sorted, and a recovery is saved by compare-and-set.
func TestRecoveries(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ctx := t.Context()
	if logs, recovered, err := c.Logs(ctx); err != nil || len(logs) != 0 || len(recovered) != 0 {
		t.Errorf("none: %q, %v, %v", logs, recovered, err)
	}
	for _, dead := range []string{"n2.5", "n3.6"} {
		if _, err := c.Meta.Set(ctx, namespace.LogsDir+"/"+dead+"/0", nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if r, gen, err := c.Recovery(ctx, "n2.5"); r != nil || gen != 0 || err != nil {
		t.Errorf("a recovery that has not begun: %+v, %d, %v", r, gen, err)
	}
	begun := &master.Recovery{Server: "n2.5", Pieces: []master.Piece{{Log: blobfs.ID{1}, End: 10}}}
	gen, err := c.SaveRecovery(ctx, begun, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SaveRecovery(ctx, begun, 0); !errors.Is(err, metaapi.ErrGeneration) {
		t.Errorf("saved by another master: %v", err)
	}
	logs, recovered, err := c.Logs(ctx)
	if err != nil || !slices.Equal(logs, []string{"n2.5", "n3.6"}) || recovered["n2.5"] {
		t.Errorf("a recovery in progress: %q, %v, %v", logs, recovered, err)
	}
	if r, at, err := c.Recovery(ctx, "n2.5"); err != nil || at != gen || r.Server != "n2.5" || len(r.Pieces) != 1 || r.Done() {
		t.Errorf("the recovery is %+v at %d, %v", r, at, err)
	}
	if _, err := c.SaveRecovery(ctx, &master.Recovery{Server: "n2.5"}, gen); err != nil { // it had nothing to sort
		t.Fatal(err)
	}
	for range 2 { // the second time from memory
		if _, recovered, err := c.Logs(ctx); err != nil || !recovered["n2.5"] || recovered["n3.6"] {
			t.Errorf("a recovery that is done: %v, %v", recovered, err)
		}
	}
	if _, err := c.Meta.Set(ctx, namespace.RecoveryPath("n3.6"), []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Logs(ctx); err == nil {
		t.Error("a damaged recovery is read")
	}
}
