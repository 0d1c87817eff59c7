package rowfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/steledb/stele/table"
)

// sequenceFiles are files of testdata with the rows of rows.jsonl, which Hadoop has written.
var sequenceFiles = []string{"none.seq", "record.seq", "block.seq", "bzip2.seq", "snappy.seq"}

// TestSequenceFile: the files of HBase's Export are read, whatever their compression.
func TestSequenceFile(t *testing.T) {
	want := goldenRows(t)
	for _, name := range sequenceFiles {
		in := bufio.NewReader(bytes.NewReader(golden(t, name)))
		if f := Detect(in, ""); f != HBase {
			t.Errorf("%s is %s, want %s", name, f, HBase)
		}
		if got := readAll(t, HBase, in, ""); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got := readAll(t, HBase, bytes.NewReader(golden(t, "snappyrecord.seq")), ""); !reflect.DeepEqual(got, want[:2]) {
		t.Errorf("snappyrecord.seq: %v, want %v", got, want[:2])
	}
}

// TestSequenceFileTruncated: a file that ends anywhere but behind a record is an error.
func TestSequenceFileTruncated(t *testing.T) {
	for _, name := range []string{"none.seq", "record.seq", "block.seq", "snappy.seq", "snappyrecord.seq", "deletions.seq"} {
		b := golden(t, name)
		ends := map[int]bool{}
		f, err := newSequenceFile(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			t.Fatal(err)
		}
		for ends[int(f.in.n)] = true; err == nil; ends[int(f.in.n)] = true {
			if _, _, err = f.next(); err == nil && f.blocks {
				f.block.left = 0
			}
		}
		truncations(t, name, b, func(n int) bool {
			return ends[n] || ends[n-20] // a sync marker may be the last
		})
	}
}

// TestSequenceFileFlips: no bit that flips makes anything but rows, or an error of the file or of a row.
func TestSequenceFileFlips(t *testing.T) {
	for _, name := range []string{"deletions.seq", "block.seq"} {
		whole := golden(t, name)
		for i := range len(whole) * 8 {
			b := bytes.Clone(whole)
			b[i/8] ^= 1 << (i % 8)
			checkHostile(t, b)
		}
	}
}

// hbaseItems reads the items of a file.
func hbaseItems(t *testing.T, b []byte) (items []Item) {
	t.Helper()
	s, err := Open(HBase, bytes.NewReader(b), "")
	if err != nil {
		t.Fatal(err)
	}
	for {
		var item Item
		if err := s.Next(&item); errors.Is(err, io.EOF) {
			return items
		} else if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
}

// TestHBaseDeletions: marks of deletions hide the cells of the file that HBase would hide, also in further records of the row, and are deletions in a table.
func TestHBaseDeletions(t *testing.T) {
	to := func(millis int64) table.TimestampEnd { return table.Before((millis + 1) * 1000) }
	want := []struct {
		row, cells string
		deletions  []Deletion
	}{
		{"d1", "f:a@9000=new f:b@5000=other", []Deletion{{Family: "f", Qualifier: []byte("a"), End: to(5)}}},
		{"d2", "f:a@9000=new f:a@4000=older", []Deletion{{Family: "f", Qualifier: []byte("a"), Start: 5000, End: to(5)}}},
		{"d3", "f:a@7000=new g:a@1000=other", []Deletion{{Family: "f", Qualifier: []byte{}, AllColumns: true, End: to(6)}}},
		{"d3", "f:c@7000=new", nil},
		{"d4", "f:a@7000=new f:b@5000=older", []Deletion{{Family: "f", Qualifier: []byte{}, AllColumns: true, Start: 6000, End: to(6)}}},
		{"d5", "", []Deletion{{Family: "f", Qualifier: []byte{}, AllColumns: true}}},
		{"d6", "f:a@-1=now", nil},
	}
	items := hbaseItems(t, golden(t, "deletions.seq"))
	if len(items) != len(want) {
		t.Fatalf("%d items, want %d", len(items), len(want))
	}
	for i, w := range want {
		var cells []string
		for _, c := range items[i].row.Cells {
			cells = append(cells, fmt.Sprintf("%s:%s@%d=%s", c.Family, c.Qualifier, c.Timestamp, c.Value))
		}
		if got := strings.Join(cells, " "); string(items[i].row.Key) != w.row || got != w.cells || !reflect.DeepEqual(items[i].Deletions, w.deletions) {
			t.Errorf("%s: %s, deletions %v\nwant %s: %s, %v", items[i].row.Key, got, items[i].Deletions, w.row, w.cells, w.deletions)
		}
	}
}

// hbaseResult returns a value with one cell.
func hbaseResult(family string, timestamp int64, kind uint64, value string) []byte {
	var c, r []byte
	str := func(n protowire.Number, s string) {
		c = protowire.AppendString(protowire.AppendTag(c, n, protowire.BytesType), s)
	}
	str(1, "r")
	str(2, family)
	str(3, "q")
	c = protowire.AppendVarint(protowire.AppendTag(c, 4, protowire.VarintType), uint64(timestamp))
	c = protowire.AppendVarint(protowire.AppendTag(c, 5, protowire.VarintType), kind)
	str(6, value)
	r = protowire.AppendBytes(protowire.AppendTag(r, 1, protowire.BytesType), c)
	return protowire.AppendBytes(nil, r)
}

// sequence returns a file with one record.
func sequence(keyClass, valueClass, codec string, value []byte) []byte {
	b := []byte("SEQ\x06")
	str := func(s string) { b = append(append(b, byte(len(s))), s...) } // up to 127 bytes
	str(keyClass)
	str(valueClass)
	if codec == "" {
		b = append(b, 0, 0)
	} else {
		b = append(b, 1, 0)
		str(hadoopCodecs + codec)
	}
	b = append(append(b, 0, 0, 0, 0), "0123456789abcdef"...)
	key := []byte("\x00\x00\x00\x01r")
	b = binary.BigEndian.AppendUint32(b, uint32(len(key)+len(value)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(key)))
	return append(append(b, key...), value...)
}

// gzipped compresses data with gzip.
func gzipped(t testing.TB, data []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestHadoopCodecs: the codecs for which Hadoop needs libraries of the system are read, too. What they compress is a stream of gzip or Zstandard.
func TestHadoopCodecs(t *testing.T) {
	value := hbaseResult("f", 5, hbasePut, "v")
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for codec, compressed := range map[string][]byte{"GzipCodec": gzipped(t, value), "ZStandardCodec": e.EncodeAll(value, nil)} {
		items := hbaseItems(t, sequence(hbaseKeyClass, hbaseValueClass, codec, compressed))
		if len(items) != 1 || len(items[0].row.Cells) != 1 || string(items[0].row.Cells[0].Value) != "v" || items[0].row.Cells[0].Timestamp != 5000 {
			t.Errorf("%s: %v", codec, items)
		}
	}
}

// TestHadoopVarint has the integers at which the length of their form changes.
func TestHadoopVarint(t *testing.T) {
	for v, b := range map[int64]string{
		0: "\x00", 127: "\x7f", -112: "\x90", 128: "\x8f\x80", 255: "\x8f\xff", 256: "\x8e\x01\x00", -113: "\x87\x70", -256: "\x87\xff", -257: "\x86\x01\x00",
		math.MaxInt64: "\x88\x7f\xff\xff\xff\xff\xff\xff\xff", math.MinInt64: "\x80\x7f\xff\xff\xff\xff\xff\xff\xff",
	} {
		if got, err := hadoopVarint(&sliceReader{[]byte(b)}); err != nil || got != v {
			t.Errorf("%x: %d, %v, want %d", b, got, err, v)
		}
	}
}

// TestSequenceFileErrors: each error names the format, the place, the class or limit.
func TestSequenceFileErrors(t *testing.T) {
	lowerBlockBytes(t)
	whole := func(codec string, value []byte) []byte { return sequence(hbaseKeyClass, hbaseValueClass, codec, value) }
	put := hbaseResult("f", 5, hbasePut, "v")
	long := whole("", put)
	binary.BigEndian.PutUint32(long[len(long)-len(put)-13:], 1<<30)
	bomb := gzipped(t, make([]byte, blockBytesMax+1))
	chunk := snappy.Encode(nil, make([]byte, 1000))
	snappyBomb := append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 10), uint32(len(chunk))), chunk...)
	for _, c := range []struct {
		file []byte
		want string
	}{
		{sequence("org.apache.hadoop.io.Text", hbaseValueClass, "", put), `sequence file: byte 4: pairs of "org.apache.hadoop.io.Text"`},
		{whole("LzoCodec", put), `codec "org.apache.hadoop.io.compress.LzoCodec": want DefaultCodec`},
		{append([]byte("SEQ\x05"), long[4:]...), "version 5 of sequence files, want 6"},
		{long, "record 1, byte 114: a record has 1073741824 bytes, more than 1 MiB"},
		{whole("GzipCodec", bomb), "record 1, byte 154: decompress: more than 1 MiB"},
		{whole("SnappyCodec", snappyBomb), "bytes of Snappy that promise 1000, where up to 10 are expected"},
		{whole("SnappyCodec", binary.BigEndian.AppendUint32(nil, math.MaxUint32)), "more than 1 MiB"},
		{whole("", put[1:]), "record 1, byte 114: the value is not a Result of HBase 0.96 or later"},
		{whole("", hbaseResult("f", 5, 3, "v")), "cell 0: type 3 of a cell is not known"},
		{whole("", hbaseResult("", 5, hbasePut, "v")), "cell 0: the family is missing"},
		{whole("", []byte{2, 0x10, 1}), "the cells of the Result are not in it"},
		{whole("", []byte{0}), "record 1: the row has no cells"},
		{whole("", hbaseResult("f", math.MaxInt64-1, hbasePut, "v")), `record 1: f:"q": timestamp 9223372036854775806 ms is more than 9223372036854774`},
		{whole("", hbaseResult("f", -5, hbasePut, "v")), `timestamp -5000: want microseconds, 0 or more`},
		{bytes.Replace(golden(t, "block.seq"), []byte("\xff\xff\xff\xff"), []byte("\x00\x00\x00\x01"), 1), "no sync marker before a block"},
	} {
		if _, err := readItems(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
	if _, err := Open(HBase, strings.NewReader("PAR1"), ""); err == nil || !strings.Contains(err.Error(), `begins with "PAR", not with "SEQ"`) {
		t.Errorf("%v", err)
	}
}

// TestHBaseMarksMax: the marks of a row do not take more memory than is bounded.
func TestHBaseMarksMax(t *testing.T) {
	one := hbaseResult("f", 5, hbaseDelete, "")
	n, size := protowire.ConsumeVarint(one)
	many := bytes.Repeat(one[size:], hbaseMarksMax+1)
	if _, err := readItems(sequence(hbaseKeyClass, hbaseValueClass, "", protowire.AppendBytes(nil, many))); err == nil || !strings.Contains(err.Error(), "more than 100000 deletions") {
		t.Errorf("marks of %d bytes: %v", n, err)
	}
}

func FuzzSequenceFile(f *testing.F) {
	for _, name := range append(sequenceFiles, "snappyrecord.seq", "deletions.seq") {
		f.Add(golden(f, name)[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkHostile(t, append([]byte("SEQ\x06"), b...)) })
}

// FuzzHBaseResult has a valid file, and any value.
func FuzzHBaseResult(f *testing.F) {
	f.Add(hbaseResult("f", 5, hbasePut, "v")[1:])
	f.Add(hbaseResult("f", 5, hbaseDeleteFamily, "")[1:])
	f.Fuzz(func(t *testing.T, result []byte) {
		checkHostile(t, sequence(hbaseKeyClass, hbaseValueClass, "", protowire.AppendBytes(nil, result)))
	})
}

// TestHBaseHiddenRecord: a record whose cells are all hidden by marks of an earlier one is left out, and of two cells with one column and timestamp the later one,
// which is first, remains.
func TestHBaseHiddenRecord(t *testing.T) {
	b := sequence(hbaseKeyClass, hbaseValueClass, "", hbaseResult("f", 6000, hbaseDeleteFamily, ""))
	record := func(value []byte) {
		key := []byte("\x00\x00\x00\x01r")
		b = binary.BigEndian.AppendUint32(b, uint32(len(key)+len(value)))
		b = binary.BigEndian.AppendUint32(b, uint32(len(key)))
		b = append(append(b, key...), value...)
	}
	record(hbaseResult("f", 5000, hbasePut, "hidden"))
	two := append(hbaseResult("f", 9000, hbasePut, "newer")[1:], hbaseResult("f", 9000, hbasePut, "older")[1:]...)
	record(protowire.AppendBytes(nil, two))
	items := hbaseItems(t, b)
	if len(items) != 2 || len(items[0].Deletions) != 1 || len(items[1].row.Cells) != 1 || string(items[1].row.Cells[0].Value) != "newer" || items[1].Line != 3 {
		t.Fatalf("items %+v", items)
	}
}
