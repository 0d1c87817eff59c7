package sstable

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/steledb/stele/table"
)

var rewrite = flag.Bool("rewrite-golden", false, "rewrite the golden files")

// example is the table of the package comment's worked example.
func example(t *testing.T) []byte {
	file, _ := build(t, Options{
		Compression:     table.CompressionNone,
		RestartInterval: 2,
		FilterPrefixes:  func(_ []byte, dst []int) []int { return append(dst, 1) },
		FilterName:      "first",
	}, map[string][]byte{"k": []byte("v")}, exampleEntries)
	return file
}

var exampleEntries = []kv{
	{[]byte("ab"), []byte("1")},
	{[]byte("abc"), []byte("22")},
	{[]byte("b"), []byte{}},
}

func readGolden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	p, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func writeGolden(t *testing.T, name string, p []byte) {
	t.Helper()
	var out strings.Builder
	for i := 0; i < len(p); i += 32 {
		fmt.Fprintf(&out, "%x\n", p[i:min(i+32, len(p))])
	}
	if err := os.WriteFile(filepath.Join("testdata", name), []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestGolden writes the worked example and compares it byte for byte.
func TestGolden(t *testing.T) {
	file := example(t)
	if *rewrite {
		writeGolden(t, "example.golden", file)
	}
	if want := readGolden(t, "example.golden"); !bytes.Equal(file, want) {
		t.Fatalf("the format has changed: wrote\n%s\nwant\n%s", hex.Dump(file), hex.Dump(want))
	}
}

// docLine is a line of the worked example: offset, bytes, and their meaning.
var docLine = regexp.MustCompile(`(?m)^//\t([0-9a-f]{4})  ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)`)

// TestDocExample compares the worked example in the package comment with the golden file.
func TestDocExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, m := range docLine.FindAllStringSubmatch(string(doc), -1) {
		if want := fmt.Sprintf("%04x", len(got)); m[1] != want {
			t.Fatalf("line at %s: the bytes before it end at %s", m[1], want)
		}
		p, err := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p...)
	}
	want := readGolden(t, "example.golden")
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("doc.go and the golden file differ at %04x", i)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("doc.go has %d bytes, the golden file %d", len(got), len(want))
	}
}

// compatCases are files that every later version must read. They are not compared with current
// output, because compressors change.
var compatCases = []struct {
	name string
	opts Options
	rows int
}{
	{"s2.golden", Options{BlockBytes: 1 << 10, Compression: table.CompressionS2, FilterPrefixes: someLens}, 40},
	{"zstd.golden", Options{BlockBytes: 1 << 10, Compression: table.CompressionZstd}, 40},
	{"two-pass.golden", Options{BlockBytes: 1 << 10, Compression: table.CompressionTwoPass, LearnBytes: 2 << 10, learnMin: 1}, 40},
}

func compatEntries(rows int) []kv {
	var es []kv
	for i := range rows {
		es = append(es, kv{fmt.Appendf(nil, "row%03d", i), bytes.Repeat([]byte{byte('a' + i%26)}, i*3)})
	}
	return es
}

// TestReadsOldFiles reads files written by earlier versions.
func TestReadsOldFiles(t *testing.T) {
	for _, c := range compatCases {
		es := compatEntries(c.rows)
		if *rewrite {
			file, _ := build(t, c.opts, nil, es)
			writeGolden(t, c.name, file)
		}
		tab := open(t, bytesSource(readGolden(t, c.name)), OpenOptions{Name: c.name})
		if m := tab.Meta(); m.DataBytes > m.RawBytes {
			t.Errorf("%s: not compressed: %+v", c.name, m)
		}
		got, err := entriesOf(tab, IterOptions{})
		if err != nil || !equalEntries(got, es) {
			t.Errorf("%s: %d entries, %v", c.name, len(got), err)
		}
		for _, e := range es {
			if !tab.MayContain(e.key) {
				t.Errorf("%s: filter denies %q", c.name, e.key)
			}
		}
	}
}
