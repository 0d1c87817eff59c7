package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/storage"
)

// catalog is a Schemas with one table, like the lock service: change ends the current Version.
type catalog struct {
	mu      sync.Mutex
	schema  *table.Schema // nil: dropped
	Version *fakeVersion
	changes uint64 // changes to another schema
	reads   int
	err     error // error of Schema, if set
	// others are tables beside the one.
	others map[uint64]*table.Schema
}

func (c *catalog) Schema(_ context.Context, id uint64, _ string) (*table.Schema, Version, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if c.err != nil {
		return nil, nil, c.err
	}
	if other := c.others[id]; other != nil {
		return other, &fakeVersion{generation: 1 << 20}, nil
	}
	if c.schema == nil || c.schema.ID != id {
		return nil, nil, api.ErrNoTable
	}
	if c.Version == nil || !c.Version.Current() {
		c.Version = &fakeVersion{generation: c.changes}
	}
	return c.schema, c.Version, nil
}

func (c *catalog) change(to *table.Schema) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Version != nil {
		c.Version.over.Store(true)
	}
	if to != c.schema {
		c.changes++
	}
	c.schema = to
}

// fail makes reads fail with err, or succeed if err is nil.
func (c *catalog) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// schemaEnv is a server with one tablet of a table whose schema is in a catalog.
type schemaEnv struct {
	*Server
	*catalog
	blobs  *ownLogs
	schema *table.Schema // at first
	// hook.during, if set, is called once, after operations have called Serving the given number of
	// times. The last call of an operation is made when it is done but not answered.
	hook struct {
		sync.Mutex
		during    func()
		calls, at int
	}
}

func newSchemaEnv(t *testing.T, specs ...string) *schemaEnv {
	t.Helper()
	fs := vfs.NewMem(vfs.MemOptions{})
	store, err := openStore(fs, 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	e := &schemaEnv{catalog: &catalog{}, blobs: &ownLogs{Blobs: storage.OnStore(store)}, schema: testSchema(t, specs...)}
	e.change(e.schema)
	meta := newMemMetadata()
	m := &Meta{ID: 1, Table: 1, LastMajor: time.Now()}
	meta.create(m)
	e.Server, err = Start(t.Context(), Config{Blobs: e.blobs, Metadata: meta, Schemas: e.catalog, Serving: func() error {
		e.hook.Lock()
		defer e.hook.Unlock()
		if e.hook.calls++; e.hook.calls == e.hook.at && e.hook.during != nil {
			e.hook.during()
			e.hook.during = nil
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	_, v, _ := e.catalog.Schema(t.Context(), 1, testTable)
	if err := e.Load(t.Context(), Load{Meta: m, Schema: e.schema, Version: v}); err != nil {
		t.Fatal(err)
	}
	return e
}

// whileUnderWay runs change when the next operation is done but not answered. asks is the number of
// calls of Serving that it makes.
func (e *schemaEnv) whileUnderWay(asks int, change func()) {
	e.hook.Lock()
	defer e.hook.Unlock()
	e.hook.calls, e.hook.at, e.hook.during = 0, asks, change
}

func (e *schemaEnv) without(t *testing.T, family string) *table.Schema {
	t.Helper()
	s, err := e.schema.DropFamily(family)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (e *schemaEnv) rowCells(t *testing.T, row string) (n int, err error) {
	t.Helper()
	err = e.ReadRow(t.Context(), testTable, []byte(row), nil, func(_ []byte, cells []table.Cell) error { n = len(cells); return nil })
	return n, err
}

func setIn(family string) table.Mutation { return table.Set(family, []byte("q"), 7, []byte("v")) }

// TestWriteUnderWay (T12): a write that is in the log when its schema changes is acknowledged. It took
// effect before the change.
func TestWriteUnderWay(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(t *testing.T, e *schemaEnv)
	}{
		{"read again", func(_ *testing.T, e *schemaEnv) { e.change(e.schema) }},
		{"another family dropped", func(t *testing.T, e *schemaEnv) { e.change(e.without(t, "g")) }},
		{"its family dropped", func(t *testing.T, e *schemaEnv) { e.change(e.without(t, "f")) }},
		{"its family dropped and added again", func(t *testing.T, e *schemaEnv) {
			s, err := e.without(t, "f").Apply(table.FamilySpec{Name: "f"})
			if err != nil {
				t.Fatal(err)
			}
			e.change(s)
		}},
		{"table dropped", func(_ *testing.T, e *schemaEnv) { e.change(nil) }},
		{"lock service away", func(_ *testing.T, e *schemaEnv) { e.change(e.schema); e.fail(errors.New("no leader")) }},
	} {
		for how, write := range map[string]func(e *schemaEnv) error{
			"apply": func(e *schemaEnv) error { _, err := applySync(e.Server, "r", setIn("f")); return err },
			"modify": func(e *schemaEnv) error {
				_, err := e.CheckAndMutate(t.Context(), testTable, []byte("r"), nil, nil, []table.Mutation{setIn("f")})
				return err
			},
		} {
			t.Run(x.name+"/"+how, func(t *testing.T) {
				e := newSchemaEnv(t, "f:", "g:")
				e.whileUnderWay(2, func() { x.change(t, e) })
				if err := write(e); err != nil {
					t.Error(err)
				}
				if e.hook.during != nil {
					t.Error("the schema was not changed during the write")
				}
			})
		}
	}
}

// TestReadUnderWay (I15): a read whose schema changes before its answer runs again.
func TestReadUnderWay(t *testing.T) {
	row, ctx := []byte("r"), context.Background()
	inF, err := table.Compile(table.FamilyRegex("f"))
	if err != nil {
		t.Fatal(err)
	}
	type reading struct {
		asks int
		read func(e *schemaEnv) (int, error)
	}
	for how, x := range map[string]reading{
		"row": {2, func(e *schemaEnv) (int, error) { return e.rowCells(t, "r") }},
		"check": {2, func(e *schemaEnv) (int, error) {
			matched, err := e.CheckAndMutate(ctx, testTable, row, inF, nil, nil)
			if matched {
				return 2, err
			}
			return 1, err
		}},
		"rows": {2, func(e *schemaEnv) (n int, err error) {
			for {
				n = 0
				_, err = e.For(nil).ReadRows(ctx, testTable, [][]byte{row}, nil, func(_ int, _ []byte, cells []table.Cell) error { n += len(cells); return nil })
				if err != ErrAccessChanged {
					return n, err
				}
			}
		}},
		"scan": {3, func(e *schemaEnv) (n int, err error) {
			for {
				n = 0
				_, err = e.Scan(ctx, testTable, Range{}, nil, func(_ []byte, cells []table.Cell) error { n += len(cells); return nil })
				if err != ErrAccessChanged {
					return n, err
				}
			}
		}},
	} {
		t.Run(how, func(t *testing.T) {
			e, read := newSchemaEnv(t, "f:", "g:"), x.read
			if _, err := applySync(e.Server, "r", setIn("f"), setIn("g")); err != nil {
				t.Fatal(err)
			}
			if n, err := read(e); n != 2 || err != nil {
				t.Fatalf("%d cells, %v; want both", n, err)
			}
			e.whileUnderWay(x.asks, func() { e.change(e.without(t, "f")) })
			if n, err := read(e); n != 1 || err != nil {
				t.Errorf("%d cells, %v; want the one of the family that is left", n, err)
			}
			if e.hook.during != nil {
				t.Error("the schema was not changed during the operation")
			}
			e.whileUnderWay(x.asks, func() { e.change(nil) })
			if n, err := read(e); !errors.Is(err, api.ErrNotServing) {
				t.Errorf("of a table that was dropped: %d cells, %v", n, err)
			}
		})
	}
}

// TestSchemaIsReadOnce: operations that arrive while the schema is not current wait for one read of
// it, and those that cannot wait return to the caller. While it cannot be read they fail, and
// nothing is executed.
func TestSchemaIsReadOnce(t *testing.T) {
	e := newSchemaEnv(t, "f:")
	e.change(e.schema)
	before := e.reads
	if e.ApplyNow(testTable, &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{setIn("f")}}, nil) {
		t.Error("a write that cannot wait was begun by a schema that may have changed")
	}
	var writers sync.WaitGroup
	for i := range 20 {
		writers.Go(func() {
			if _, err := applySync(e.Server, fmt.Sprint(i), setIn("f")); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if n := e.reads - before; n != 1 {
		t.Errorf("the schema was read %d times", n)
	}
	e.change(e.schema)
	e.fail(errors.New("no leader"))
	if _, err := applySync(e.Server, "never", setIn("f")); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("without the lock service: %v", err)
	}
	if err := e.RenewSchemas(t.Context()); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("without the lock service: %v", err)
	}
	e.fail(nil)
	if n, err := e.rowCells(t, "never"); n != 0 || err != nil {
		t.Errorf("a rejected write was executed: %d cells, %v", n, err)
	}
	e.change(nil)
	if err := e.RenewSchemas(t.Context()); err != nil || len(e.Served().Loaded()) != 0 {
		t.Errorf("a dropped table is served: %v, %v", e.Served().Loaded(), err)
	}
}
