package tablet

import (
	"errors"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestTabletMap: the map finds the tablet of a row and of a name, rejects tablets that overlap, and
// replaces tablets by others of the same rows.
func TestTabletMap(t *testing.T) {
	sc := newSchema(&table.Schema{ID: 7, Name: "t"}, nil)
	newTablet := func(id, table uint64, start, end string) *Tablet {
		x := &Tablet{id: id, table: table, start: []byte(start), end: []byte(end)}
		x.schema.Store(sc)
		return x
	}
	m := newTabletMap(true)
	if _, err := m.table("t"); !errors.Is(err, api.ErrNotServing) {
		t.Errorf("a table that another server may have: %v", err)
	}
	low, high := newTablet(1, 7, "", "g"), newTablet(2, 7, "m", "")
	for _, x := range []*Tablet{high, low} {
		if _, err := m.add("t", x); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []*Tablet{newTablet(3, 7, "f", "h"), newTablet(4, 7, "", "g"), newTablet(5, 7, "n", "p")} {
		if _, err := m.add("t", x); !errors.Is(err, ErrServed) {
			t.Errorf("a tablet from %q to %q beside those that are served: %v", x.start, x.end, err)
		}
	}
	if _, err := m.add("t", newTablet(6, 8, "g", "m")); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("a tablet of an earlier table of the name: %v", err)
	}
	sv, err := m.table("t")
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string]*Tablet{"": low, "g": low, "g\x00": nil, "m": nil, "m\x00": high, "z": high} {
		if got := sv.at([]byte(row)); got != want {
			t.Errorf("row %q is in %v, want %v", row, got, want)
		}
	}
	if !m.Has(low.ref()) || m.Has(Ref{8, "g"}) || m.Has(Ref{7, "h"}) || !m.Overlaps(7, []byte("f"), []byte("h")) || m.Overlaps(7, []byte("g"), []byte("m")) {
		t.Error("the tablets are not those that were added")
	}
	a, b := newTablet(8, 7, "", "c"), newTablet(1, 7, "c", "g")
	m.setSplitPending(a.ref(), true)
	if _, err := m.tablet(a.ref()); !errors.Is(err, ErrSplitPending) {
		t.Errorf("a tablet that is being split off: %v", err)
	}
	if !m.exchange([]*Tablet{low}, []*Tablet{a, b}) || m.exchange([]*Tablet{low}, []*Tablet{a, b}) {
		t.Error("a tablet must be replaced once")
	}
	m.setSplitPending(a.ref(), false)
	if x, err := m.tablet(a.ref()); x != a {
		t.Errorf("the tablet split off: %v", err)
	}
	if m.remove(high); m.Has(high.ref()) || len(m.all()) != 2 {
		t.Error("a removed tablet is served")
	}
	if m.drop(8) != nil || len(m.drop(7).tablets) != 2 || len(m.Tables()) != 0 {
		t.Error("only the table of that id must be dropped")
	}
}

// TestSchemaOfAddedTablet (T12): a tablet that is added gets the latest schema of its table. Those that
// are served keep theirs, because they may have pending writes.
func TestSchemaOfAddedTablet(t *testing.T) {
	newTablet := func(start, end string, generation uint64) *Tablet {
		x := &Tablet{table: 7, start: []byte(start), end: []byte(end)}
		v := &fakeVersion{generation: generation}
		v.over.Store(generation < 2)
		x.schema.Store(newSchema(&table.Schema{ID: 7, Name: "t"}, v))
		return x
	}
	m, all := newTabletMap(true), []*Tablet{newTablet("", "g", 1), newTablet("g", "m", 2), newTablet("m", "", 1)}
	for _, x := range all {
		if _, err := m.add("t", x); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []uint64{1, 2, 2} {
		if n := all[i].schema.Load().version.Generation(); n != want {
			t.Errorf("tablet %d has generation %d of the schema, want %d", i, n, want)
		}
	}
}

// TestFirstUnflushedDuringSplit (T4): a tablet is replaced while the log's first needed record is
// determined. What its memtables hold, which are its children's then, is still needed.
func TestFirstUnflushedDuringSplit(t *testing.T) {
	newTablet := func(id uint64, start, end string, minSeq uint64) *Tablet {
		x := &Tablet{id: id, table: 7, start: []byte(start), end: []byte(end)}
		x.schema.Store(newSchema(&table.Schema{ID: 7, Name: "t"}, nil))
		_, vs := newFence()
		x.views.current = vs.current
		x.views.current.active.minSeq.Store(minSeq)
		return x
	}
	m := newTabletMap(false)
	parent := newTablet(1, "", "", 5)
	if _, err := m.add("t", parent); err != nil {
		t.Fatal(err)
	}
	split := false
	first := firstUnflushed(func() *map[string]*served {
		tables := m.tables.Load()
		if !split { // as tabletSplit.replace does
			split = true
			if !m.exchange([]*Tablet{parent}, []*Tablet{newTablet(2, "", "g", 6), newTablet(1, "g", "", 5)}) {
				t.Error("not replaced")
			}
			parent.views.current = nil
		}
		return tables
	})
	if first != 5 {
		t.Errorf("the log is needed from %d, want 5", first)
	}
}
