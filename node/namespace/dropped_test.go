package namespace

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// fileNames returns the names of the files of all tables, dropped ones included.
func fileNames(t *testing.T, c *Catalog) []string {
	t.Helper()
	names, err := c.List(t.Context(), TablesDir)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestDropAndRestore (NS4): a table has one file while it is dropped, restored and purged, also if answers of the lock service are lost. A
// request that arrives late has no effect.
func TestDropAndRestore(t *testing.T) {
	plain, ctx := newCatalog(t)
	lossy := func() *Catalog { return &Catalog{Meta: &forgetful{Files: plain.Meta}} }
	s := newSchema(t, 100, "t")
	if err := plain.SaveTable(ctx, s, nil, 0); err != nil {
		t.Fatal(err)
	}
	_, gen, err := plain.Schema(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	at := time.UnixMilli(5)
	if err := lossy().Keep(ctx, s, gen+1, at); !errors.Is(err, api.ErrConflict) {
		t.Errorf("the drop of a table that was altered: %v", err)
	}
	if err := lossy().Keep(ctx, s, gen, at); err != nil {
		t.Fatal(err)
	}
	if names := fileNames(t, plain); !slices.Equal(names, []string{"~100.5.t"}) {
		t.Errorf("dropped, there are %q", names)
	}
	if err := plain.Keep(ctx, s, gen, at.Add(time.Second)); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("a drop that arrives late: %v", err)
	}
	kept, err := plain.Dropped(ctx)
	d := kept[100]
	if err != nil || len(kept) != 1 || d.Name != "t" || !d.At.Equal(at) {
		t.Fatalf("kept are %+v, %v", kept, err)
	}
	if now, err := plain.SchemaByID(ctx, 100); err != nil || now.ID != 100 || now.Name != d.File {
		t.Errorf("dropped, by id: %+v, %v", now, err)
	}
	if _, err := plain.SchemaByID(ctx, 99); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("by the id of no table: %v", err)
	}
	if err := plain.SaveTable(ctx, newSchema(t, 101, "u"), nil, 0); err != nil {
		t.Fatal(err)
	}
	s.Name = "u"
	if err := lossy().Restore(ctx, &d, s); !errors.Is(err, api.ErrTableExists) {
		t.Errorf("restored with a name that is taken: %v", err)
	}
	s.Name = "v"
	if err := lossy().Restore(ctx, &d, s); err != nil {
		t.Fatal(err)
	}
	if names := fileNames(t, plain); !slices.Equal(names, []string{"u", "v"}) {
		t.Errorf("restored, there are %q", names)
	}
	if err := plain.Purge(ctx, &d); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("purged after it was restored: %v", err)
	}
	s.Name = "w"
	if err := plain.Restore(ctx, &d, s); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("restored twice: %v", err)
	}
	if now, err := plain.SchemaByID(ctx, 100); err != nil || now.ID != 100 || now.Name != "v" {
		t.Errorf("by id: %+v, %v", now, err)
	}
	if now, _, err := plain.Schema(ctx, "v"); err != nil || now.ID != 100 || now.Name != "v" {
		t.Errorf("restored: %+v, %v", now, err)
	}
}

// TestTablesWhileRecreated: a table that is dropped and kept, and whose name another one gets, while the tables are listed, is among them: the
// master removes what tables have that are not.
func TestTablesWhileRecreated(t *testing.T) {
	c, ctx := newCatalog(t)
	m := c.Meta.(*Access)
	recreate := func(from, to uint64) error {
		s, gen, err := c.Schema(ctx, "t")
		if err == nil && s.ID == from {
			err = c.Keep(ctx, s, gen, time.Now())
		}
		return errors.Join(err, c.SaveTable(ctx, newSchema(t, to, "t"), nil, 0))
	}
	if err := c.SaveTable(ctx, newSchema(t, 100, "t"), nil, 0); err != nil {
		t.Fatal(err)
	}
	lists := 0
	tables, err := idsOf(func() ([]metaapi.Stat, error) {
		all, err := m.List(ctx, TablesDir)
		if lists++; lists == 1 {
			err = errors.Join(err, recreate(100, 200))
		}
		return all, err
	}, func(at *metaapi.Stat) (uint64, error) {
		known, err := readKnown(ctx, m.Current(), at)
		return known.id, err
	})
	if got := slices.Sorted(maps.Keys(tables)); err != nil || lists != 2 || !slices.Equal(got, []uint64{100, 200}) {
		t.Errorf("tables %v after %d listings, %v; want 100 and 200 after 2", tables, lists, err)
	}
}

// TestSaveTableOvertaken: a change of a table that was made, and whose answer was lost, does not fail as if nothing was done because others changed
// the table since.
func TestSaveTableOvertaken(t *testing.T) {
	c, ctx := newCatalog(t)
	s := newSchema(t, 100, "t")
	altered := newSchema(t, 100, "t")
	altered.Protected = true
	over := &Catalog{Meta: &overtaken{forgetful: forgetful{Files: c.Meta}, data: encodeTable(altered, nil)}}
	if err := over.SaveTable(ctx, s, &SplitPoints{First: 101, Ends: [][]byte{[]byte("m")}}, 0); err != nil {
		t.Errorf("a creation after which the split points were removed: %v", err)
	}
	_, gen, err := c.Schema(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	over = &Catalog{Meta: &overtaken{forgetful: forgetful{Files: c.Meta}, data: encodeTable(altered, nil)}}
	if err := over.SaveTable(ctx, s, nil, gen); !errors.Is(err, metaapi.ErrOutcomeUnknown) || errors.Is(err, api.ErrConflict) {
		t.Errorf("an alteration after which the table was altered: %v", err)
	}
}

// TestDropOvertaken: a drop that was made, and whose answer was lost, does not fail as if nothing was done because another node restored the
// table since. Clients would repeat it, and drop the table that was restored.
func TestDropOvertaken(t *testing.T) {
	c, ctx := newCatalog(t)
	s := newSchema(t, 100, "t")
	if err := c.SaveTable(ctx, s, nil, 0); err != nil {
		t.Fatal(err)
	}
	_, gen, err := c.Schema(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	restore := func() error {
		kept, err := c.Dropped(ctx)
		d := kept[100]
		return errors.Join(err, c.Restore(ctx, &d, s))
	}
	over := &Catalog{Meta: &restored{forgetful: forgetful{Files: c.Meta}, restore: restore}}
	if err := over.Keep(ctx, s, gen, time.UnixMilli(5)); !errors.Is(err, metaapi.ErrOutcomeUnknown) || errors.Is(err, api.ErrConflict) {
		t.Errorf("dropped: %v, want %v", err, metaapi.ErrOutcomeUnknown)
	}
	if names := fileNames(t, c); !slices.Equal(names, []string{"t"}) {
		t.Errorf("there are %q", names)
	}
}

// restored is a forgetful lock service in which another node restores the table after the lost write.
type restored struct {
	forgetful
	restore func() error
}

func (r *restored) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	made, err := r.forgetful.SetGuarded(ctx, path, data, gen, o)
	if errors.Is(err, metaapi.ErrOutcomeUnknown) {
		if other := r.restore(); other != nil {
			return 0, other
		}
	}
	return made, err
}

// overtaken is a forgetful lock service in which another node writes data into the file of the lost write.
type overtaken struct {
	forgetful
	data []byte
}

func (o *overtaken) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, opts metaapi.SetOptions) (uint64, error) {
	made, err := o.forgetful.SetGuarded(ctx, path, data, gen, opts)
	if errors.Is(err, metaapi.ErrOutcomeUnknown) {
		if _, other := o.Files.Set(ctx, path, o.data, metaapi.AnyGeneration); other != nil {
			return 0, other
		}
	}
	return made, err
}
