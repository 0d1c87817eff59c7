package quotas

import (
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes/changestest"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/table"
)

// tables is the quotas of a node, and what changes its tables.
type tables struct {
	t testing.TB
	n *changestest.Node
	*Service
}

func newTables(t testing.TB) *tables {
	n := changestest.NewOpen(t)
	return &tables{t, n, New(Config{
		Ctx: n.Ctx, Began: time.Now(), Log: n.Log, Catalog: n.Catalog, Meta: n.Meta, Authz: n.Authz, Changes: n.Changes,
		Members: func() []blobfs.Member { return nil },
	})}
}

func (x *tables) check(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// drop keeps a table as a dropped one.
func (x *tables) drop(name string) {
	x.t.Helper()
	s, gen, err := x.Catalog.Schema(x.t.Context(), name)
	x.check(err)
	x.check(x.Catalog.Keep(x.t.Context(), s, gen, time.Now()))
}

// undrop restores a dropped table.
func (x *tables) undrop(id uint64, name string) {
	x.t.Helper()
	kept, err := x.Catalog.Dropped(x.t.Context())
	x.check(err)
	d := kept[id]
	x.check(x.Catalog.Restore(x.t.Context(), &d, table.NewSchema(name, id)))
}

func (x *tables) rename(from, to string) {
	x.t.Helper()
	s, gen, err := x.Catalog.Schema(x.t.Context(), from)
	x.check(err)
	s.Name = to
	x.check(x.Catalog.RenameTable(x.t.Context(), from, gen, s, nil))
}

// set sets the quota of a table to so many writes a second.
func (x *tables) set(name string, perSecond int64) {
	x.t.Helper()
	r := &api.SetQuotaRequest{Of: api.QuotaOfTable, Name: name, Bounds: map[string]int64{api.QuotaWriteOps: perSecond}}
	x.check(x.setQuota(x.t.Context(), authz.ChangeRequest{Name: name}, r))
}

// expect reports an error unless the tables with those names, and no others, have a quota in force. The first call of readQuotas may find a table while
// its file moves, as it may in Follow, which calls it twice a second.
func (x *tables) expect(when string, names ...string) {
	x.t.Helper()
	for range 2 {
		x.check(x.readQuotas(x.t.Context()))
	}
	var got []string
	if set := x.state.meters.Load(); set != nil {
		for name := range set.tables {
			got = append(got, name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, names) {
		x.t.Errorf("%s: quotas are in force for %q, want %q", when, got, names)
	}
}

// TestQuotaFollowsTable: the quota of a table is in force by the name that the table has, whatever names it had, and not while it is dropped. No epoch
// of quotas begins when tables change.
func TestQuotaFollowsTable(t *testing.T) {
	x := newTables(t)
	for id, name := range map[uint64]string{100: "t", 200: "v"} {
		x.check(x.Catalog.SaveTable(t.Context(), table.NewSchema(name, id), nil, 0))
	}
	x.set("t", 5)
	x.expect("set", "t")
	x.drop("t")
	x.expect("dropped")
	x.undrop(100, "t")
	x.expect("restored", "t")
	x.drop("t")
	x.expect("dropped again")
	x.check(x.Catalog.SaveTable(t.Context(), table.NewSchema("t", 300), nil, 0))
	x.undrop(100, "u")
	x.expect("restored by another name", "u")
	x.rename("u", "w")
	x.expect("renamed", "w")
	x.set("v", 6)
	x.expect("two have quotas", "v", "w")
	x.rename("v", "x")
	x.rename("w", "v")
	x.rename("x", "w")
	x.expect("names exchanged", "v", "w")
	set := x.state.meters.Load()
	if v, w := set.tables["v"], set.tables["w"]; v.Key() != quotaOfTable(100) || w.Key() != quotaOfTable(200) {
		t.Errorf("the quota of v is that of %s, and that of w of %s", v.Key(), w.Key())
	}
	x.set("v", 7)
	x.expect("set by the present name", "v", "w")
	if r, _, err := x.records.get(t.Context(), quota.TableFile(100)); err != nil || r.Name != "v" || r.Rates != x.state.meters.Load().tables["v"].Record().Rates {
		t.Errorf("the quota is stored as %+v, %v", r, err)
	}
	x.drop("v")
	kept, err := x.Catalog.Dropped(t.Context())
	x.check(err)
	d := kept[100]
	x.check(x.Catalog.Purge(t.Context(), &d))
	x.ForgetTable(t.Context(), 100)
	x.expect("purged", "w")
}
