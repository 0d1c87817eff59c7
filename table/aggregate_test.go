package table

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table/hll"
)

func aggregateSchema(t *testing.T) *Schema {
	t.Helper()
	var specs []FamilySpec
	for _, text := range []string{"plain", "sum:aggregate=sum", "min:aggregate=min", "max:aggregate=max", "hll:aggregate=hll"} {
		spec, err := ParseFamilySpec(text)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	s, err := NewSchema("t", 7).Apply(specs...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFold(t *testing.T) {
	for _, tc := range []struct {
		of         Aggregate
		a, b, want int64
	}{
		{AggregateSum, 2, -5, -3}, {AggregateSum, math.MaxInt64, 1, math.MinInt64}, {AggregateSum, math.MinInt64, -1, math.MaxInt64},
		{AggregateMin, 2, -5, -5}, {AggregateMin, -5, 2, -5}, {AggregateMax, 2, -5, 2}, {AggregateMax, -5, 2, 2},
		{AggregateMax, math.MinInt64, math.MaxInt64, math.MaxInt64},
	} {
		var f Fold
		if err := errors.Join(f.Begin(tc.of, Integer(tc.a)), f.Add(Integer(tc.b))); err != nil || string(f.Value()) != string(Integer(tc.want)) {
			t.Errorf("%v of %d and %d: %x, %v", tc.of, tc.a, tc.b, f.Value(), err)
		}
	}
	for _, a := range []Aggregate{AggregateSum, AggregateHLL} {
		var f Fold
		if err := f.Begin(a, []byte("short")); !errors.Is(err, ErrBadValue) {
			t.Errorf("%v: fold of a short operand: %v", a, err)
		}
		if err := f.Add(nil); !errors.Is(err, ErrBadValue) {
			t.Errorf("%v: fold with no operand: %v", a, err)
		}
	}
}

// TestFoldSketches: integers and sketches of them are operands of a family of sketches, whose cells have any order of them.
func TestFoldSketches(t *testing.T) {
	var two hll.Sketch
	two.Add(-7)
	two.Add(9)
	ms := []Mutation{Add("hll", nil, 0, 5), Add("hll", nil, 0, -7), Merge("hll", nil, 0, two.Append(nil))}
	var operands [][]byte
	for i := range ms {
		o, err := AggregateHLL.Operand(&ms[i], make([]byte, 4))
		if err != nil {
			t.Fatal(err)
		}
		operands = append(operands, o)
	}
	two.Add(5)
	two.Add(-7)
	var f Fold
	for i := range operands {
		if err := errors.Join(f.Begin(AggregateHLL, operands[i]), f.Add(operands[(i+1)%3]), f.Add(operands[(i+2)%3])); err != nil || string(f.Value()) != string(two.Append(nil)) {
			t.Errorf("from %d: %x, %v", i, f.Value(), err)
		}
	}
}

func TestAggregateMutations(t *testing.T) {
	s := aggregateSchema(t)
	for _, tc := range []struct {
		m    Mutation
		want error
	}{
		{Add("sum", nil, 0, 1), nil},
		{Merge("max", []byte("q"), 5, Integer(1)), nil},
		{Merge("max", []byte("q"), 5, nil), ErrBadOperand},
		{Add("hll", nil, 0, 1), nil},
		{Merge("hll", nil, 0, hll.AppendOne(nil, 1)), nil},
		{Merge("hll", nil, 0, Integer(1)), ErrBadOperand},
		{Merge("hll", nil, 0, Integer(1)), hll.ErrBadSketch},
		{Merge("max", nil, 0, hll.AppendOne(nil, 1)), ErrBadOperand},
		{Mutation{Op: OpAdd, Family: "hll", Value: hll.AppendOne(nil, 1)}, ErrBadOperand},
		{Set("hll", nil, 1, hll.AppendOne(nil, 1)), ErrAggregate},
		{Add("sum", nil, ServerTimestamp, 1), ErrBadTimestamp},
		{Add("sum", make([]byte, 17<<10), 0, 1), ErrLimit},
		{Add("plain", nil, 0, 1), ErrAggregate},
		{Add("none", nil, 0, 1), ErrNoFamily},
		{Set("sum", nil, 1, Integer(1)), ErrAggregate},
		{DeleteColumn("sum", nil), nil},
		{DeleteFamily("min"), nil},
	} {
		if err := tc.m.Validate(s, nil); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%v in %s: %v, want %v", tc.m.Op, tc.m.Family, err, tc.want)
		}
	}
	for family, want := range map[string]error{"plain": nil, "sum": ErrAggregate} {
		r := Rule{Op: RuleIncrement, Family: family}
		if err := r.Validate(s, nil); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("increment in %s: %v", family, err)
		}
	}
}

// TestAggregateCodec: mutations and schemas survive, and a schema with an aggregate has the format that earlier versions reject.
func TestAggregateCodec(t *testing.T) {
	ms := []Mutation{Add("sum", []byte("q"), 3, -9), Merge("max", []byte{}, 0, Integer(math.MaxInt64)), Set("plain", nil, ServerTimestamp, nil)}
	var e wire.Encoder
	AppendMutations(&e, ms)
	d := wire.NewDecoder(e.Bytes())
	got, err := DecodeMutations(&d, nil, nil, nil)
	if err != nil || len(got) != 3 {
		t.Errorf("got %v, %v", got, err)
	}
	for i := range 2 {
		if !reflect.DeepEqual(got[i], ms[i]) {
			t.Errorf("got %+v, want %+v", got[i], ms[i])
		}
	}
	s := aggregateSchema(t)
	e = wire.Encoder{}
	AppendSchema(&e, s)
	d = wire.NewDecoder(e.Bytes())
	if back, err := DecodeSchema(&d, nil); err != nil || !back.Equal(s) || back.Family("max").Aggregate != AggregateMax || back.Family("hll").Aggregate != AggregateHLL {
		t.Errorf("got %+v, %v", back, err)
	}
	if !strings.Contains(string(e.Bytes()), "\xa6format\x08") {
		t.Errorf("the format of a schema with sketches is not 8: %q", e.Bytes())
	}
	s, err = s.DropFamily("hll")
	if err != nil {
		t.Fatal(err)
	}
	e = wire.Encoder{}
	AppendSchema(&e, s)
	if !strings.Contains(string(e.Bytes()), "\xa6format\x04") {
		t.Errorf("the format of a schema with aggregates is not 4: %q", e.Bytes())
	}
	e = wire.Encoder{}
	AppendSchema(&e, mustSchema(t, "f"))
	if strings.Contains(string(e.Bytes()), "format") || strings.Contains(string(e.Bytes()), "aggregate") {
		t.Errorf("a schema without aggregates: %q", e.Bytes())
	}
}

// TestAggregateNeverChanges: neither Alter nor Apply changes the aggregate of a family.
func TestAggregateNeverChanges(t *testing.T) {
	s := aggregateSchema(t)
	for _, text := range []string{"sum:aggregate=min", "sum:aggregate=none", "plain:aggregate=sum"} {
		spec, err := ParseFamilySpec(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Alter(Change{Op: ChangeFamily, Family: spec}); !errors.Is(err, ErrBadSchema) {
			t.Errorf("%s: %v", text, err)
		}
	}
	same, err := ParseFamilySpec("sum:aggregate=sum,versions=2")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.Apply(same, FamilySpec{Name: "max", Group: "g"}); err != nil || c.Family("sum").Aggregate != AggregateSum || c.Family("max").Aggregate != AggregateMax {
		t.Errorf("%+v, %v", c, err)
	}
	if spec, _ := s.Spec("min"); spec.String() != "min:group=default,aggregate=min" {
		t.Errorf("spec %s", &spec)
	}
	for _, bad := range []string{"a:aggregate=mean", "a:aggregate", "a:aggregate=sum,aggregate=sum"} {
		if _, err := ParseFamilySpec(bad); !errors.Is(err, ErrBadSpec) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	c := s.Clone()
	c.Families[0].Aggregate = 9
	if err := c.Validate(nil); !errors.Is(err, ErrBadSchema) {
		t.Errorf("unknown aggregate: %v", err)
	}
}

// TestReplaceCell: what replaces a cell of an aggregate family covers exactly its timestamp.
func TestReplaceCell(t *testing.T) {
	s := aggregateSchema(t)
	s.Granularity = GranularityMillis
	for _, tc := range []struct {
		c    Cell
		want []Mutation
	}{
		{Cell{Family: "plain", Timestamp: 1000, Value: []byte("v")}, []Mutation{Set("plain", nil, 1000, []byte("v"))}},
		{Cell{Family: "other", Timestamp: 1000}, []Mutation{Set("other", nil, 1000, nil)}},
		{Cell{Family: "sum", Timestamp: 1000, Value: Integer(7)}, []Mutation{DeleteColumnRange("sum", nil, 1000, Before(2000)), Merge("sum", nil, 1000, Integer(7))}},
		{Cell{Family: "sum", Timestamp: math.MaxInt64, Value: Integer(7)},
			[]Mutation{DeleteColumnRange("sum", nil, math.MaxInt64, TimestampEnd{}), Merge("sum", nil, math.MaxInt64, Integer(7))}},
	} {
		if got := s.ReplaceCell(&tc.c); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%+v: got %+v", tc.c, got)
		}
	}
}
