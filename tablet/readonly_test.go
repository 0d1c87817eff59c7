package tablet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestReadOnly: a table accepts no changes of rows of any kind while it is read-only, and can be read.
func TestReadOnly(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	e.mustApply("row", table.Set("f", []byte("q"), 1, []byte("v")))
	set := []table.Mutation{table.Set("f", []byte("q"), 1, []byte("w"))}
	ref := e.tabletOfTest().ref()
	changes := map[string]func() error{
		"mutate": func() error {
			_, err := e.apply("row", set...)
			return err
		},
		"mutate without a wait": func() error {
			result := make(chan error, 1)
			if !e.For(nil).ApplyNow(testTable, &table.RowMutation{Row: []byte("row"), Mutations: set}, func(_ int64, err error) { result <- err }) {
				return table.ErrReadOnly // it may be made by Apply only
			}
			return <-result
		},
		"mutate with a token": func() error {
			result := make(chan error, 1)
			rm := &table.RowMutation{Row: []byte("row"), Mutations: set, Token: &table.Token{ID: []byte("token-of-a-test")}}
			e.For(nil).Apply(testTable, rm, func(_ int64, err error) { result <- err })
			return <-result
		},
		"check and mutate": func() error {
			_, err := e.For(nil).CheckAndMutate(t.Context(), testTable, []byte("row"), nil, set, set)
			return err
		},
		"read, modify and write": func() error {
			_, err := e.For(nil).ReadModifyWrite(t.Context(), testTable, []byte("row"), []table.Rule{{Op: table.RuleAppend, Family: "f", Qualifier: []byte("q"), Value: []byte("x")}}, 1<<20)
			return err
		},
		"clear": func() error {
			_, _, err := e.Clear(t.Context(), ref, nil, nil)
			return err
		},
	}
	frozen, err := e.schema.Alter(table.Change{Op: table.ChangeReadOnly, ReadOnly: table.ReadOnlyChange{Reason: "for a test"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetSchema(frozen); err != nil {
		t.Fatal(err)
	}
	for name, change := range changes {
		if err := change(); !errors.Is(err, table.ErrReadOnly) {
			t.Errorf("%s: %v, want %v", name, err, table.ErrReadOnly)
		}
	}
	if got := e.read("row", nil); len(got) != 1 {
		t.Errorf("the row has the cells %q", got)
	}
	if err := e.SetSchema(e.schema); err != nil {
		t.Fatal(err)
	}
	for name, change := range changes {
		if err := change(); err != nil && name != "mutate without a wait" {
			t.Errorf("%s, when it is not read-only any more: %v", name, err)
		}
	}
}

// formerVersion is that of a schema that has changed.
type formerVersion struct{}

func (formerVersion) Current() bool      { return false }
func (formerVersion) Generation() uint64 { return 1 }

// TestClearOfFormerSchema (MG1 of package migrate): a clear is not acknowledged if the table may have become read-only meanwhile.
func TestClearOfFormerSchema(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	e.mustApply("row", table.Set("f", []byte("q"), 1, []byte("v")))
	tb := e.tabletOfTest()
	tb.schema.Store(newSchema(e.schema, formerVersion{}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, _, err := e.Clear(ctx, tb.ref(), nil, nil); !errors.Is(err, api.ErrNotServing) {
		t.Errorf("%v, want %v", err, api.ErrNotServing)
	}
}
