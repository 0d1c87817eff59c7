package table

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"pgregory.net/rapid"
)

func genMutation(t *rapid.T) Mutation {
	family := sample(t, "family", genFamilies)
	qualifier := []byte(sample(t, "qualifier", genQualifiers))
	switch Op(1 + pick(t, "op", 4)) {
	case OpSet:
		ts := rapid.Int64Min(ServerTimestamp).Draw(t, "timestamp")
		return Set(family, qualifier, ts, rapid.SliceOf(rapid.Byte()).Draw(t, "value"))
	case OpDeleteColumn:
		start := rapid.Int64Range(0, 1<<40).Draw(t, "start")
		return DeleteColumnRange(family, qualifier, start, sample(t, "end", []TimestampEnd{{}, Before(start + 1), Before(1 << 62)}))
	case OpDeleteFamily:
		return DeleteFamily(family)
	}
	return DeleteRow()
}

// same compares and treats nil and empty slices as equal.
func same(a, b any) bool {
	return reflect.DeepEqual(normal(reflect.ValueOf(a)), normal(reflect.ValueOf(b)))
}

func normal(v reflect.Value) any {
	if end, ok := v.Interface().(TimestampEnd); ok {
		return end
	}
	switch v.Kind() {
	case reflect.Slice:
		var out []any
		for i := range v.Len() {
			out = append(out, normal(v.Index(i)))
		}
		return out
	case reflect.Struct:
		out := []any{v.Type().Name()}
		for i := range v.NumField() {
			out = append(out, normal(v.Field(i)))
		}
		return out
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return []any{v.Elem().Type().Name(), normal(v.Elem())}
	}
	return v.Interface()
}

func TestMutationRoundTrip(t *testing.T) {
	in := NewInterner(3)
	var got RowMutation // shared by all cases to exercise reuse of its memory
	rapid.Check(t, func(t *rapid.T) {
		want := RowMutation{Row: genKey(t)}
		for range rapid.IntRange(0, 6).Draw(t, "mutations") {
			want.Mutations = append(want.Mutations, genMutation(t))
		}
		b := wiretest.Encode(func(e *wire.Encoder) { AppendRowMutation(e, &want) })
		if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
			t.Fatalf("not one whole message: %d of %d, %v", n, len(b), err)
		}
		d := wire.NewDecoder(b)
		if err := DecodeRowMutation(&d, &got, in, nil); err != nil || d.More() {
			t.Fatalf("decode %+v: %v", want, err)
		}
		if !same(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestRowRoundTrip(t *testing.T) {
	in := NewInterner(10)
	var got Row
	rapid.Check(t, func(t *rapid.T) {
		want := Row{Key: genKey(t), Cells: genCells(t)}
		for i := range want.Cells {
			want.Cells[i].Labels = [][]string{nil, {"x"}, {"y"}, {"x", "y"}}[pick(t, "labels", 4)]
		}
		b := wiretest.Encode(func(e *wire.Encoder) { AppendRow(e, want.Key, want.Cells) })
		d := wire.NewDecoder(b)
		if err := DecodeRow(&d, &got, in); err != nil || d.More() {
			t.Fatalf("decode %+v: %v", want, err)
		}
		if !same(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestRuleRoundTrip(t *testing.T) {
	for _, want := range []Rule{
		{Op: RuleAppend, Family: "f", Qualifier: []byte("q"), Value: []byte("v")},
		{Op: RuleIncrement, Family: "f", Qualifier: []byte{}, Amount: -5},
	} {
		b := wiretest.Encode(func(e *wire.Encoder) { AppendRule(e, &want) })
		d := wire.NewDecoder(b)
		var got Rule
		if err := DecodeRule(&d, &got, nil); err != nil || !same(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestFilterRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genFilter(t, allLeaves, 5, true, true)
		b := wiretest.Encode(func(e *wire.Encoder) { AppendFilter(e, want) })
		d := wire.NewDecoder(b)
		got, err := DecodeFilter(&d, nil)
		if err != nil || d.More() {
			t.Fatalf("decode %#v: %v", want, err)
		}
		clear(b) // the filter must not alias it
		if !same([]Filter{got}, []Filter{want}) {
			t.Fatalf("got %#v, want %#v", got, want)
		}
	})
}

func TestSchemaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := NewSchema("web-1.x_Y", rapid.Uint64().Draw(t, "id"))
		for range pick(t, "groups", 3) {
			g := LocalityGroup{
				Name: sample(t, "group", genFamilies), BlockBytes: sample(t, "block", []int{0, 1024, 8192}),
				Compression: Compression(pick(t, "compression", 5)), Bloom: BloomMode(pick(t, "bloom", 4)),
				InMemory: rapid.Bool().Draw(t, "in memory"),
			}
			want, _ = want.SetGroup(g)
		}
		for _, name := range genFamilies[:pick(t, "families", 5)] {
			f := Family{Name: name, Group: want.Groups[pick(t, "in group", len(want.Groups))].Name}
			if rapid.Bool().Draw(t, "gc") {
				f.GC = genPolicy(t, 3)
			}
			want, _ = want.AddFamily(f)
		}
		want.Granularity = Granularity(pick(t, "granularity", int(numGranularities)))
		want.Protected = pick(t, "protected", 2) == 1
		want.ChangeRetention = time.Duration(pick(t, "change stream", 3)) * ChangeRetentionMin
		if pick(t, "follows", 2) == 1 {
			want, _ = want.Follow("east")
		}
		b := wiretest.Encode(func(e *wire.Encoder) { AppendSchema(e, want) })
		d := wire.NewDecoder(b)
		got, err := DecodeSchema(&d, nil)
		if err != nil || d.More() || !got.Equal(want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

// TestWireForms pins the encoded bytes, on which clients in other languages and stored schemas
// depend.
func TestWireForms(t *testing.T) {
	q, v := []byte("q"), []byte("v")
	c := Cell{"f", q, 7, v, nil}
	labelled := Cell{"f", q, 7, v, []string{"l"}}
	p := Intersection(MaxVersions(1), MaxAge(time.Hour))
	filter := func(f Filter) func(*wire.Encoder) { return func(e *wire.Encoder) { AppendFilter(e, f) } }
	mutation := func(m Mutation) func(*wire.Encoder) { return func(e *wire.Encoder) { AppendMutation(e, &m) } }
	schema := mustSchema(t, "f:versions=2,group=g,block=1KiB,bloom=row,compression=none,in-memory")
	millis := mustSchema(t, "f").Clone()
	millis.Granularity = GranularityMillis
	for _, tc := range []struct {
		write func(*wire.Encoder)
		want  string // as a MessagePack dump
	}{
		{func(e *wire.Encoder) { AppendCell(e, &c) }, `["f" <q> 7 <v>]`},
		{func(e *wire.Encoder) { AppendCell(e, &labelled) }, `["f" <q> 7 <v> ["l"]]`},
		{func(e *wire.Encoder) { AppendRow(e, []byte("r"), []Cell{c}) }, `[<r> [["f" <q> 7 <v>]]]`},
		{mutation(Set("f", q, 7, v)), `["set" "f" <q> 7 <v>]`},
		{mutation(Set("f", q, ServerTimestamp, v)), `["set" "f" <q> nil <v>]`},
		{mutation(DeleteColumn("f", q)), `["del_column" "f" <q>]`},
		{mutation(DeleteColumnRange("f", q, 0, Before(9))), `["del_column" "f" <q> 0 9]`},
		{mutation(DeleteColumnRange("f", q, 5, TimestampEnd{})), `["del_column" "f" <q> 5 nil]`},
		{mutation(DeleteFamily("f")), `["del_family" "f"]`},
		{mutation(DeleteRow()), `["del_row"]`},
		{func(e *wire.Encoder) { AppendRowMutation(e, &RowMutation{[]byte("r"), []Mutation{DeleteRow()}, nil}) }, `[<r> [["del_row"]]]`},
		{func(e *wire.Encoder) {
			AppendRowMutation(e, &RowMutation{[]byte("r"), []Mutation{DeleteRow()}, &Token{ID: []byte("12345678"), Start: 9}})
		}, `[<r> [["del_row"]] [<12345678> 9]]`},
		{func(e *wire.Encoder) { AppendToken(e, &Token{ID: []byte("12345678")}) }, `[<12345678> nil]`},
		{func(e *wire.Encoder) { AppendRule(e, &Rule{Op: RuleAppend, Family: "f", Qualifier: q, Value: v}) }, `["append" "f" <q> <v>]`},
		{func(e *wire.Encoder) { AppendRule(e, &Rule{Op: RuleIncrement, Family: "f", Qualifier: q, Amount: -1}) }, `["increment" "f" <q> -1]`},
		{func(e *wire.Encoder) { AppendGCPolicy(e, &p) }, `"versions=1 and age=1h"`},
		{filter(nil), `nil`},
		{filter(PassAll{}), `["pass"]`},
		{filter(BlockAll{}), `["block"]`},
		{filter(Sink{}), `["sink"]`},
		{filter(StripValue{}), `["strip"]`},
		{filter(RowRegex("a")), `["row" <a>]`},
		{filter(FamilyRegex("a")), `["family" <a>]`},
		{filter(QualifierRegex("a")), `["qualifier" <a>]`},
		{filter(ValueRegex("a")), `["value" <a>]`},
		{filter(RowSample(0.5)), `["sample" 0.5]`},
		{filter(ApplyLabel("l")), `["label" "l"]`},
		{filter(TimestampRange{5, Before(9)}), `["timestamps" 5 9]`},
		{filter(TimestampRange{Start: 5}), `["timestamps" 5 nil]`},
		{filter(CellsPerRowLimit(3)), `["cells_limit" 3]`},
		{filter(CellsPerRowOffset(3)), `["cells_offset" 3]`},
		{filter(CellsPerColumnLimit(3)), `["versions" 3]`},
		{filter(ColumnRange{"f", ByteRange{Closed(q), Open(v)}}), `["columns" "f" {"start_closed":<q> "end_open":<v>}]`},
		{filter(ValueRange{Open(q), Closed(v)}), `["values" {"start_open":<q> "end_closed":<v>}]`},
		{filter(ValueMask("q\x01")), "[\"value_mask\" <q\x01>]"},
		{filter(ValueRange{}), `["values" {}]`},
		{filter(Chain{PassAll{}, Interleave{Sink{}, nil}}), `["chain" ["pass"] ["interleave" ["sink"] nil]]`},
		{filter(Condition{PassAll{}, nil, BlockAll{}}), `["condition" ["pass"] nil ["block"]]`},
		{func(e *wire.Encoder) { AppendSchema(e, schema) }, `{"name":"web" "id":7 "next_family_id":2 ` +
			`"families":[{"name":"f" "id":1 "gc":"versions=2" "group":"g"}] "groups":[{"name":"default"} ` +
			`{"name":"g" "block_bytes":1024 "compression":"none" "bloom":"row" "in_memory":true}]}`},
		{func(e *wire.Encoder) { AppendSchema(e, millis) }, `{"format":2 "granularity":"millis" "name":"web" "id":7 "next_family_id":2 ` +
			`"families":[{"name":"f" "id":1 "group":"default"}] "groups":[{"name":"default"}]}`},
	} {
		d := wire.NewDecoder(wiretest.Encode(tc.write))
		if got := dump(&d); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

// dump formats the next value as text: strings in quotes, byte strings in <>.
func dump(d *wire.Decoder) string {
	list := func(n int) string {
		var parts []string
		for range n {
			parts = append(parts, dump(d))
		}
		return strings.Join(parts, " ")
	}
	switch d.Peek() {
	case wire.KindNil:
		d.IsNil()
		return "nil"
	case wire.KindBool:
		if d.Bool() {
			return "true"
		}
		return "false"
	case wire.KindInt:
		return itoa(d.Int())
	case wire.KindFloat:
		if d.Float() == 0.5 {
			return "0.5"
		}
		return "float"
	case wire.KindStr:
		return `"` + d.Str() + `"`
	case wire.KindBytes:
		return "<" + d.Str() + ">"
	case wire.KindArray:
		return "[" + list(d.Array()) + "]"
	case wire.KindMap:
		var parts []string
		for range d.Map() {
			parts = append(parts, dump(d)+":"+dump(d))
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	return "error: " + d.Err().Error()
}

// pack encodes values with a generic MessagePack encoder.
func pack(v any) []byte {
	return wiretest.Encode(func(e *wire.Encoder) { packInto(e, v) })
}

func packInto(e *wire.Encoder, v any) {
	switch v := v.(type) {
	case nil:
		e.Nil()
	case int:
		e.Int(int64(v))
	case float64:
		e.Float(v)
	case string:
		e.Str(v)
	case []byte:
		e.Bin(v)
	case []any:
		e.Array(len(v))
		for _, x := range v {
			packInto(e, x)
		}
	case map[string]any:
		e.Map(len(v))
		for k, x := range v {
			e.Str(k)
			packInto(e, x)
		}
	}
}

type list = []any

func TestDecodeErrors(t *testing.T) {
	decodeRM := func(d *wire.Decoder) error { return DecodeRowMutation(d, &RowMutation{}, nil, &Limits{Mutations: 2}) }
	decodeRow := func(d *wire.Decoder) error { return DecodeRow(d, &Row{}, nil) }
	decodeSchema := func(d *wire.Decoder) error { _, err := DecodeSchema(d, &Limits{Families: 2}); return err }
	decodeRule := func(d *wire.Decoder) error { return DecodeRule(d, &Rule{}, nil) }
	decodeGC := func(d *wire.Decoder) error { _, err := DecodeGCPolicy(d); return err }
	del := list{"del_row"}
	for _, tc := range []struct {
		decode func(*wire.Decoder) error
		in     any
		text   string
		is     error
	}{
		{decodeRM, list{"r"}, "row mutation: 1 elements, want at least 2", nil},
		{decodeRM, "r", "row mutation: ", nil},
		{decodeRM, list{5, list{}}, "row key: ", nil},
		{decodeRM, list{"r", 5}, "decode mutations: ", nil},
		{decodeRM, list{"r", list{del, del, del}}, "mutations: mutations in a row mutation: 3 is over the limit of 2", ErrLimit},
		{decodeRM, list{"r", list{del, list{"put"}}}, "decode mutation 1: operation: unknown operation", ErrBadOp},
		{decodeRM, list{"r", list{list{}}}, "mutation 0: operation: ", nil},
		{decodeRM, list{"r", list{list{"set", "f", "q", nil}}}, "mutation 0: form: set has 4 elements, want 5", nil},
		{decodeRM, list{"r", list{list{"set", 5, "q", nil, "v"}}}, "mutation 0: family: ", nil},
		{decodeRM, list{"r", list{list{"set", "f", nil, nil, "v"}}}, "mutation 0: qualifier: ", nil},
		{decodeRM, list{"r", list{list{"set", "f", "q", "now", "v"}}}, "mutation 0: timestamp: ", nil},
		{decodeRM, list{"r", list{list{"set", "f", "q", 5, 5}}}, "mutation 0: value: ", nil},
		{decodeRM, list{"r", list{list{"del_column", "f", "q", 1, "x"}}}, "mutation 0: timestamp range: ", nil},
		{decodeRM, list{"r", list{list{"del_column", "f", "q", 1, 2, 3}}}, "form: del_column has 6 elements, want 3", nil},
		{decodeRM, list{"r", list{list{"set", "f", "q", -1, "v"}}}, "mutation 0: timestamp: timestamp is negative", ErrBadTimestamp},
		{decodeRM, list{"r", list{list{"del_row", 1}}}, "form: del_row has 2 elements, want 1", nil},
		{decodeRow, list{"k", 5}, "cells: ", nil},
		{decodeRow, list{"k", list{5}}, "cell 0: form: ", nil},
		{decodeRow, list{"k"}, "row: 1 elements", nil},
		{decodeRow, list{"k", list{list{"f", "q", 1, "v"}, list{"f", "q", 1}}}, "decode cell 1: form: 3 elements, want at least 4", nil},
		{decodeRow, list{"k", list{list{"f", "q", "x", "v"}}}, "cell 0: timestamp: ", nil},
		{decodeRow, list{"k", list{list{"f", "q", 1, "v", 5}}}, "cell 0: labels: ", nil},
		{decodeRule, list{"subtract", "f", "q", 1}, "operation: unknown operation", ErrBadOp},
		{decodeRule, list{"append", "f", "q"}, "form: append has 3 elements, want 4", nil},
		{decodeRule, list{"increment", "f", "q", "x"}, "amount: ", nil},
		{decodeGC, "versions=x", "gc policy: ", ErrBadGCPolicy},
		{decodeGC, strings.Repeat(" ", 9000), "gc policy bytes: 9000 is over", ErrLimit},
		{decodeSchema, map[string]any{"name": 5}, "schema: name: ", nil},
		{decodeSchema, map[string]any{"next_family_id": 1 << 32}, "next_family_id: 4294967296 is over 32 bits", nil},
		{decodeSchema, map[string]any{"families": list{1, 2, 3}}, "families in a table: 3 is over", ErrLimit},
		{decodeSchema, map[string]any{"families": list{map[string]any{"gc": "x"}}}, "schema: families: element 0: family: gc: gc policy: ", ErrBadGCPolicy},
		{decodeSchema, map[string]any{"groups": list{map[string]any{"bloom": "x"}}}, "groups: element 0: group: bloom: unknown name", nil},
		{decodeSchema, map[string]any{"name": "t"}, "the default group is missing", ErrBadSchema},
	} {
		d := wire.NewDecoder(pack(tc.in))
		err := tc.decode(&d)
		var de *DecodeError
		if !errors.As(err, &de) || !errors.Is(err, ErrBadEncoding) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%v: error %q, want a *DecodeError with %q", tc.in, err, tc.text)
		}
		if tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%v: error %q is not %q", tc.in, err, tc.is)
		}
		if d.Err() == nil {
			t.Errorf("%v: the decoder does not record the error", tc.in)
		}
	}
}

func TestDecodeFilterErrors(t *testing.T) {
	var deep any = list{"pass"}
	for range 20 {
		deep = list{"chain", deep}
	}
	wide := list{"interleave"}
	for range 1000 {
		wide = append(wide, nil)
	}
	for _, tc := range []struct {
		in   any
		path string
		text string
		is   error
	}{
		{"pass", "root", "is not an array", nil},
		{list{}, "root", "is not an array that begins with a name", nil},
		{list{5}, "root", "is not an array that begins with a name", nil},
		{list{"all"}, "root", `unknown name "all"`, nil},
		{list{"pass", 1}, "root", "pass has 1 arguments, want 0", nil},
		{list{"chain"}, "root", "chain has 0 arguments, want 1", nil},
		{list{"condition", list{"pass"}}, "root", "condition has 1 arguments, want 3", nil},
		{list{"chain", list{"pass"}, list{"condition", nil, nil, list{"versions", "x"}}},
			"chain[1].condition.false", "arguments of versions", nil},
		{list{"values", map[string]any{"start": "a"}}, "root", `unknown bound "start"`, nil},
		{list{"values", map[string]any{"start_open": "a", "start_closed": "b"}}, "root", "two starts", nil},
		{list{"columns", "f", 5}, "root", "arguments of columns", nil},
		{list{"row", make([]byte, 21<<10)}, "root", "filter bytes: 21504 is over", ErrLimit},
		{deep, "", "levels of a filter: 21", ErrLimit},
		{wide, "root", "filters in one tree: 1001", ErrLimit},
	} {
		d := wire.NewDecoder(pack(tc.in))
		_, err := DecodeFilter(&d, nil)
		var fe *FilterError
		if !errors.As(err, &fe) || !errors.Is(err, ErrBadFilter) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%.60v: error %q, want a *FilterError with %q", tc.in, err, tc.text)
			continue
		}
		if tc.path != "" && fe.Path != tc.path {
			t.Errorf("%.60v: path %q, want %q", tc.in, fe.Path, tc.path)
		}
		if tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%.60v: error %q is not %q", tc.in, err, tc.is)
		}
	}
}

// TestEndOfZeroIsABound: only nil means an unbounded timestamp range. A computed end of 0 must not
// select everything.
func TestEndOfZeroIsABound(t *testing.T) {
	for _, start := range []any{nil, 0, 100} {
		var rm RowMutation
		d := wire.NewDecoder(pack(list{"r", list{list{"del_column", "f", "q", start, 0}}}))
		if err := DecodeRowMutation(&d, &rm, nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := rm.Validate(nil, nil); !errors.Is(err, ErrBadTimestamp) {
			t.Errorf("delete from %v to 0: %v, want %v", start, err, ErrBadTimestamp)
		}
		d = wire.NewDecoder(pack(list{"timestamps", start, 0}))
		f, err := DecodeFilter(&d, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile(f)
		if start == 100 {
			if !errors.Is(err, ErrBadFilter) || !strings.Contains(err.Error(), "start 100, end 0") {
				t.Errorf("filter from 100 to 0: %v, want %v", err, ErrBadFilter)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		in := []Cell{cell("f", "q", 100, "v"), cell("f", "q", 0, "v")}
		if out, err := new(Evaluator).Eval(p, []byte("r"), in); err != nil || len(out) > 0 {
			t.Errorf("filter from %v to 0 passes %v, %v", start, out, err)
		}
	}
}

// TestDecodeLenient covers input from other clients and later versions.
func TestDecodeLenient(t *testing.T) {
	var rm RowMutation
	d := wire.NewDecoder(pack(list{"r", list{
		list{[]byte("set"), []byte("f"), "text qualifier", nil, "text value"},
		list{"del_column", "f", "q", nil, 5}, list{"del_column", "f", "q", 5, nil}, list{"del_column", "f", "q", 5},
	}}))
	if err := DecodeRowMutation(&d, &rm, nil, nil); err != nil {
		t.Fatal(err)
	}
	q := []byte("q")
	want := RowMutation{[]byte("r"), []Mutation{
		Set("f", []byte("text qualifier"), ServerTimestamp, []byte("text value")),
		DeleteColumnRange("f", q, 0, Before(5)), DeleteColumnRange("f", q, 5, TimestampEnd{}), DeleteColumnRange("f", q, 5, TimestampEnd{}),
	}, nil}
	if !same(rm, want) {
		t.Errorf("got %+v", rm)
	}
	var row Row
	d = wire.NewDecoder(pack(list{"k", list{list{"f", "q", 1, "v", list{}, "later"}}, "later"}))
	if err := DecodeRow(&d, &row, nil); err != nil || len(row.Cells) != 1 || d.More() {
		t.Errorf("row %+v, %v", row, err)
	}
	d = wire.NewDecoder(pack(map[string]any{"name": "t", "groups": list{map[string]any{"name": "default", "later": list{1}}}, "later": 5}))
	if s, err := DecodeSchema(&d, nil); err != nil || s.Name != "t" {
		t.Errorf("schema %+v, %v", s, err)
	}
	d = wire.NewDecoder(pack(list{"chain", list{"sample", 1}, list{"timestamps", nil, nil}}))
	f, err := DecodeFilter(&d, nil)
	if err != nil || !same([]Filter{f}, []Filter{Chain{RowSample(1), TimestampRange{}}}) {
		t.Errorf("filter %#v, %v", f, err)
	}
}

// TestDecodeAllocs: a request similar to the previous one decodes without an allocation.
func TestDecodeAllocs(t *testing.T) {
	schema := mustSchema(t, "anchor", "contents")
	in := schema.Interner()
	want := RowMutation{Row: []byte("com.cnn.www"), Mutations: []Mutation{
		Set("anchor", []byte("cnnsi.com"), ServerTimestamp, []byte("CNN")),
		Set("contents", nil, 5, make([]byte, 1000)), DeleteColumn("anchor", []byte("x")),
	}}
	b := wiretest.Encode(func(e *wire.Encoder) { AppendRowMutation(e, &want) })
	var rm RowMutation
	if n := testing.AllocsPerRun(100, func() {
		d := wire.NewDecoder(b)
		if err := DecodeRowMutation(&d, &rm, in, nil); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("row mutation: %v allocations", n)
	}
	cells := []Cell{cell("a", "q", 5, "v", "x"), cell("a", "r", 5, "v", "x"), cell("b", "q", 5, "v")}
	b = wiretest.Encode(func(e *wire.Encoder) { AppendRow(e, []byte("r"), cells) })
	var row Row
	learning := NewInterner(10)
	if n := testing.AllocsPerRun(100, func() {
		d := wire.NewDecoder(b)
		if err := DecodeRow(&d, &row, learning); err != nil {
			t.Fatal(err)
		}
	}); n > 1 { // the slice that holds the label
		t.Errorf("row: %v allocations", n)
	}
}

// TestDecodeIsBounded: a short input that declares many elements allocates little.
func TestDecodeIsBounded(t *testing.T) {
	head, err := hex.DecodeString("92a172dd0001869f") // [ "r", [ 99,999 elements
	if err != nil {
		t.Fatal(err)
	}
	b := append(head, bytes.Repeat([]byte{0xc0}, 100_000)...)
	for name, decode := range map[string]func(d *wire.Decoder) error{
		"row mutation": func(d *wire.Decoder) error { return DecodeRowMutation(d, &RowMutation{}, nil, nil) },
		"row":          func(d *wire.Decoder) error { return DecodeRow(d, &Row{}, nil) },
	} {
		got := allocated(func() {
			d := wire.NewDecoder(b)
			if err := decode(&d); err == nil {
				t.Fatal("decoded")
			}
		})
		// 112 bytes of a mutation per 9 of input, 96 of a cell per 5.
		if got > 20*uint64(len(b)) {
			t.Errorf("%s: %d bytes of input took %d", name, len(b), got)
		}
	}
}
