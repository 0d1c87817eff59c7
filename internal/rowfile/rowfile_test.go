package rowfile

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
)

// readAll reads all rows of a file.
func readAll(t testing.TB, f Format, in io.Reader, family string) (rows []table.Row) {
	t.Helper()
	s, err := Open(f, in, family)
	if err != nil {
		t.Fatal(err)
	}
	var p Parser
	for {
		var item Item
		if err := s.Next(&item); errors.Is(err, io.EOF) {
			return rows
		} else if err != nil {
			t.Fatal(err)
		}
		var row table.Row
		if err := s.Decode(&item, &p, &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, clone(row))
	}
}

// clone copies a row out of a parser's memory.
func clone(row table.Row) table.Row {
	c := table.Row{Key: bytes.Clone(row.Key)}
	for _, cell := range row.Cells {
		cell.Qualifier, cell.Value = bytes.Clone(cell.Qualifier), bytes.Clone(cell.Value)
		c.Cells = append(c.Cells, cell)
	}
	return c
}

// randomBytes returns bytes that need escapes, base64 or neither.
func randomBytes(r *rand.Rand) []byte {
	b := []byte{}
	texts := []string{"a", "é", "\x00", "\n", "\"", "\\", "\u2028", "😀", "<", "\x7f", ":", "\xff", "\xc3"}
	for range r.IntN(8) {
		b = append(b, texts[r.IntN(len(texts))]...)
	}
	return b
}

// TestJSONRoundTrip: what is written is read again, for any bytes, compressed or not.
func TestJSONRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	var want []table.Row
	for range 500 {
		row := table.Row{Key: append([]byte("r"), randomBytes(r)...)}
		for range 1 + r.IntN(5) {
			row.Cells = append(row.Cells, table.Cell{Family: "f", Qualifier: randomBytes(r), Timestamp: r.Int64N(1 << 60), Value: randomBytes(r)})
		}
		want = append(want, row)
	}
	for _, name := range []string{"x.jsonl", "x.jsonl.gz", "x.zst"} {
		format, compression := FormatOf(name)
		var b bytes.Buffer
		z, err := Compress(&b, compression)
		if err != nil {
			t.Fatal(err)
		}
		w := NewJSONWriter(z)
		for i := range want {
			if err := w.Write(&want[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		in, err := Decompress(&b, compression)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, format, in, ""); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read %d rows that differ from the %d written", name, len(got), len(want))
		}
	}
}

// TestLargeRow: a row with many cells, or large ones, has several lines, which have all of its cells.
func TestLargeRow(t *testing.T) {
	row := table.Row{Key: []byte("r")}
	for i := range 2*lineCellsMax + 1 {
		row.Cells = append(row.Cells, table.Cell{Family: "f", Timestamp: int64(i), Value: []byte{}})
	}
	for i := range 5 {
		row.Cells = append(row.Cells, table.Cell{Family: "g", Timestamp: int64(i), Value: make([]byte, lineCellsBytes)})
	}
	var b bytes.Buffer
	if err := NewJSONWriter(&b).Write(&row); err != nil {
		t.Fatal(err)
	}
	rows, cells := readAll(t, JSON, &b, ""), 0
	for _, r := range rows {
		cells += len(r.Cells)
	}
	if len(rows) != 7 || cells != len(row.Cells) {
		t.Errorf("%d lines with %d cells, want 7 with %d", len(rows), cells, len(row.Cells))
	}
}

// TestParse has lines of each form, and what they mean.
func TestParse(t *testing.T) {
	one := func(c table.Cell) table.Row { return table.Row{Key: []byte("r"), Cells: []table.Cell{c}} }
	for line, want := range map[string]table.Row{
		`{"row":"r","cells":[{"column":"f:q","timestamp":5,"value":"v"}]}`:                                                                               one(table.Cell{Family: "f", Qualifier: []byte("q"), Timestamp: 5, Value: []byte("v")}),
		`{"row":"r","cells":[{"column":"f:q","value":"v"}]}`:                                                                                             one(table.Cell{Family: "f", Qualifier: []byte("q"), Timestamp: table.ServerTimestamp, Value: []byte("v")}),
		` { "cells" : [ {"value":"","column":"f:a:b","timestamp":0} ] , "row":"r" } `:                                                                    one(table.Cell{Family: "f", Qualifier: []byte("a:b"), Value: []byte{}}),
		`{"row":"x","row_base64":"cg==","cells":[{"column":"f:","timestamp":1,"value_base64":"/w=="}]}`:                                                  one(table.Cell{Family: "f", Qualifier: []byte{}, Timestamp: 1, Value: []byte{0xff}}),
		`{"row":"r","cells":[{"column_base64":"ZjpxAA==","timestamp":1,"value_int":-2}]}`:                                                                one(table.Cell{Family: "f", Qualifier: []byte("q\x00"), Timestamp: 1, Value: []byte{255, 255, 255, 255, 255, 255, 255, 254}}),
		`{"row":"r","cells":[{"column":"f:q","timestamp":1,"value":"x","value_base64":"dg==","value_int":7,"value_distinct":3,"labels":["a",{"b":1}]}]}`: one(table.Cell{Family: "f", Qualifier: []byte("q"), Timestamp: 1, Value: []byte("v")}),
		`{"row":"\u0072","cells":[{"column":"f:q","timestamp":1,"value":"\ud83d\ude00"}]}`:                                                               one(table.Cell{Family: "f", Qualifier: []byte("q"), Timestamp: 1, Value: []byte("😀")}),
	} {
		var p Parser
		var row table.Row
		if err := p.Parse([]byte(line), &row); err != nil {
			t.Errorf("%s: %v", line, err)
		} else if got := clone(row); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

// TestParseErrors: nothing that is damaged or misspelt is read as something else.
func TestParseErrors(t *testing.T) {
	cell := func(c string) string { return `{"row":"r","cells":[` + c + `]}` }
	for line, want := range map[string]string{
		``:                                     "unexpected EOF",
		`x`:                                    "byte 0",
		`[]`:                                   "want an object",
		`{}`:                                   "row is missing",
		`{"row":"r"`:                           "unexpected EOF",
		`{"row":1,"cells":[]}`:                 "row: byte 8: want a string",
		`{"row":"r","cells":{}}`:               "want an array of cells",
		`{"row":"r","cells":[1]}`:              "want a cell",
		`{"row":"r","row":"s","cells":[]}`:     "duplicate",
		`{"row":"r","rows":"s","cells":[]}`:    `unknown field "rows"`,
		`{"row":"r","cells":[]} {}`:            "more than one object",
		`{"row":"r","cells":[]} x`:             "after the object",
		"{\"row\":\"\xff\",\"cells\":[]}":      "invalid UTF-8",
		`{"row":"\ud800","cells":[]}`:          "surrogate",
		`{"row_base64":"cg","cells":[]}`:       "row_base64: illegal base64",
		cell(`{"column":"f:q","timestamp":1}`): "cell 0: value is missing",
		cell(`{"value":"v"}`):                  "cell 0: column is missing",
		cell(`{"column":"f","value":"v"}`):     `column "f": want family:qualifier`,
		cell(`{"column":"f:q","value":"v","timestamp":-1}`):                   "want microseconds",
		cell(`{"column":"f:q","value":"v","timestamp":1.5}`):                  "want microseconds",
		cell(`{"column":"f:q","value":"v","timestamp":99999999999999999999}`): "want microseconds",
		cell(`{"column":"f:q","value_int":"1"}`):                              "want a number of 64 bits",
		cell(`{"column":"f:q","value":"v","time":1}`):                         `unknown field "time"`,
	} {
		var p Parser
		var row table.Row
		err := p.Parse([]byte(line), &row)
		if bad := (*LineError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestSourceErrors: after a bad line the source goes on with the next, and names the line.
func TestSourceErrors(t *testing.T) {
	long := strings.Repeat("x", lineBytesMax+1)
	s, err := Open(JSON, strings.NewReader("\n{\"row\":\"r\",\"cells\":[]}\r\n"+long+"\nlast"), "")
	if err != nil {
		t.Fatal(err)
	}
	var item Item
	var p Parser
	var row table.Row
	if err := s.Next(&item); err != nil || item.Line != 2 {
		t.Fatalf("line %d, %v", item.Line, err)
	}
	if err := s.Decode(&item, &p, &row); err == nil || err.Error() != "line 2: the row has no cells" {
		t.Errorf("%v", err)
	}
	if err := s.Next(&item); err == nil || err.Error() != "line 3: longer than 136 MiB" {
		t.Errorf("%v", err)
	}
	if err := s.Next(&item); err != nil || item.Line != 4 || string(item.raw) != "last" {
		t.Errorf("line %d %q, %v", item.Line, item.raw, err)
	}
	if err := s.Next(&item); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want %v", err, io.EOF)
	}
}

// TestCSV: rows have the newest values of the columns, whatever bytes these have, and are read again.
func TestCSV(t *testing.T) {
	cells := []table.Cell{
		{Family: "f", Qualifier: []byte("a"), Timestamp: 2, Value: []byte("new, \"quoted\"\nand \xff")},
		{Family: "f", Qualifier: []byte("a"), Timestamp: 1, Value: []byte("old")},
		{Family: "g", Qualifier: []byte("b"), Timestamp: 1, Value: []byte("x")},
		{Family: "g", Qualifier: []byte("c"), Timestamp: 1, Value: []byte("left out")},
	}
	var b bytes.Buffer
	w, err := NewCSVWriter(&b, []string{"f:a", "g:b", "g:z"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(&table.Row{Key: []byte("r,1"), Cells: cells}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "row,f:a,g:b,g:z\n\"r,1\",\"new, \"\"quoted\"\"\nand \xff\",x,\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	want := []table.Row{{Key: []byte("r,1"), Cells: []table.Cell{
		{Family: "f", Qualifier: []byte("a"), Timestamp: table.ServerTimestamp, Value: cells[0].Value},
		{Family: "g", Qualifier: []byte("b"), Timestamp: table.ServerTimestamp, Value: []byte("x")},
	}}}
	if got := readAll(t, CSV, &b, ""); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := readAll(t, CSV, strings.NewReader("key,q\nr,v\n"), "f"); len(got) != 1 || got[0].Cells[0].Family != "f" || string(got[0].Cells[0].Qualifier) != "q" {
		t.Errorf("a column without a family: %v", got)
	}
	for text, want := range map[string]string{"": "line 1: the header is missing", "k,q\n": `line 1: column "q": want family:qualifier`, "k,f:q,f:q\n": "occurs twice"} {
		if _, err := Open(CSV, strings.NewReader(text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestCSVErrors: a record that is not one is rejected, and the next one is read.
func TestCSVErrors(t *testing.T) {
	s, err := Open(CSV, strings.NewReader("k,f:q\na,1,2\nb,2\nc,\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	var rejects bytes.Buffer
	write, err := s.Rejects(&rejects)
	if err != nil {
		t.Fatal(err)
	}
	var item Item
	var p Parser
	var row table.Row
	if err := s.Next(&item); err == nil || err.Error() != "line 2: wrong number of fields" {
		t.Errorf("%v", err)
	}
	if err := s.Next(&item); err != nil || s.Decode(&item, &p, &row) != nil || string(row.Key) != "b" {
		t.Errorf("row %q, %v", row.Key, err)
	}
	if err := s.Next(&item); err != nil {
		t.Fatal(err)
	}
	if err := s.Decode(&item, &p, &row); err == nil || err.Error() != "line 4: the row has no value" {
		t.Errorf("%v", err)
	}
	if err := write(&item); err != nil || rejects.String() != "k,f:q\nc,\n" {
		t.Errorf("rejects %q, %v", rejects.String(), err)
	}
}

// FuzzParse: no line makes the parser fail in another way than by a LineError, and what it reads can be written and read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"row":"r","cells":[{"column":"f:q","timestamp":5,"value":"v"}]}`))
	f.Add([]byte(`{"row_base64":"cg==","cells":[{"column_base64":"ZjpxAA==","value_int":-2,"labels":[]}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var p Parser
		var row table.Row
		if err := p.Parse(line, &row); err != nil {
			if bad := (*LineError)(nil); !errors.As(err, &bad) {
				t.Fatal(err)
			}
			return
		}
		for i := range row.Cells { // what has no timestamp is not written so
			row.Cells[i].Timestamp = max(row.Cells[i].Timestamp, 0)
		}
		want := clone(row)
		var b bytes.Buffer
		if err := NewJSONWriter(&b).Write(&row); err != nil {
			t.Fatal(err)
		}
		var got table.Row
		var again Parser
		if err := again.Parse(bytes.TrimSuffix(b.Bytes(), []byte("\n")), &got); err != nil || !reflect.DeepEqual(clone(got), want) {
			t.Fatalf("%q: %v, %v", b.Bytes(), got, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	line := []byte(`{"row":"row00000001","cells":[{"column":"f:q","timestamp":1000,"value":"` + strings.Repeat("x", 1000) + `"}]}`)
	var p Parser
	var row table.Row
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Parse(line, &row); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	row := table.Row{Key: []byte("row00000001"), Cells: []table.Cell{{Family: "f", Qualifier: []byte("q"), Timestamp: 1000, Value: bytes.Repeat([]byte("x"), 1000)}}}
	w := NewJSONWriter(io.Discard)
	b.SetBytes(1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(&row); err != nil {
			b.Fatal(err)
		}
	}
}
