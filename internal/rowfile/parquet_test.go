package rowfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// parquetFiles are files of testdata with the rows of rows.jsonl.
var parquetFiles = []string{"template.parquet", "version2.parquet", "arrow.parquet", "zstd.parquet", "delta.parquet"}

// TestParquet: the files of other programs are read, with any form of lists, encoding, compression and pages.
func TestParquet(t *testing.T) {
	want := goldenRows(t)
	for _, name := range parquetFiles {
		b := golden(t, name)
		if f := Detect(bufio.NewReader(bytes.NewReader(b)), "x.jsonl"); f != Parquet {
			t.Errorf("%s is %s, want %s", name, f, Parquet)
		}
		s, err := open(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := readSource(t, s); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\nwant %v", name, got, want)
		}
	}
	if f := Detect(bufio.NewReader(strings.NewReader("PAR1,f:q\n")), "x.csv"); f != CSV {
		t.Errorf("a CSV file whose first column is PAR1 is %s", f)
	}
}

// TestParquetTruncated: a file that ends anywhere is an error.
func TestParquetTruncated(t *testing.T) {
	for _, name := range parquetFiles {
		truncations(t, name, golden(t, name), func(int) bool { return false })
	}
}

// TestParquetFlips: no bit that flips makes anything but rows, or an error of the file or of a row.
func TestParquetFlips(t *testing.T) {
	for _, name := range []string{"template.parquet", "delta.parquet"} {
		whole := golden(t, name)
		for i := range len(whole) * 8 {
			b := bytes.Clone(whole)
			b[i/8] ^= 1 << (i % 8)
			checkHostile(t, b)
		}
	}
	whole := golden(t, "arrow.parquet") // its pages have checksums
	at := bytes.Index(whole, []byte("value 0 of row"))
	if at < 0 {
		t.Fatal("the value is not found")
	}
	whole[at] ^= 1
	if _, err := readItems(whole); err == nil || !strings.Contains(err.Error(), "the checksum of a page is wrong") {
		t.Errorf("%v", err)
	}
}

// compact writes structs in Thrift's compact protocol: fields by number, with ints of 64 bits (i), of 32 bits (int32), texts, structs and lists of structs.
func compact(fields ...any) (b []byte) {
	for i := 0; i < len(fields); i += 2 {
		id := fields[i].(int)
		head := func(kind byte) { b = binary.AppendVarint(append(b, kind), int64(id)) }
		switch v := fields[i+1].(type) {
		case int:
			head(thriftI64)
			b = binary.AppendVarint(b, int64(v))
		case int32:
			head(thriftI32)
			b = binary.AppendVarint(b, int64(v))
		case string:
			head(thriftBinary)
			b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
		case []byte:
			head(thriftStruct)
			b = append(b, v...)
		case [][]byte:
			head(thriftList)
			b = binary.AppendUvarint(append(b, 0xf0|thriftStruct), uint64(len(v)))
			b = append(b, bytes.Join(v, nil)...)
		}
	}
	return append(b, thriftStop)
}

// parquetSchema is that of the template, with other nodes instead of those of the same name.
func parquetSchema(instead ...[]byte) [][]byte {
	nodes := [][]byte{
		compact(4, "BigtableRow", 5, int32(2)),
		compact(1, int32(parquetByteArray), 3, int32(0), 4, "key"),
		compact(3, int32(0), 4, "cells", 5, int32(1)),
		compact(3, int32(2), 4, "array", 5, int32(4)),
		compact(1, int32(parquetByteArray), 3, int32(0), 4, "family"),
		compact(1, int32(parquetByteArray), 3, int32(0), 4, "qualifier"),
		compact(1, int32(parquetInt64), 3, int32(0), 4, "timestamp"),
		compact(1, int32(parquetByteArray), 3, int32(0), 4, "value"),
	}
	for i := range instead {
		if instead[i] != nil {
			nodes[i] = instead[i]
		}
	}
	return nodes
}

// parquetFile returns a file with one row group, whose columns all have the same pages.
func parquetFile(schema [][]byte, rows int, page []byte, meta ...any) []byte {
	b := append([]byte(parquetMagic), page...)
	chunk := compact(3, compact(append([]any{4, int32(0), 5, 1, 7, len(page), 9, 4}, meta...)...))
	footer := compact(2, schema, 3, rows, 4, [][]byte{compact(1, [][]byte{chunk, chunk, chunk, chunk, chunk}, 3, rows)})
	b = binary.LittleEndian.AppendUint32(append(b, footer...), uint32(len(footer)))
	return append(b, parquetMagic...)
}

// dataPage returns a page of version 1 with values.
func dataPage(encoding int32, values []byte) []byte {
	return append(compact(1, int32(0), 2, int32(len(values)), 3, int32(len(values)), 5, compact(1, int32(1), 2, encoding, 3, int32(3), 4, int32(3))), values...)
}

// TestParquetErrors: each error names the format, the place, the column or limit.
func TestParquetErrors(t *testing.T) {
	lowerBlockBytes(t)
	node := func(at int, n []byte) [][]byte {
		instead := make([][]byte, at+1)
		instead[at] = n
		return parquetSchema(instead...)
	}
	plain := dataPage(parquetPlain, []byte("\x01\x00\x00\x00k"))
	footer := func(n uint32) []byte {
		return append(binary.LittleEndian.AppendUint32([]byte("PAR1xxxx"), n), "PAR1"...)
	}
	for _, c := range []struct {
		file []byte
		want string
	}{
		{[]byte("PAR1xxxxxxxxxxxx"), `Parquet file: byte 16: the file ends with "xxxx", not with "PAR1": it is not complete`},
		{footer(1 << 31), "a footer of 2147483648 bytes, more than 64 MiB or than the file has"},
		{footer(4), "Parquet file: byte 4: "},
		{parquetFile(node(1, compact(1, int32(parquetByteArray), 3, int32(0), 4, "name")), 1, plain), "field key is missing"},
		{parquetFile(node(1, compact(1, int32(parquetInt64), 3, int32(0), 4, "key")), 1, plain), "field key is not a column of BYTE_ARRAY"},
		{parquetFile(node(2, compact(3, int32(0), 4, "values", 5, int32(1))), 1, plain), "field cells is missing"},
		{parquetFile(node(3, compact(3, int32(0), 4, "array", 5, int32(4))), 1, plain), "field cells is not a list of groups"},
		{parquetFile(node(6, compact(1, int32(parquetInt64), 3, int32(0), 4, "time")), 1, plain), "field cells.timestamp is missing"},
		{parquetFile(node(6, compact(1, int32(3), 3, int32(0), 4, "timestamp")), 1, plain), "field cells.timestamp is not a column of INT64"},
		{parquetFile(node(3, compact(3, int32(2), 4, "array", 5, int32(1<<30))), 1, plain), "fields of a group are missing"},
		{golden(t, "millis.parquet"), "field cells.timestamp has milliseconds, want microseconds"},
		{parquetFile(parquetSchema(), 1, plain, 4, int32(4)), "record 1, byte 34: column key: compression codec 4 is not read"},
		{parquetFile(parquetSchema(), 1, plain, 9, 1<<40), "column key: its values are not in the file"},
		{parquetFile(parquetSchema(), 1, plain, 7, 1<<40), "column key: its values are not in the file"},
		{parquetFile(parquetSchema(), 1, plain, 5, 0), "column key: the row group has more rows than values"},
		{parquetFile(parquetSchema(), 0, plain), "column key: the row group has more values than rows"},
		{parquetFile(parquetSchema(), 1, dataPage(4, nil)), "column key: encoding 4 of its values is not read"},
		{parquetFile(parquetSchema(), 1, dataPage(parquetPlain, []byte("\xff\xff\xff\xffk"))), "column key: a page ends within its values"},
		{parquetFile(parquetSchema(), 1, dataPage(parquetRLEDictionary, []byte{1, 2, 0})), "column key: value 0 of a dictionary of 0"},
		{parquetFile(parquetSchema(), 1, compact(1, int32(0), 2, int32(1<<30), 3, int32(1))), "a page that is not in the column"},
		{parquetFile(parquetSchema(), 1, append(compact(1, int32(0), 2, int32(1<<30), 3, int32(1)), 0)), "a page has 1073741824 bytes, more than 1 MiB: export with smaller pages"},
		{parquetFile(parquetSchema(), 1, compact(1, int32(1), 2, int32(0), 3, int32(0))), "column key: pages are missing"},
	} {
		if _, err := readItems(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
	if _, err := Open(Parquet, strings.NewReader("PAR1"), ""); err == nil || err.Error() != "Parquet file: it is read from its end, and so neither compressed nor from standard input: make a file of it first" {
		t.Errorf("%v", err)
	}
}

// TestParquetHybrid has runs of equal integers and packed ones, as in the specification's example of the numbers 0 to 7.
func TestParquetHybrid(t *testing.T) {
	h := parquetHybrid{b: []byte{0x03, 0x88, 0xc6, 0xfa, 5 << 1, 6}, width: 3}
	for i := range 13 {
		want := i
		if i >= 8 {
			want = 6
		}
		if got, err := h.next(); err != nil || got != want {
			t.Errorf("integer %d is %d, %v, want %d", i, got, err, want)
		}
	}
	if _, err := h.next(); !errors.Is(err, errParquetShort) {
		t.Errorf("%v, want %v", err, errParquetShort)
	}
}

func FuzzParquet(f *testing.F) {
	for _, name := range parquetFiles {
		f.Add(golden(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 || string(b[:4]) != parquetMagic {
			b = append([]byte(parquetMagic), b...)
		}
		checkHostile(t, b)
	})
}

// FuzzParquetPage has a valid footer, and any page for all columns.
func FuzzParquetPage(f *testing.F) {
	f.Add(dataPage(parquetPlain, []byte("\x01\x00\x00\x00k")), 1, 1)
	f.Add(dataPage(parquetDeltaBytes, []byte{128, 1, 4, 1, 0}), 1, 1)
	f.Fuzz(func(t *testing.T, page []byte, rows, values int) {
		b := parquetFile(parquetSchema(), rows, page, 5, values)
		s, err := OpenParquet(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			_, err = read(s)
		}
		if file, line := (*FileError)(nil), (*LineError)(nil); !errors.Is(err, io.EOF) && !errors.As(err, &file) && !errors.As(err, &line) {
			t.Fatal(err)
		}
	})
}
