package table

import (
	"bytes"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

// FuzzFilterDecode: a decoded filter encodes to the same filter, and a compiled filter evaluates
// like the reference.
func FuzzFilterDecode(f *testing.F) {
	for _, filter := range []Filter{
		nil, Chain{FamilyRegex("a.*"), CellsPerColumnLimit(1), StripValue{}},
		Interleave{Chain{ApplyLabel("x"), Sink{}}, ColumnRange{"f", ByteRange{Closed([]byte("a")), Open([]byte("b"))}}},
		Condition{ValueRegex(`a\C*`), PassAll{}, BlockAll{}}, TimestampRange{1, Before(2)}, RowSample(0.5),
		Chain{CellsPerRowOffset(1), CellsPerRowLimit(2)}, ValueRange{Open([]byte("a")), Closed([]byte("b"))}, ValueMask("\x01"),
		QualifierRegex("(a|b)+"), RowRegex("com.*"),
	} {
		f.Add(wiretest.Encode(func(e *wire.Encoder) { AppendFilter(e, filter) }))
	}
	cells := []Cell{
		cell("a", "a", 2, "1"), cell("a", "a", 1, "a"), cell("a", "b", 1, "ab"), cell("b", "a", 3, "\xff"), cell("f", "ab", 2, ""),
	}
	key := []byte("com.cnn.www")
	// Small limits, because the fuzzer should find wrong results rather than slow ones.
	lim := &Limits{RegexCost: 32 << 10, FilterNodes: 50, FilterCells: 1000}
	var e Evaluator
	f.Fuzz(func(t *testing.T, b []byte) {
		d := wire.NewDecoder(b)
		filter, err := DecodeFilter(&d, lim)
		if err != nil {
			return
		}
		again := wiretest.Encode(func(e *wire.Encoder) { AppendFilter(e, filter) })
		d = wire.NewDecoder(again)
		back, err := DecodeFilter(&d, lim)
		if err != nil {
			t.Fatalf("decode again: %v", err)
		}
		if twice := wiretest.Encode(func(e *wire.Encoder) { AppendFilter(e, back) }); !bytes.Equal(again, twice) {
			t.Fatalf("%x encodes again as %x", again, twice)
		}
		p, err := CompileLimits(filter, lim)
		if err != nil {
			return
		}
		got, err := e.Eval(p, key, cells)
		if err != nil {
			return
		}
		text := cellsText(got)
		if len(got) > 0 && !matchRow(p, key) {
			t.Fatalf("%#v: MatchRow excludes a row that Eval emits", filter)
		}
		hinted, err := e.Eval(p, key, applyHints(p.Hints(), cells))
		if err != nil || cellsText(hinted) != text {
			t.Fatalf("%#v: hints %+v change\n%sto\n%s%v", filter, p.Hints(), text, cellsText(hinted), err)
		}
		if ok, err := e.Matches(p, key, cells); err == nil && ok != (text != "") {
			t.Fatalf("%#v: Matches %v, Eval returns\n%s", filter, ok, text)
		}
	})
}

// FuzzMutationDecode: decoded mutations validate without a panic and encode to the same mutations.
func FuzzMutationDecode(f *testing.F) {
	q := []byte("q")
	f.Add(wiretest.Encode(func(e *wire.Encoder) {
		AppendRowMutation(e, &RowMutation{[]byte("r"), []Mutation{
			Set("f", q, ServerTimestamp, []byte("v")), DeleteColumnRange("f", q, 1, Before(2)), DeleteFamily("f"), DeleteRow(), Add("f", q, 3, -1), Merge("f", q, 3, Integer(1)),
		}, nil})
	}))
	f.Add(pack(list{"r", list{list{"del_row"}}, list{"12345678", 5}}))
	f.Add(pack(list{"r", list{list{"set", "f", "q", 1, "v"}, list{"del_column", "f", "q"}}}))
	schema := mustSchema(f, "f", "g")
	in := schema.Interner()
	var rm RowMutation
	f.Fuzz(func(t *testing.T, b []byte) {
		d := wire.NewDecoder(b)
		if err := DecodeRowMutation(&d, &rm, in, nil); err != nil {
			return
		}
		_ = rm.Validate(schema, nil)
		again := wiretest.Encode(func(e *wire.Encoder) { AppendRowMutation(e, &rm) })
		d = wire.NewDecoder(again)
		var back RowMutation
		if err := DecodeRowMutation(&d, &back, nil, nil); err != nil || !same(rm, back) {
			t.Fatalf("%+v decodes again as %+v, %v", rm, back, err)
		}
	})
}

// FuzzGCPolicyParse: a parsed policy is valid, and its text parses to the same policy.
func FuzzGCPolicyParse(f *testing.F) {
	for _, text := range []string{
		"none", "versions=3", "age=30d", "versions=3 or age=30d", "versions=1 and (age=7d or versions=5)", "((age=1us))",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseGCPolicy(text)
		if err != nil {
			return
		}
		if err := p.Validate(nil); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		back, err := ParseGCPolicy(p.String())
		if err != nil || !back.Equal(&p) {
			t.Fatalf("%q: %q parses as %q, %v", text, p.String(), back.String(), err)
		}
	})
}

// FuzzRowDecode: a decoded row encodes to the same row.
func FuzzRowDecode(f *testing.F) {
	f.Add(wiretest.Encode(func(e *wire.Encoder) {
		AppendRow(e, []byte("r"), []Cell{cell("f", "q", 1, "v", "l"), cell("f", "r", 1, "v")})
	}))
	var row Row
	f.Fuzz(func(t *testing.T, b []byte) {
		d := wire.NewDecoder(b)
		if err := DecodeRow(&d, &row, nil); err != nil {
			return
		}
		again := wiretest.Encode(func(e *wire.Encoder) { AppendRow(e, row.Key, row.Cells) })
		d = wire.NewDecoder(again)
		var back Row
		if err := DecodeRow(&d, &back, nil); err != nil || !same(row, back) {
			t.Fatalf("%+v decodes again as %+v, %v", row, back, err)
		}
	})
}

// FuzzSchemaDecode: a decoded schema is valid and encodes to the same schema.
func FuzzSchemaDecode(f *testing.F) {
	schema := mustSchema(f, "f:versions=2,group=g,block=1KiB,bloom=row,compression=none,in-memory", "a:age=1d")
	f.Add(wiretest.Encode(func(e *wire.Encoder) { AppendSchema(e, schema) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := wire.NewDecoder(b)
		s, err := DecodeSchema(&d, nil)
		if err != nil {
			return
		}
		d = wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { AppendSchema(e, s) }))
		if back, err := DecodeSchema(&d, nil); err != nil || !back.Equal(s) {
			t.Fatalf("%+v decodes again as %+v, %v", s, back, err)
		}
	})
}
