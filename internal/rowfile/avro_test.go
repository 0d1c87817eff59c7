package rowfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"github.com/steledb/stele/table"
)

// lowerBlockBytes lowers the bound of blocks, so that a test need not exceed the real one.
func lowerBlockBytes(t *testing.T) {
	before := blockBytesMax
	blockBytesMax = 1 << 20
	t.Cleanup(func() { blockBytesMax = before })
}

// golden returns a file of testdata.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goldenRows returns the rows that each file of testdata has.
func goldenRows(t testing.TB) []table.Row {
	return readAll(t, JSON, bytes.NewReader(golden(t, "rows.jsonl")), "")
}

// read reads a file to its end or its first error, and returns the number of its items.
func read(s Source) (n int, err error) {
	var p Parser
	var row table.Row
	for ; ; n++ {
		if n == itemsMax { // a few bytes of a hostile file may repeat a value without end, which takes no memory
			return n, io.EOF
		}
		var item Item
		if err := s.Next(&item); err != nil {
			return n, err
		}
		if err := s.Decode(&item, &p, &row); err != nil {
			return n, err
		}
	}
}

const itemsMax = 100

// open opens a file by its first bytes.
func open(b []byte) (Source, error) {
	in := bufio.NewReader(bytes.NewReader(b))
	f := Detect(in, "")
	if f == Parquet {
		return OpenParquet(bytes.NewReader(b), int64(len(b)))
	}
	return Open(f, in, "")
}

// readSource reads all rows of a file.
func readSource(t testing.TB, s Source) (rows []table.Row) {
	t.Helper()
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
		for i := range row.Cells { // null is empty
			c := &row.Cells[i]
			c.Qualifier, c.Value = append([]byte{}, c.Qualifier...), append([]byte{}, c.Value...)
		}
		rows = append(rows, clone(row))
	}
}

// TestAvro: the files of another program are read, whatever their codec, and with other fields and orders.
func TestAvro(t *testing.T) {
	want := goldenRows(t)
	for _, name := range []string{"null.avro", "deflate.avro", "snappy.avro", "zstandard.avro", "other.avro"} {
		in := bufio.NewReader(bytes.NewReader(golden(t, name)))
		if f := Detect(in, "x.jsonl"); f != Avro {
			t.Errorf("%s is %s, want %s", name, f, Avro)
		}
		s, err := Open(Avro, in, "")
		if err != nil {
			t.Fatal(err)
		}
		got := readSource(t, s)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d rows that differ from the %d written", name, len(got), len(want))
		}
	}
}

// truncations checks that no part of a file is read as if it were the whole.
func truncations(t *testing.T, name string, whole []byte, complete func(n int) bool) {
	t.Helper()
	all, err := readItems(whole)
	if !errors.Is(err, io.EOF) {
		t.Fatalf("%s: %v", name, err)
	}
	for n := 4; n < len(whole); n++ {
		items, err := readItems(whole[:n:n])
		if bad := (*FileError)(nil); !errors.As(err, &bad) && !(errors.Is(err, io.EOF) && complete(n)) {
			t.Fatalf("%s: after %d of %d bytes: %v", name, n, len(whole), err)
		}
		if items > all {
			t.Fatalf("%s: %d items in %d bytes, and %d in the whole file", name, items, n, all)
		}
	}
}

func readItems(b []byte) (int, error) {
	s, err := open(b)
	if err != nil {
		return 0, err
	}
	return read(s)
}

// TestAvroTruncated: a file that ends anywhere but behind a block is an error.
func TestAvroTruncated(t *testing.T) {
	for _, name := range []string{"null.avro", "deflate.avro", "snappy.avro", "zstandard.avro", "other.avro"} {
		b := golden(t, name)
		truncations(t, name, b, func(n int) bool { return bytes.HasSuffix(b[:n], []byte("0123456789abcdef")) })
	}
}

// TestAvroFlips: no bit that flips makes anything but rows, or an error of the file or of a row.
func TestAvroFlips(t *testing.T) {
	for _, name := range []string{"null.avro"} {
		whole := golden(t, name)
		for i := range len(whole) * 8 {
			b := bytes.Clone(whole)
			b[i/8] ^= 1 << (i % 8)
			checkHostile(t, b)
		}
	}
}

// checkHostile reads a file that may be damaged.
func checkHostile(t testing.TB, b []byte) {
	t.Helper()
	_, err := readItems(b)
	file, line := (*FileError)(nil), (*LineError)(nil)
	if !errors.Is(err, io.EOF) && !errors.As(err, &file) && !errors.As(err, &line) {
		t.Fatalf("%q: %v", b, err)
	}
}

// avroFile returns a file with a schema, and one block.
func avroFile(schema, codec string, count, size int64, block []byte) []byte {
	b := []byte(avroMagic)
	str := func(s string) { b = append(binary.AppendVarint(b, int64(len(s))), s...) }
	b = binary.AppendVarint(b, 2)
	str("avro.schema")
	str(schema)
	str("avro.codec")
	str(codec)
	b = append(binary.AppendVarint(b, 0), "0123456789abcdef"...)
	b = binary.AppendVarint(binary.AppendVarint(b, count), size)
	return append(append(b, block...), "0123456789abcdef"...)
}

// TestAvroErrors: each error names the format, the place, the field or limit.
func TestAvroErrors(t *testing.T) {
	lowerBlockBytes(t)
	cells := func(cell string) string {
		return `{"type":"record","name":"R","fields":[{"name":"key","type":"bytes"},{"name":"cells","type":{"type":"array","items":` + cell + `}}]}`
	}
	deep := strings.Repeat(`{"type":"array","items":`, 100) + `"int"` + strings.Repeat("}", 100)
	bomb, err := ocf.DeflateCodec(9).Compress(make([]byte, blockBytesMax+1))
	if err != nil {
		t.Fatal(err)
	}
	row := append([]byte{2, 'r', 2, 2, 'f', 2, 'q'}, 0x09, 2, 'v', 0) // timestamp -5
	for _, c := range []struct {
		file []byte
		want string
	}{
		{avroFile(`"bytes"`, "null", 1, 1, []byte{0}), "Avro file: byte "},
		{avroFile(`"bytes"`, "null", 1, 1, []byte{0}), "it is of type bytes, want a record with the fields key and cells"},
		{avroFile(`{"type":"record","name":"R","fields":[{"name":"cells","type":"bytes"}]}`, "null", 0, 0, nil), "field key is missing"},
		{avroFile(`{"type":"record","name":"R","fields":[{"name":"key","type":"int"}]}`, "null", 0, 0, nil), "field key is of type int, want bytes"},
		{avroFile(cells(`"bytes"`), "null", 0, 0, nil), "field cells is an array of bytes, want records"},
		{avroFile(cells(`{"type":"record","name":"C","fields":[{"name":"family","type":"string"}]}`), "null", 0, 0, nil), "field cells.qualifier is missing"},
		{avroFile(cells(`{"type":"record","name":"C","fields":[{"name":"family","type":["string","int"]}]}`), "null", 0, 0, nil), "field cells.family is of type union, want string"},
		{avroFile(strings.Replace(avroSchema, "timestamp-micros", "timestamp-millis", 1), "null", 0, 0, nil), "field cells.timestamp is of logical type timestamp-millis"},
		{avroFile(cells(deep), "null", 0, 0, nil), "nested more than 32 deep"},
		{avroFile(`{`, "null", 0, 0, nil), "its schema: "},
		{avroFile(avroSchema, "bzip2", 0, 0, nil), `codec "bzip2": want null, deflate, snappy or zstandard`},
		{avroFile(avroSchema, "null", 1, 1<<40, nil), "a block has 1099511627776 bytes, more than 1 MiB"},
		{avroFile(avroSchema, "null", 1, 1<<20, nil), "the file ends here: it is not complete"},
		{avroFile(avroSchema, "null", 1<<40, 1, []byte{0}), "a block with 1099511627776 records in 1 bytes"},
		{avroFile(avroSchema, "null", -1, 1, []byte{0}), "a block with -1 records"},
		{avroFile(avroSchema, "deflate", 1, int64(len(bomb)), bomb), "decompress: more than 1 MiB"},
		{avroFile(avroSchema, "snappy", 1, 9, []byte("\xff\xff\xff\xff\x0f1234")), "more than 1 MiB decompressed"},
		{avroFile(avroSchema, "null", 1, 2, []byte{2, 'r'}), "record 1, byte 450: field cells: "},
		{avroFile(avroSchema, "null", 1, 2, []byte{2, 'r'}), "field cells: the block ends within the record"},
		{avroFile(avroSchema, "null", 1, 12, append(row, 0)), "its block has 1 bytes behind its last record"},
		{avroFile(avroSchema, "null", 1, 11, row), "record 1: cell 0, f:\"q\": timestamp -5: want microseconds, 0 or more"},
		{avroFile(avroSchema, "null", 1, 3, []byte{2, 'r', 0}), "record 1: the row has no cells"},
		{bytes.Replace(golden(t, "null.avro"), []byte("6789abcdef"), []byte("6789abcdex"), 1), "the sync marker behind the block is not that of the file"},
		{append([]byte(avroMagic), binary.AppendVarint([]byte{2}, 1<<40)...), "the header has more than 1024 KiB of metadata"},
	} {
		if _, err := readItems(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
	if _, err := Open(Avro, strings.NewReader(`{"row":"r"}`), ""); err == nil || !strings.Contains(err.Error(), `begins with "{\"ro"`) {
		t.Errorf("JSON lines: %v", err)
	}
}

// TestAvroRoundTrip: what is written is read again, with any codec, and has the bytes that another program reads.
func TestAvroRoundTrip(t *testing.T) {
	want := goldenRows(t)
	for _, codec := range AvroCodecs {
		var out bytes.Buffer
		w, err := NewAvroWriter(&out, codec)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if err := w.Write(&want[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		s, err := open(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got := readSource(t, s); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", codec, got, want)
		}
		r, err := ocf.NewReader(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		var first struct {
			Key   []byte `avro:"key"`
			Cells []struct {
				Family    string `avro:"family"`
				Qualifier []byte `avro:"qualifier"`
				Timestamp int64  `avro:"timestamp"`
				Value     []byte `avro:"value"`
			} `avro:"cells"`
		}
		if err := r.Decode(&first); err != nil || string(first.Key) != "r00" || len(first.Cells) != 3 || string(first.Cells[2].Value) != "value 2 of row 0" {
			t.Errorf("%s: %v, %v", codec, first, err)
		}
	}
}

// TestAvroLargeRecord: a record with many or large cells has several items, which have all of its cells, and only the last one of which ends it.
func TestAvroLargeRecord(t *testing.T) {
	var out bytes.Buffer
	w, err := ocf.NewWriter(&out, avro.MustParse(avroSchema))
	if err != nil {
		t.Fatal(err)
	}
	large := map[string]any{"key": []byte("large")}
	var cells []any
	for i := range 2*lineCellsMax + 1 {
		cells = append(cells, map[string]any{"family": "f", "qualifier": []byte("q"), "timestamp": int64(i), "value": []byte{}})
	}
	for i := range 3 {
		cells = append(cells, map[string]any{"family": "g", "qualifier": []byte("q"), "timestamp": int64(i), "value": make([]byte, lineCellsBytes)})
	}
	large["cells"] = cells
	small := map[string]any{"key": []byte("small"), "cells": cells[:1]}
	if err := errors.Join(w.Encode(large), w.Encode(small), w.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := open(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	n, items := 0, 0
	for {
		var item Item
		if err := s.Next(&item); err != nil {
			t.Fatal(err)
		}
		if item.Line == 2 {
			break
		}
		items++
		n += len(item.row.Cells)
		if string(item.row.Key) != "large" || item.More != (n < len(cells)) {
			t.Errorf("item %d of %q after %d cells: more is %v", items, item.row.Key, n, item.More)
		}
	}
	if n != len(cells) || items < 5 {
		t.Errorf("%d items with %d cells, want %d", items, n, len(cells))
	}
}

// TestRecordRejects: rejected records are JSON lines, with what is wrong in them.
func TestRecordRejects(t *testing.T) {
	s, err := open(avroFile(avroSchema, "null", 1, 11, []byte{2, 'r', 2, 2, 'f', 2, 'q', 0x09, 2, 'v', 0}))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	write, err := s.Rejects(&out)
	if err != nil {
		t.Fatal(err)
	}
	var item Item
	if err := errors.Join(s.Next(&item), write(&item)); err != nil {
		t.Fatal(err)
	}
	if want := `{"row":"r","cells":[{"column":"f:q","timestamp":-5,"value":"v"}]}` + "\n"; out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}

func FuzzAvro(f *testing.F) {
	for _, name := range []string{"null.avro", "snappy.avro", "deflate.avro", "zstandard.avro", "other.avro"} {
		f.Add(golden(f, name)[len(avroMagic):])
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkHostile(t, append([]byte(avroMagic), b...)) })
}

// FuzzAvroBlock has a valid header, and any schema and block.
func FuzzAvroBlock(f *testing.F) {
	f.Add(avroSchema, int64(1), []byte{2, 'r', 2, 2, 'f', 2, 'q', 0x09, 2, 'v', 0})
	f.Fuzz(func(t *testing.T, schema string, count int64, block []byte) {
		checkHostile(t, avroFile(schema, "null", count, int64(len(block)), block))
	})
}

func BenchmarkAvro(b *testing.B) {
	file := golden(b, "null.avro")
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := readItems(file); !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
}
