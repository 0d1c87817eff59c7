package namespace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/table"
)

// newSchema returns a schema of one family, f.
func newSchema(t *testing.T, id uint64, name string) *table.Schema {
	t.Helper()
	s, err := table.NewSchema(name, id).Apply(table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestIDsAreIssuedOnce (NS1): ids are consecutive, issued once to callers at the same time, and skipped after a recovery.
func TestIDsAreIssuedOnce(t *testing.T) {
	c, ctx := newCatalog(t)
	if id, err := c.NextIDs(ctx, 3); err != nil || id != metadata.FirstID {
		t.Errorf("the first id is %d, %v; want %d", id, err, metadata.FirstID)
	}
	const callers, of = 8, 5
	first := make([]uint64, callers)
	var all sync.WaitGroup
	for i := range first {
		all.Go(func() {
			var err error
			if first[i], err = c.NextIDs(ctx, of); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	slices.Sort(first)
	for i, id := range first {
		if want := metadata.FirstID + 3 + uint64(i*of); id != want {
			t.Errorf("the first id of caller %d is %d, want %d", i, id, want)
		}
	}
	next := metadata.FirstID + 3 + callers*of
	if err := c.SkipIDs(ctx); err != nil {
		t.Fatal(err)
	}
	if id, err := c.NextIDs(ctx, 1); err != nil || id != next+RecoveredIDs {
		t.Errorf("after a recovery: %d, %v; want %d", id, err, next+RecoveredIDs)
	}
	// All but one are used.
	if _, err := c.Meta.Set(ctx, IDsPath, binary.BigEndian.AppendUint64(nil, metadata.EndID-1), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NextIDs(ctx, 2); !errors.Is(err, errNoIDs) {
		t.Errorf("two ids of one: %v, want %v", err, errNoIDs)
	}
	if id, err := c.NextIDs(ctx, 1); err != nil || id != metadata.EndID-1 {
		t.Errorf("the last id: %d, %v; want %d", id, err, metadata.EndID-1)
	}
	if _, err := c.NextIDs(ctx, 1); !errors.Is(err, errNoIDs) {
		t.Errorf("one more: %v, want %v", err, errNoIDs)
	}
	if _, err := c.Meta.Set(ctx, IDsPath, []byte("1234567"), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	if id, err := c.NextIDs(ctx, 1); err == nil {
		t.Errorf("of a damaged file: %d", id)
	}
}

// TestTables (NS2): a table exists as soon as its schema has been saved, until the file is removed. Of two changes of one generation one
// is made.
func TestTables(t *testing.T) {
	m, ctx := openAccess(t)
	c := &Catalog{Meta: m}
	if names, err := c.Names(ctx); err != nil || len(names) != 0 {
		t.Errorf("tables of a new cluster: %v, %v", names, err)
	}
	if tables, err := m.Tables(ctx); err != nil || len(tables) != 0 {
		t.Errorf("tables of a new cluster by id: %v, %v", tables, err)
	}
	for _, name := range []string{"a", "../acl"} {
		if _, _, err := c.Schema(ctx, name); !errors.Is(err, api.ErrNoTable) {
			t.Errorf("table %q: %v, want %v", name, err, api.ErrNoTable)
		}
	}
	a, points := newSchema(t, 8, "a"), &SplitPoints{First: 9, Ends: [][]byte{[]byte("g"), []byte("n")}}
	if err := errors.Join(c.SaveTable(ctx, a, points, 0), c.SaveTable(ctx, newSchema(t, 7, "b"), nil, 0)); err != nil {
		t.Fatal(err)
	}
	if err := c.SaveTable(ctx, newSchema(t, 12, "a"), nil, 0); !errors.Is(err, api.ErrTableExists) {
		t.Errorf("a second table of that name: %v, want %v", err, api.ErrTableExists)
	}
	s, got, gen, err := ReadTable(ctx, m, "a")
	if err != nil || s.ID != 8 || got == nil || got.First != 9 || !slices.EqualFunc(got.Ends, points.Ends, bytes.Equal) || got.Tablets() != 3 {
		t.Fatalf("the table is %+v with split points %+v, %v", s, got, err)
	}
	if err := c.SaveTable(ctx, a, nil, gen); err != nil {
		t.Fatal(err)
	}
	if err := c.SaveTable(ctx, a, points, gen); !errors.Is(err, api.ErrConflict) {
		t.Errorf("a change of an earlier generation: %v, want %v", err, api.ErrConflict)
	}
	if _, got, _, err = ReadTable(ctx, m, "a"); err != nil || got != nil || got.Tablets() != 1 {
		t.Errorf("split points of a table whose tablets are there: %+v, %v", got, err)
	}
	if names, err := c.Names(ctx); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("tables: %v, %v", names, err)
	}
	if tables, err := m.Tables(ctx); err != nil || len(tables) != 2 || tables[8] != "a" || tables[7] != "b" {
		t.Errorf("tables by id: %v, %v", tables, err)
	}
	if s, err := c.SchemaOf(ctx, metadata.Name); err != nil || s.ID != metadata.TableID {
		t.Errorf("METADATA: %+v, %v", s, err)
	}
	if s, err := c.SchemaOf(ctx, "b"); err != nil || s.ID != 7 {
		t.Errorf("the schema of b: %+v, %v", s, err)
	}
	if err := c.Remove(ctx, TablePath("b"), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Schema(ctx, "b"); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("a table that was dropped: %v, want %v", err, api.ErrNoTable)
	}
}

// TestDamagedSchema: a schema that cannot be read is no missing table.
func TestDamagedSchema(t *testing.T) {
	c, ctx := newCatalog(t)
	if err := c.SaveTable(ctx, newSchema(t, 8, "a"), &SplitPoints{First: 9, Ends: [][]byte{[]byte("g")}}, 0); err != nil {
		t.Fatal(err)
	}
	f, err := c.Meta.Get(ctx, TablePath("a"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range f.Data {
		if _, err := c.Meta.Set(ctx, TablePath("a"), f.Data[:n], metaapi.AnyGeneration); err != nil {
			t.Fatal(err)
		}
		s, points, _, err := ReadTable(ctx, c.Meta, "a")
		if whole := s != nil && points == nil && err == nil; !whole && (err == nil || errors.Is(err, api.ErrNoTable)) {
			t.Errorf("of %d bytes: %+v, %+v, %v", n, s, points, err)
		}
	}
}

// TestClusterFile: the id of a cluster is written once, and read with the epoch of its Raft group.
func TestClusterFile(t *testing.T) {
	c, ctx := newCatalog(t)
	if _, err := c.Cluster(ctx); !errors.Is(err, metaapi.ErrNotFound) {
		t.Errorf("before it is founded: %v", err)
	}
	if err := errors.Join(c.Found(ctx, "one"), c.Found(ctx, "two")); err != nil {
		t.Fatal(err)
	}
	f, err := c.Cluster(ctx)
	if err != nil || f.Name != "one" || f.Epoch != 0 {
		t.Fatalf("the cluster is %+v, %v", f, err)
	}
	f.Epoch = 5
	if err := c.SaveCluster(ctx, f); err != nil {
		t.Fatal(err)
	}
	if err := c.SaveCluster(ctx, f); !errors.Is(err, metaapi.ErrGeneration) {
		t.Errorf("a change of an earlier generation: %v", err)
	}
	if f, err := c.Cluster(ctx); err != nil || f.Name != "one" || f.Epoch != 5 {
		t.Errorf("the cluster is %+v, %v", f, err)
	}
	for _, b := range [][]byte{nil, {0x80}, {0x81, 0xa2, 'i', 'd'}} {
		if f, err := DecodeCluster(metaapi.File{Data: b}); err == nil {
			t.Errorf("%x is the cluster %+v", b, f)
		}
	}
}

// TestFoundRights: the first principal of a cluster administers it. A second start of the founder changes nothing.
func TestFoundRights(t *testing.T) {
	c, ctx := newCatalog(t)
	for range 2 {
		if err := c.FoundRights(ctx, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) []byte {
		f, err := c.Meta.Get(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		return f.Data
	}
	p, err := acl.DecodePolicy(read(acl.ClusterFile))
	if err != nil || len(p.Grants) != 1 || p.Grants[0].Principal != keydir.FirstPrincipal || p.Grants[0].Rights&acl.Admin == 0 {
		t.Errorf("grants: %+v, %v", p, err)
	}
	if len(read(acl.PrincipalFile(keydir.FirstPrincipal))) == 0 || !bytes.Equal(read(acl.EpochFile), EpochBytes(0)) {
		t.Error("the first principal or the epoch is not there")
	}
}

// TestServerNames: names of tablet servers and the nodes that they belong to.
func TestServerNames(t *testing.T) {
	server := ServerName("n1", 7)
	of := MetadataServer(server)
	if server != "n1.7" || of == server || UserServer(of) != server || UserServer(server) != server || NodeOf(server) != "n1" || NodeOf(of) != "n1" {
		t.Errorf("%q, %q, %q, %q", server, of, UserServer(of), NodeOf(of))
	}
}

// TestRenameTable (NS4): a table has one name at each moment, also if the answer of the lock service is lost, and a name that is taken stays.
func TestRenameTable(t *testing.T) {
	plain, ctx := newCatalog(t)
	lossy := &Catalog{Meta: &forgetful{Files: plain.Meta}}
	for _, s := range []*table.Schema{newSchema(t, 100, "a"), newSchema(t, 101, "other")} {
		if err := plain.SaveTable(ctx, s, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	names := func() []string {
		t.Helper()
		all, err := plain.Names(ctx)
		if err != nil {
			t.Error(err)
		}
		return all
	}
	s, gen, err := plain.Schema(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	s.Name = "other"
	if err := lossy.RenameTable(ctx, "a", gen, s, nil); !errors.Is(err, api.ErrTableExists) {
		t.Errorf("to a name that is taken: %v", err)
	}
	s.Name = "b"
	if err := lossy.RenameTable(ctx, "a", gen+1, s, nil); !errors.Is(err, api.ErrConflict) {
		t.Errorf("of a table that was altered: %v", err)
	}
	if got := names(); !slices.Equal(got, []string{"a", "other"}) {
		t.Errorf("after refusals there are %q", got)
	}
	cut := &SplitPoints{First: 200, Ends: [][]byte{[]byte("m")}}
	if err := lossy.RenameTable(ctx, "a", gen, s, cut); err != nil {
		t.Errorf("with a lost answer: %v", err)
	}
	if got := names(); !slices.Equal(got, []string{"b", "other"}) {
		t.Errorf("renamed, there are %q", got)
	}
	if now, points, _, err := ReadTable(ctx, plain.Meta, "b"); err != nil || now.ID != 100 || now.Name != "b" || points == nil || points.First != 200 {
		t.Errorf("renamed: %+v, %+v, %v", now, points, err)
	}
	if err := plain.RenameTable(ctx, "a", gen, s, nil); !errors.Is(err, api.ErrTableExists) {
		t.Errorf("a request that arrives late: %v", err)
	}
}
