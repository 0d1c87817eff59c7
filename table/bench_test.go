package table

import (
	"fmt"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

// webRow is a row of the paper's Webtable: three versions of a page, a language,
// and 20 anchors of two versions each.
func webRow() []Cell {
	var cells []Cell
	for i := range 20 {
		q := fmt.Sprintf("com.site%02d.www/index", i)
		cells = append(cells, cell("anchor", q, 9, "link text"), cell("anchor", q, 5, "old text"))
	}
	for ts := int64(30); ts > 0; ts -= 10 {
		cells = append(cells, Cell{"contents", nil, ts, make([]byte, 4000), nil})
	}
	return append(cells, cell("language", "", 5, "EN"))
}

// commonFilters are filters of typical reads and the allocations allowed for each.
var commonFilters = []struct {
	name   string
	f      Filter
	allocs float64
}{
	{"pass", nil, 0},
	{"family", FamilyRegex("anchor"), 0},
	{"family regexp", FamilyRegex("[a-c]+.*r"), 0},
	{"versions", CellsPerColumnLimit(1), 0},
	{"columns", ColumnRange{"anchor", ByteRange{Closed([]byte("com.site05")), Open([]byte("com.site09"))}}, 0},
	{"qualifier literal", QualifierRegex(`com\.site07\.www/index`), 0},
	{"qualifier regexp", QualifierRegex(`com\.site.*7\.www.*`), 0},
	{"value regexp", ValueRegex("(?i)LINK.*"), 0},
	{"timestamps", TimestampRange{Start: 6}, 0},
	{"chain", Chain{FamilyRegex("anchor"), CellsPerColumnLimit(1), StripValue{}}, 0},
	{"exists", Chain{CellsPerRowLimit(1), StripValue{}}, 0},
	{"interleave", Interleave{
		Chain{FamilyRegex("anchor"), CellsPerColumnLimit(1)}, Chain{FamilyRegex("contents"), CellsPerColumnLimit(1)}}, 0},
	{"condition", Condition{Chain{FamilyRegex("language"), ValueRegex("EN")}, FamilyRegex("contents"), nil}, 0},
	{"label and sink", Interleave{PassAll{}, Chain{ApplyLabel("x"), Sink{}}}, 0},
}

func TestEvalAllocs(t *testing.T) {
	row, key := webRow(), []byte("com.cnn.www")
	for _, tc := range commonFilters {
		if raceEnabled && strings.Contains(tc.name, "regexp") {
			continue // the regexp engine pools its machines
		}
		p := mustCompile(t, tc.f)
		var e Evaluator
		if n := testing.AllocsPerRun(100, func() {
			if _, err := e.Eval(p, key, row); err != nil {
				t.Fatal(err)
			}
		}); n > tc.allocs {
			t.Errorf("%s: %v allocations, want %v", tc.name, n, tc.allocs)
		}
	}
}

func BenchmarkEval(b *testing.B) {
	row, key := webRow(), []byte("com.cnn.www")
	for _, tc := range commonFilters {
		b.Run(tc.name, func(b *testing.B) {
			p := mustCompile(b, tc.f)
			var e Evaluator
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Eval(p, key, row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	f := Chain{FamilyRegex("anchor"), QualifierRegex(`com\.cnn\..*`), CellsPerColumnLimit(1), StripValue{}}
	b.ReportAllocs()
	for b.Loop() {
		p := mustCompile(b, f)
		p.Hints()
	}
}

func BenchmarkMatchRow(b *testing.B) {
	p := mustCompile(b, Chain{RowRegex(`com\.cnn\..*`), FamilyRegex("anchor")})
	key := []byte("com.cnn.www/index.html")
	var e Evaluator
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := e.MatchRow(p, key); !ok || err != nil {
			b.Fatal("no match")
		}
	}
}

func BenchmarkCodec(b *testing.B) {
	schema := mustSchema(b, "anchor", "contents", "language")
	in := schema.Interner()
	rm := RowMutation{Row: []byte("com.cnn.www"), Mutations: []Mutation{
		Set("contents", nil, ServerTimestamp, make([]byte, 1000)), Set("language", nil, 5, []byte("EN")),
		Set("anchor", []byte("cnnsi.com"), 9, []byte("CNN")), DeleteColumn("anchor", []byte("my.look.ca")),
	}}
	row := webRow()
	mutation := wiretest.Encode(func(e *wire.Encoder) { AppendRowMutation(e, &rm) })
	cells := wiretest.Encode(func(e *wire.Encoder) { AppendRow(e, rm.Row, row) })
	b.Run("encode mutation", func(b *testing.B) {
		b.ReportAllocs()
		e := wire.GetEncoder()
		for b.Loop() {
			e.Reset()
			AppendRowMutation(e, &rm)
		}
	})
	b.Run("decode mutation", func(b *testing.B) {
		b.ReportAllocs()
		var got RowMutation
		for b.Loop() {
			d := wire.NewDecoder(mutation)
			if err := DecodeRowMutation(&d, &got, in, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("validate mutation", func(b *testing.B) {
		b.ReportAllocs()
		lim := DefaultLimits()
		for b.Loop() {
			if err := rm.Validate(schema, &lim); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encode row", func(b *testing.B) {
		b.ReportAllocs()
		e := wire.GetEncoder()
		for b.Loop() {
			e.Reset()
			AppendRow(e, rm.Row, row)
		}
	})
	b.Run("decode row", func(b *testing.B) {
		b.ReportAllocs()
		var got Row
		for b.Loop() {
			d := wire.NewDecoder(cells)
			if err := DecodeRow(&d, &got, in); err != nil {
				b.Fatal(err)
			}
		}
	})
}
