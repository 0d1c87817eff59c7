package namespace

import (
	"context"
	"errors"
	"testing"

	"github.com/steledb/stele/client/api"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// TestSchemasByName (I15): a schema is valid until its file is changed, and belongs to the table with its id.
func TestSchemasByName(t *testing.T) {
	m, ctx := openAccess(t)
	c, schemas := &Catalog{Meta: m}, NewSchemas(m.Current())
	if err := c.SaveTable(ctx, newSchema(t, 8, "a"), nil, 0); err != nil {
		t.Fatal(err)
	}
	s, version, err := schemas.Schema(ctx, 8, "a")
	if err != nil || s.ID != 8 || !version.Current() {
		t.Fatalf("schema %+v, %v", s, err)
	}
	if _, _, err := schemas.Schema(ctx, 9, "a"); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("an earlier table of the name: %v, want %v", err, api.ErrNoTable)
	}
	if s, _, err := schemas.Schema(ctx, 8, "b"); err != nil || s.Name != "a" {
		t.Errorf("a table by another name: %+v, %v; want a", s, err)
	}
	next, err := s.Apply(table.FamilySpec{Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	_, gen, err := c.Schema(ctx, "a")
	if err == nil {
		err = c.SaveTable(ctx, next, nil, gen)
	}
	if err != nil {
		t.Fatal(err)
	}
	if version.Current() {
		t.Error("the schema of before is current after the change")
	}
	if s, version, err = schemas.Schema(ctx, 8, "a"); err != nil || len(s.Families) != 2 || !version.Current() {
		t.Errorf("after the change: %+v, %v", s, err)
	}
	if _, err := m.Set(ctx, TablePath("a"), []byte{0xc1}, metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	if _, _, err := schemas.Schema(ctx, 8, "a"); err == nil || errors.Is(err, api.ErrNoTable) {
		t.Errorf("a damaged schema: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := schemas.Schema(ended, 8, "b"); err == nil {
		t.Error("a schema was read after the caller had left")
	}
}

// TestSchemasByID: a table is found by its id, also if it was created after another with its name was dropped.
func TestSchemasByID(t *testing.T) {
	m, ctx := openAccess(t)
	c, schemas := &Catalog{Meta: m}, NewSchemas(m.Current())
	want := func(id uint64, name string) {
		t.Helper()
		s, _, err := schemas.ByID(ctx, id)
		switch {
		case name == "" && !errors.Is(err, api.ErrNoTable):
			t.Errorf("id %d: %v, want %v", id, err, api.ErrNoTable)
		case name != "" && (err != nil || s.Name != name || s.ID != id):
			t.Errorf("id %d: %+v, %v; want table %s", id, s, err, name)
		}
	}
	want(8, "")
	if err := errors.Join(c.SaveTable(ctx, newSchema(t, 8, "a"), nil, 0), c.SaveTable(ctx, newSchema(t, 9, "b"), nil, 0)); err != nil {
		t.Fatal(err)
	}
	want(8, "a")
	want(9, "b")
	want(10, "")
	if err := c.Remove(ctx, TablePath("a"), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	want(8, "")
	if err := c.SaveTable(ctx, newSchema(t, 10, "a"), nil, 0); err != nil {
		t.Fatal(err)
	}
	want(10, "a")
	want(8, "")
	want(9, "b")
}
