package table

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestMutationValidate(t *testing.T) {
	schema := mustSchema(t, "f")
	q := []byte("q")
	long := make([]byte, 16<<10+1)
	lim := &Limits{ValueBytes: 10, QualifierBytes: 16 << 10}
	tests := []struct {
		m    Mutation
		want error
	}{
		{Set("f", q, 5, []byte("v")), nil},
		{Set("f", nil, 0, nil), nil},
		{Set("f", q, ServerTimestamp, nil), nil},
		{Set("f", long[1:], 1, nil), nil},
		{Set("f", q, -2, nil), ErrBadTimestamp},
		{Set("g", q, 5, nil), ErrNoFamily},
		{Set("f", long, 5, nil), ErrLimit},
		{Set("f", q, 5, make([]byte, 10)), nil},
		{Set("f", q, 5, make([]byte, 11)), ErrLimit},
		{DeleteColumn("f", q), nil},
		{DeleteColumn("g", q), ErrNoFamily},
		{DeleteColumn("f", long), ErrLimit},
		{DeleteColumnRange("f", q, 5, TimestampEnd{}), nil},
		{DeleteColumnRange("f", q, 5, Before(6)), nil},
		{DeleteColumnRange("f", q, 5, Before(5)), ErrBadTimestamp},
		{DeleteColumnRange("f", q, 5, Before(4)), ErrBadTimestamp},
		{DeleteColumnRange("f", q, -1, Before(4)), ErrBadTimestamp},
		{DeleteColumnRange("f", q, 0, Before(-1)), ErrBadTimestamp},
		{DeleteColumnRange("f", q, 0, Before(0)), ErrBadTimestamp},
		{DeleteColumnRange("f", q, 0, TimestampEnd{}), nil},
		{DeleteFamily("f"), nil},
		{DeleteFamily("g"), ErrNoFamily},
		{DeleteRow(), nil},
		{Mutation{}, ErrBadOp},
		{Mutation{Op: 7, Family: "f"}, ErrBadOp},
	}
	for _, tc := range tests {
		if err := tc.m.Validate(schema, lim); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%.60v: error %v, want %v", tc.m, err, tc.want)
		}
	}
	m := Set("a b", q, 1, nil)
	if err := m.Validate(nil, nil); !errors.Is(err, ErrBadName) {
		t.Errorf("name without schema: error %v", err)
	}
	if m = Set("unknown", q, 1, nil); m.Validate(nil, nil) != nil {
		t.Error("a valid name is rejected without a schema")
	}
}

func TestRowMutationValidate(t *testing.T) {
	schema := mustSchema(t, "f")
	one := []Mutation{DeleteRow()}
	set := func(n int) Mutation { return Set("f", []byte("q"), 1, make([]byte, n)) }
	tests := []struct {
		r    RowMutation
		lim  *Limits
		want error
		text string
	}{
		{RowMutation{[]byte("r"), one, nil}, nil, nil, ""},
		{RowMutation{nil, one, nil}, nil, ErrBadRowKey, ""},
		{RowMutation{make([]byte, 64<<10), one, nil}, nil, nil, ""},
		{RowMutation{make([]byte, 64<<10+1), one, nil}, nil, ErrLimit, "row key bytes: 65537 is over the limit of 65536"},
		{RowMutation{[]byte("r"), one, &Token{ID: make([]byte, 8)}}, nil, nil, ""},
		{RowMutation{[]byte("r"), one, &Token{ID: make([]byte, 7)}}, nil, ErrBadToken, "bad idempotency token: 7 bytes, want at least 8"},
		{RowMutation{[]byte("r"), one, &Token{ID: make([]byte, 1025)}}, nil, ErrLimit, "idempotency token bytes: 1025 is over the limit of 1024"},
		{RowMutation{[]byte("r"), one, &Token{ID: make([]byte, 8), Start: -1}}, nil, ErrBadToken, "start time -1 is negative"},
		{RowMutation{[]byte("r"), nil, nil}, nil, ErrNoMutations, ""},
		{RowMutation{[]byte("r"), make([]Mutation, 3), nil}, &Limits{Mutations: 2}, ErrLimit, "mutations in a row mutation: 3"},
		{RowMutation{[]byte("r"), []Mutation{one[0], Set("g", nil, 1, nil)}, nil}, nil, ErrNoFamily,
			`mutation 1: table "web" has no column family "g"`},
		{RowMutation{[]byte("r"), []Mutation{set(10), set(11)}, nil}, &Limits{RowMutationBytes: 26}, nil, ""},
		{RowMutation{[]byte("r"), []Mutation{set(10), set(12)}, nil}, &Limits{RowMutationBytes: 26}, ErrLimit,
			"row mutation bytes: 27 is over the limit of 26"},
	}
	for _, tc := range tests {
		err := tc.r.Validate(schema, tc.lim)
		if !errors.Is(err, tc.want) || tc.want == nil && err != nil || err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("error %v, want %v with %q", err, tc.want, tc.text)
		}
	}
	full := DefaultLimits()
	r := RowMutation{[]byte("r"), []Mutation{set(10), DeleteColumn("f", nil)}, nil}
	for _, lim := range []*Limits{nil, &full} {
		if n := testing.AllocsPerRun(100, func() { _ = r.Validate(schema, lim) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// TestLimitsDefaults: every field has a default that replaces zero and leaves other values alone.
func TestLimitsDefaults(t *testing.T) {
	var zero Limits
	def := reflect.ValueOf(DefaultLimits())
	filled := reflect.ValueOf(zero.WithDefaults())
	for i := range def.NumField() {
		name := def.Type().Field(i).Name
		if def.Field(i).Int() <= 0 || filled.Field(i).Int() != def.Field(i).Int() {
			t.Errorf("%s: default %v, filled in %v", name, def.Field(i), filled.Field(i))
		}
		l := DefaultLimits()
		reflect.ValueOf(&l).Elem().Field(i).SetInt(0)
		if l.full() || *l.orDefault() != DefaultLimits() {
			t.Errorf("%s of zero is not filled in", name)
		}
		reflect.ValueOf(&l).Elem().Field(i).SetInt(12345)
		if got := reflect.ValueOf(l.WithDefaults()).Field(i).Int(); got != 12345 {
			t.Errorf("%s of 12345 becomes %d", name, got)
		}
	}
}

func TestCompareCells(t *testing.T) {
	sorted := []Cell{
		cell("", "", 1, ""), cell("a", "", 9, ""), cell("a", "", 1, ""), cell("a", "\x00", 9, ""), cell("a", "b", 0, ""),
		cell("a", "\xff", 5, ""), cell("b", "", 5, ""),
	}
	for i := range sorted {
		for j := range sorted {
			if got := CompareCells(&sorted[i], &sorted[j]); got != min(max(i-j, -1), 1) {
				t.Errorf("cells %d and %d compare as %d", i, j, got)
			}
		}
	}
}
