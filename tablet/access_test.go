package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/steledb/stele/table"
)

// script is an Access whose rights change several times.
type script struct {
	begun, changes int
	visible        Visibility
	refuse         error
	wait           bool // Write returns ErrWouldWait
}

func (s *script) Begin() { s.begun++ }

func (s *script) Read(context.Context, *table.Schema) (Visibility, error) { return s.visible, s.refuse }

func (s *script) Write(sc *table.Schema, rm *table.RowMutation) (*table.RowMutation, error) {
	if s.wait {
		return nil, ErrWouldWait
	}
	if s.refuse != nil {
		return nil, s.refuse
	}
	return rm, rm.Validate(sc, nil)
}

func (s *script) Modify(*table.Schema, []byte, []table.Rule) error { return s.refuse }

// Holds returns false changes times, once per attempt.
func (s *script) Caller() string { return "ann" }

func (s *script) Holds() bool { return s.begun > s.changes }

// TestAccessChanges: an operation whose rights change while it runs starts over and takes effect
// once; a rejected one has no effect.
func TestAccessChanges(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	ctx := context.Background()
	n := 0
	add := []table.Rule{{Op: table.RuleIncrement, Family: "f", Qualifier: []byte("n"), Amount: 1}}
	set := func() []table.Mutation {
		n++
		return []table.Mutation{table.Set("f", fmt.Appendf(nil, "q%02d", n), 1, []byte("v"))}
	}
	wait := func(apply func(done func(int64, error)) bool) (err error, taken bool) {
		done := make(chan error, 1)
		if !apply(func(_ int64, err error) { done <- err }) {
			return nil, false
		}
		return <-done, true
	}
	operations := map[string]func(as For) error{
		"read": func(as For) error {
			return as.ReadRow(ctx, testTable, []byte("r"), nil, func([]byte, []table.Cell) error { return nil })
		},
		"apply": func(as For) error {
			err, _ := wait(func(done func(int64, error)) bool {
				as.Apply(testTable, &table.RowMutation{Row: []byte("r"), Mutations: set()}, done)
				return true
			})
			return err
		},
		"check and mutate": func(as For) error {
			_, err := as.CheckAndMutate(ctx, testTable, []byte("r"), nil, set(), nil)
			return err
		},
		"check and change nothing": func(as For) error {
			_, err := as.CheckAndMutate(ctx, testTable, []byte("r"), nil, nil, nil)
			return err
		},
		"read, modify, write": func(as For) error {
			_, err := as.ReadModifyWrite(ctx, testTable, []byte("r"), add, 0)
			return err
		},
	}
	e.mustApply("r", table.Set("f", []byte("q"), 1, []byte("v")))
	cells := func() int { return len(e.read("r", nil)) }
	for name, do := range operations {
		before := cells()
		s := &script{changes: 3}
		if err := do(e.For(s)); err != nil || s.begun != 4 {
			t.Errorf("%s, while rights change three times: begun %d times, %v", name, s.begun, err)
		}
		after := cells()
		if name == "apply" && after != before+1 || name == "read" && after != before {
			t.Errorf("%s: %d cells, then %d", name, before, after)
		}
		no := errors.New("no")
		if err := do(e.For(&script{refuse: no})); !errors.Is(err, no) {
			t.Errorf("%s that is rejected: %v", name, err)
		}
		if got := cells(); got != after {
			t.Errorf("%s that is rejected: %d cells, then %d", name, after, got)
		}
	}
	if got := e.read("r", table.ColumnRange{Family: "f", Qualifiers: table.ByteRange{Start: table.Closed([]byte("n")), End: table.Closed([]byte("n"))}}); len(got) != 1 {
		t.Errorf("the counter: %v", got)
	}
	if err := e.commitLog.commits.Between(func() {}); err != nil {
		t.Fatal(err)
	}
	if used := e.writeMemory.Charged(); used != 0 {
		t.Errorf("%d bytes of writes are still charged", used)
	}
	for name, s := range map[string]*script{"would wait": {wait: true}, "has changed": {changes: 1}} {
		if _, taken := wait(func(done func(int64, error)) bool {
			return e.For(s).ApplyNow(testTable, &table.RowMutation{Row: []byte("r"), Mutations: set()}, done)
		}); taken {
			t.Errorf("what %s was applied at once", name)
		}
	}
	rows := 0
	_, err := e.For(&script{changes: 1}).Scan(ctx, testTable, Range{}, nil, nil, func([]byte, []table.Cell) error { rows++; return nil })
	if err != ErrAccessChanged || rows != 1 {
		t.Errorf("scan: %d rows, %v", rows, err)
	}
}

// TestVisibility: cells and rows that a caller may not see are removed before limits count them.
func TestVisibility(t *testing.T) {
	e := newEnv(t, Config{}, "a:", "b:", "c:")
	for i := range 6 {
		row := fmt.Sprintf("r%d", i)
		e.mustApply(row, table.Set("a", []byte("q"), 1, []byte("a")))
		if i%2 == 0 {
			e.mustApply(row, table.Set("b", []byte("q"), 1, []byte("b")), table.Set("c", []byte("q"), 1, []byte("c")))
		}
	}
	scan := func(s Visibility, f *table.Program) (all []string) {
		_, err := e.For(&script{visible: s}).Scan(context.Background(), testTable, Range{}, f, nil, func(key []byte, cells []table.Cell) error {
			for _, c := range cells {
				all = append(all, string(key)+c.Family)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	first, err := table.Compile(table.CellsPerRowLimit(1))
	if err != nil {
		t.Fatal(err)
	}
	column, err := table.Compile(table.QualifierRegex("q"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := scan(Visibility{Families: []uint64{0b110}}, nil); !slices.Equal(got, []string{"r0b", "r0c", "r2b", "r2c", "r4b", "r4c"}) {
			t.Errorf("two families: %v", got)
		}
		if got := scan(Visibility{Families: []uint64{0b110}}, first); !slices.Equal(got, []string{"r0b", "r2b", "r4b"}) {
			t.Errorf("the first cell of two families: %v", got)
		}
		if got := scan(Visibility{Families: []uint64{0b100}}, column); !slices.Equal(got, []string{"r0c", "r2c", "r4c"}) {
			t.Errorf("a column of one family: %v", got)
		}
		if got := scan(Visibility{Families: []uint64{}}, nil); len(got) != 0 {
			t.Errorf("no family: %v", got)
		}
		odd := func(key []byte) (bool, error) { return key[1]%2 == 1, nil }
		if got := scan(Visibility{Row: odd}, first); !slices.Equal(got, []string{"r1a", "r3a", "r5a"}) {
			t.Errorf("rows: %v", got)
		}
		if err := e.Compact(context.Background(), testTable, true); err != nil { // again from files
			t.Fatal(err)
		}
	}
	no := errors.New("no")
	_, err = e.For(&script{visible: Visibility{Row: func([]byte) (bool, error) { return false, no }}}).Scan(context.Background(), testTable, Range{}, nil, nil, func([]byte, []table.Cell) error { return nil })
	if !errors.Is(err, no) {
		t.Errorf("a row with an error of its access check: %v", err)
	}
}

// BenchmarkAccess applies and reads with and without an Access that holds.
func BenchmarkAccess(b *testing.B) {
	e := benchEnv(b, Config{MemtablesBytesMax: 1 << 30}, 1000)
	row := []byte("row000001")
	for name, a := range map[string]Access{"none": nil, "some": &script{changes: -1}} {
		b.Run("read/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := e.For(a).ReadRow(context.Background(), testTable, row, nil, func([]byte, []table.Cell) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
