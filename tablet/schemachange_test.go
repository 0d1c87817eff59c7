package tablet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// familiesOf returns the families of a row's cells.
func (e *schemaEnv) familiesOf(ctx context.Context, row string) (all []string, err error) {
	err = e.ReadRow(ctx, testTable, []byte(row), nil, func(_ []byte, cells []table.Cell) error {
		for _, c := range cells {
			all = append(all, c.Family)
		}
		return nil
	})
	return all, err
}

// stalledWrite starts a write, and returns when it is pending in the commit log, which makes no
// progress until goOn is called.
func (e *schemaEnv) stalledWrite(write func() error) (written <-chan error, goOn func()) {
	stalled, done := make(chan struct{}), make(chan error, 1)
	e.blobs.stalled.Store(&stalled)
	go func() { done <- write() }()
	for e.commitLog.commits.AppendAge() == 0 {
		time.Sleep(time.Millisecond)
	}
	return done, func() { close(stalled) }
}

// TestSchemaChangeBesideWrite (T12): a family is dropped while a write is pending in the commit log.
// The write takes effect before the drop, so every read that begins after the drop sees the rest of it.
func TestSchemaChangeBesideWrite(t *testing.T) {
	inG, err := table.Compile(table.FamilyRegex("g"))
	if err != nil {
		t.Fatal(err)
	}
	row := []byte("r")
	for how, write := range map[string]func(e *schemaEnv) error{
		"mutation of both families": func(e *schemaEnv) error { _, err := applySync(e.Server, "r", setIn("f"), setIn("g")); return err },
		"condition on the family": func(e *schemaEnv) error {
			matched, err := e.CheckAndMutate(t.Context(), testTable, row, inG, []table.Mutation{setIn("f")}, nil)
			if err == nil && !matched {
				return errors.New("no match")
			}
			return err
		},
		"increment": func(e *schemaEnv) error {
			_, err := e.ReadModifyWrite(t.Context(), testTable, row, []table.Rule{
				{Op: table.RuleIncrement, Family: "f", Qualifier: []byte("n"), Amount: 1},
				{Op: table.RuleAppend, Family: "g", Qualifier: []byte("n"), Value: []byte("v")},
			})
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			e := newSchemaEnv(t, "f:", "g:")
			if _, err := applySync(e.Server, "r", setIn("g")); err != nil {
				t.Fatal(err)
			}
			written, goOn := e.stalledWrite(func() error { return write(e) })
			e.change(e.schema)
			if all, err := e.familiesOf(t.Context(), "r"); err != nil || !slices.Equal(all, []string{"g"}) {
				t.Errorf("a read after the schema was read again, unchanged: families %q, %v", all, err)
			}
			e.change(e.without(t, "g"))
			for what, read := range map[string]func(ctx context.Context) error{
				"read": func(ctx context.Context) error { _, err := e.familiesOf(ctx, "r"); return err },
				"rows": func(ctx context.Context) error {
					_, err := e.For(nil).ReadRows(ctx, testTable, [][]byte{row}, nil, func(int, []byte, []table.Cell) error { return nil })
					return err
				},
				"scan": func(ctx context.Context) error {
					_, err := e.Scan(ctx, testTable, Range{}, nil, func([]byte, []table.Cell) error { return nil })
					return err
				},
				"check": func(ctx context.Context) error {
					_, err := e.CheckAndMutate(ctx, testTable, []byte("another row"), inG, nil, nil)
					return err
				},
				"renewal": e.RenewSchemas,
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				if err := read(ctx); !errors.Is(err, api.ErrUnavailable) || !strings.Contains(err.Error(), "pending") {
					t.Errorf("%s after the drop, before the write is durable: %v", what, err)
				}
				cancel()
			}
			goOn()
			if all, err := e.familiesOf(t.Context(), "r"); err != nil || !slices.Equal(all, []string{"f"}) {
				t.Errorf("a read after the drop finds families %q, %v; want that of the write", all, err)
			}
			if err := <-written; err != nil {
				t.Errorf("a write that took effect before the drop: %v", err)
			}
			if _, err := applySync(e.Server, "r", setIn("f"), setIn("g")); !errors.Is(err, table.ErrNoFamily) {
				t.Errorf("a write after the drop: %v", err)
			}
		})
	}
}

// TestDropBesideWrite: a server stops serving a dropped table although a write is pending.
func TestDropBesideWrite(t *testing.T) {
	e := newSchemaEnv(t, "f:")
	written, goOn := e.stalledWrite(func() error { _, err := applySync(e.Server, "r", setIn("f")); return err })
	e.change(nil)
	if err := e.RenewSchemas(t.Context()); err != nil || len(e.Served().Loaded()) != 0 {
		t.Errorf("a dropped table is served: %v, %v", e.Served().Loaded(), err)
	}
	goOn()
	if err := <-written; !errors.Is(err, api.ErrNotServing) {
		t.Errorf("a write that became durable after its table was dropped: %v", err)
	}
}

// changing is an Access that changes the schema once, after it has checked a mutation.
type changing struct {
	script
	change func()
}

func (c *changing) Write(sc *table.Schema, rm *table.RowMutation) (*table.RowMutation, error) {
	rm, err := c.script.Write(sc, rm)
	if c.change != nil {
		c.change()
		c.change = nil
	}
	return rm, err
}

// TestSchemaChangesBeforeCommit (T12): a write whose schema changes after it was checked, and before
// it is in the log, starts over. Nothing of it is written if the new schema rejects it.
func TestSchemaChangesBeforeCommit(t *testing.T) {
	both := []table.Mutation{setIn("f"), setIn("g")}
	rm := &table.RowMutation{Row: []byte("r"), Mutations: both}
	for how, write := range map[string]func(as For) error{
		"apply": func(as For) error {
			done := make(chan error, 1)
			as.Apply(testTable, rm, func(_ int64, err error) { done <- err })
			return <-done
		},
		"apply now": func(as For) error {
			done := make(chan error, 1)
			if !as.ApplyNow(testTable, rm, func(_ int64, err error) { done <- err }) {
				return table.ErrNoFamily // the caller calls Apply then
			}
			return <-done
		},
		"check": func(as For) error {
			_, err := as.CheckAndMutate(t.Context(), testTable, []byte("r"), nil, nil, both)
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			e := newSchemaEnv(t, "f:", "g:")
			a := &changing{change: func() { e.change(e.without(t, "g")) }}
			if err := write(e.For(a)); !errors.Is(err, table.ErrNoFamily) || a.change != nil {
				t.Errorf("%v; want that a family is missing", err)
			}
			if n, err := e.rowCells(t, "r"); n != 0 || err != nil {
				t.Errorf("a rejected write is there: %d cells, %v", n, err)
			}
			if used := e.writeMemory.Charged(); used != 0 {
				t.Errorf("%d bytes of writes are still charged", used)
			}
		})
	}
}

// named returns a schema with another name.
func named(s *table.Schema, name string) *table.Schema {
	n := *s
	n.Name = name
	return &n
}

// TestTableRenamed (I1, I15): a table that is dropped but kept has another name. No request reaches it by either name, its tablets
// stay with all their rows, also when another table of its former name is loaded, and with a third name it is reached again.
func TestTableRenamed(t *testing.T) {
	for _, how := range []string{"renewed", "another table loaded"} {
		e := newSchemaEnv(t, "f:")
		if _, err := applySync(e.Server, "r", setIn("f")); err != nil {
			t.Fatal(err)
		}
		const hidden = table.DroppedPrefix + "1.0." + testTable
		e.change(named(e.schema, hidden))
		if how == "renewed" {
			if err := e.RenewSchemas(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else {
			other := *e.schema
			other.ID = 2
			e.others = map[uint64]*table.Schema{2: &other}
			err := e.Load(t.Context(), Load{Meta: &Meta{ID: 2, Table: 2, LastMajor: time.Now()}, Schema: &other, Version: &fakeVersion{generation: 1 << 20}})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := e.rowCells(t, "r"); err != nil || n != 0 {
				t.Errorf("the other table has %d cells, %v", n, err)
			}
		}
		for _, name := range []string{hidden, testTable} {
			if how != "renewed" && name == testTable {
				continue
			}
			err := e.ReadRow(t.Context(), name, []byte("r"), nil, func([]byte, []table.Cell) error { return nil })
			if !errors.Is(err, api.ErrNoTable) && !errors.Is(err, api.ErrNotServing) {
				t.Errorf("%s: table %q is read: %v", how, name, err)
			}
			e.Apply(name, &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{setIn("f")}}, func(_ int64, err error) {
				if !errors.Is(err, api.ErrNoTable) && !errors.Is(err, api.ErrNotServing) {
					t.Errorf("%s: table %q is written: %v", how, name, err)
				}
			})
		}
		if !e.Served().Has(Ref{Table: 1}) {
			t.Fatalf("%s: the tablet is gone", how)
		}
		e.change(named(e.schema, "back"))
		if err := e.RenewSchemas(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := e.ReadRow(t.Context(), "back", []byte("r"), nil, func(_ []byte, cells []table.Cell) error { n = len(cells); return nil }); err != nil || n != 1 {
			t.Errorf("%s: the restored table has %d cells, %v", how, n, err)
		}
	}
}

// TestNamesExchanged: tables that got each other's names are served by them, whichever of their schemas is read first.
func TestNamesExchanged(t *testing.T) {
	for first := range 3 {
		e := newSchemaEnv(t, "f:")
		names := []string{testTable, "b", "c"} // table 1 has the first one
		var versions []*fakeVersion
		e.others = map[uint64]*table.Schema{}
		for i := range names[1:] {
			id := uint64(i + 2)
			s, v := *e.schema, &fakeVersion{generation: 5}
			s.ID, s.Name = id, names[id-1]
			if err := e.Load(t.Context(), Load{Meta: &Meta{ID: id, Table: id, LastMajor: time.Now()}, Schema: &s, Version: v}); err != nil {
				t.Fatal(err)
			}
			e.others[id], versions = named(&s, names[id%3]), append(versions, v)
		}
		for id, name := range names {
			put := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", []byte("q"), int64(id+1), []byte("v"))}}
			e.Apply(name, put, func(_ int64, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		for _, v := range versions {
			v.over.Store(true)
		}
		e.change(named(e.schema, names[1]))
		// A request for the first one; the node renews the others.
		if err := e.Server.schemas.renew(t.Context(), names[first]); err != nil {
			t.Error(err)
		}
		if err := e.RenewSchemas(t.Context()); err != nil {
			t.Error(err)
		}
		if got := e.Served().Tables(); !maps.Equal(got, map[string]uint64{names[1]: 1, names[2]: 2, names[0]: 3}) {
			t.Errorf("the tables are served as %v", got)
		}
		for id := range int64(3) {
			err := e.ReadRow(t.Context(), names[(id+1)%3], []byte("r"), nil, func(_ []byte, cells []table.Cell) error {
				if len(cells) != 1 || cells[0].Timestamp != id+1 {
					t.Errorf("table %d has cells %+v", id+1, cells)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNameTaken: a table whose name another one got is out of the reach of requests until its schema is read.
func TestNameTaken(t *testing.T) {
	m := newTabletMap(true)
	versions := map[uint64]*fakeVersion{}
	for id, name := range map[uint64]string{1: "a", 2: "b"} {
		versions[id] = &fakeVersion{}
		one := &Tablet{table: id}
		one.schema.Store(&schema{table: table.NewSchema(name, id), version: versions[id]})
		if _, err := m.add(name, one); err != nil {
			t.Fatal(err)
		}
	}
	versions[1].over.Store(true)
	if m.rename(1, "b") {
		t.Error("a table is renamed to the name that another one has")
	}
	versions[2].over.Store(true)
	if !m.rename(1, "b") || len(m.Tables()) != 2 || m.Tables()["b"] != 1 || !m.Has(Ref{Table: 2}) {
		t.Errorf("renamed: %v", m.Tables())
	}
	for name, id := range m.Tables() {
		if _, err := m.table(name); (err == nil) != (id == 1) {
			t.Errorf("table %d by the name %q: %v", id, name, err)
		}
	}
	if !m.rename(2, "a") || !maps.Equal(m.Tables(), map[string]uint64{"b": 1, "a": 2}) {
		t.Errorf("both renamed: %v", m.Tables())
	}
}

// The tablets of a table that were loaded by its new name before the others were renamed are served with them.
func TestRenameJoins(t *testing.T) {
	m := newTabletMap(true)
	tabletOf := func(start, end string, generation uint64) *Tablet {
		t := &Tablet{table: 1, start: []byte(start), end: []byte(end)}
		v := &fakeVersion{generation: generation}
		v.over.Store(generation == 1)
		t.schema.Store(&schema{table: table.NewSchema("t", 1), version: v})
		return t
	}
	for name, both := range map[string][]*Tablet{"old": {tabletOf("", "c", 1), tabletOf("m", "", 1)}, "new": {tabletOf("c", "m", 2)}} {
		for _, one := range both {
			if _, err := m.add(name, one); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := tabletOf("", "", 2)
	other.table = 2
	if _, err := m.add("taken", other); err != nil {
		t.Fatal(err)
	}
	if before := m.tables.Load(); m.rename(1, "taken") || !m.rename(3, "free") || !maps.Equal(*before, *m.tables.Load()) {
		t.Error("a table is renamed to the name of another one, or one that is not there is")
	}
	if !m.rename(1, "new") {
		t.Error("the table is not renamed")
	}
	all, err := m.tabletsOf("new")
	if err != nil || len(all) != 3 || string(all[1].end) != "m" {
		t.Errorf("%d tablets, %v", len(all), err)
	}
	if (*m.tables.Load())["old"] != nil {
		t.Error("the old name is still served")
	}
}

// TestLoadOfRestoredTable (I15): a tablet that was loaded as that of a dropped table is served by the table's name, even if the table was restored
// before the tablet was registered: no request could renew its schema under the other name.
func TestLoadOfRestoredTable(t *testing.T) {
	e := newSchemaEnv(t, "f:")
	if err := e.Unload(t.Context(), Ref{Table: 1}); err != nil {
		t.Fatal(err)
	}
	hidden := named(e.schema, table.DroppedPrefix+"1.0."+testTable)
	e.change(hidden)
	_, old, _ := e.catalog.Schema(t.Context(), 1, testTable)
	e.change(e.schema) // it is restored, which ends the version that was read
	if err := e.Load(t.Context(), Load{Meta: &Meta{ID: 1, Table: 1, LastMajor: time.Now()}, Schema: hidden, Version: old}); err != nil {
		t.Fatal(err)
	}
	if names := e.Served().Tables(); len(names) != 1 || names[testTable] != 1 {
		t.Errorf("the tablet is served by the names %v", names)
	}
}
