package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/steledb/stele/table"
)

// turnstile counts turns, and calls at before each.
type turnstile struct {
	taken int
	in    bool
	at    func(n int) error
}

func (s *turnstile) Take(context.Context) error {
	s.taken++
	s.in = true
	if s.at != nil {
		return s.at(s.taken)
	}
	return nil
}

func (s *turnstile) Resume(ctx context.Context) error {
	if s.in {
		return nil
	}
	return s.Take(ctx)
}

func (s *turnstile) End() { s.in = false }

// TestCostlyFilters: an operation that matches long patterns against large values waits for turns,
// is bounded, and ends with its context inside a value. A scan ends its batch before it reaches the
// bound, and can be resumed.
func TestCostlyFilters(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	e.limits.FilterSteps = 24 << 20
	const rows = 12
	for i := range rows {
		e.mustApply(fmt.Sprintf("r%02d", i), table.Set("f", []byte("q"), 1, bytes.Repeat([]byte("x"), 20<<10)))
	}
	compile := func(f table.Filter) *table.Program {
		p, err := table.Compile(f)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	// Some 125 instructions: 2.5 Mi steps for a value, a tenth of a request's bound.
	slow := compile(table.ValueRegex(`.*(?:x?){60}y`))
	endless := compile(table.ValueRegex(`.*(?:x?){900}y`))
	nothing := func([]byte, []table.Cell) error { return nil }
	keys := make([][]byte, rows)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "r%02d", i)
	}
	operations := map[string]func(as For, ctx context.Context, f *table.Program) error{
		"read": func(as For, ctx context.Context, f *table.Program) error {
			return as.ReadRow(ctx, testTable, keys[0], f, nothing)
		},
		"read rows": func(as For, ctx context.Context, f *table.Program) error {
			_, err := as.ReadRows(ctx, testTable, keys[:2], f, func(int, []byte, []table.Cell) error { return nil })
			return err
		},
		"scan": func(as For, ctx context.Context, f *table.Program) error {
			_, err := as.Scan(ctx, testTable, Range{}, f, &ScanBounds{}, nothing)
			return err
		},
		"check and mutate": func(as For, ctx context.Context, f *table.Program) error {
			_, err := as.CheckAndMutate(ctx, testTable, keys[0], f, []table.Mutation{table.Set("f", []byte("q"), 2, nil)}, nil)
			return err
		},
	}
	for name, do := range operations {
		latched := name == "check and mutate" // one turn for all
		var over *table.LimitError
		if err := do(e.For(nil), t.Context(), endless); !errors.As(err, &over) || over.What != "filter steps" {
			t.Errorf("%s without bound: %v", name, err)
		}
		var turns turnstile
		if latched {
			if err := do(e.For(nil).In(&turns), t.Context(), compile(table.ValueRegex(`.*(?:x?){9}y`))); err != nil || turns.taken != 1 || turns.in {
				t.Errorf("%s: %v after %d turns, still in one: %v", name, err, turns.taken, turns.in)
			}
			continue
		}
		if err := do(e.For(nil).In(&turns), t.Context(), slow); err != nil || turns.taken < 20 || turns.in {
			t.Errorf("%s: %v after %d turns, still in one: %v", name, err, turns.taken, turns.in)
		}
		failed := errors.New("no more turns")
		turns = turnstile{at: func(n int) error {
			if n == 3 {
				return failed
			}
			return nil
		}}
		if err := do(e.For(nil).In(&turns), t.Context(), slow); !errors.Is(err, failed) || turns.taken != 3 || turns.in {
			t.Errorf("%s refused its third turn: %v after %d", name, err, turns.taken)
		}
		ctx, cancel := context.WithCancel(t.Context())
		turns = turnstile{at: func(n int) error {
			if n == 3 {
				cancel()
			}
			return nil
		}}
		if err := do(e.For(nil).In(&turns), ctx, slow); !errors.Is(err, context.Canceled) || turns.taken != 3 {
			t.Errorf("%s whose caller has gone: %v after %d turns", name, err, turns.taken)
		}
	}
	turns := turnstile{in: true}
	cheap := compile(table.ValueRegex("a.b"))
	if _, err := e.For(nil).In(&turns).CheckAndMutate(t.Context(), testTable, keys[0], cheap, nil, nil); err != nil || turns.in {
		t.Errorf("check and mutate: %v, still in its turn: %v", err, turns.in)
	}

	batches, looked := 0, 0
	for rg := (Range{}); ; batches++ {
		most := &ScanBounds{}
		next, err := e.For(nil).Scan(t.Context(), testTable, rg, slow, most, nothing)
		if err != nil {
			t.Fatal(err)
		}
		looked += most.Looked
		if next == nil {
			break
		}
		rg.Start = next
	}
	if batches < 1 || looked != rows {
		t.Errorf("the scan looked at %d rows in %d batches that ended early, want %d in more than one", looked, batches, rows)
	}
}
