package twopass

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files: only for a new version of the format")

// docBytes returns the bytes of the worked example's two dumps.
func docBytes(t *testing.T) (dict, block []byte) {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(doc), "# Worked example")
	if !ok {
		t.Fatal("doc.go has no worked example")
	}
	line := regexp.MustCompile(`(?m)^//\t([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)(?:\s|$)`)
	read := func(s string) (p []byte) {
		for _, m := range line.FindAllStringSubmatch(s, -1) {
			q, err := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			p = append(p, q...)
		}
		return p
	}
	first, second, ok := strings.Cut(example, "The block is")
	if !ok {
		t.Fatal("doc.go has no block")
	}
	return read(first), read(second)
}

// TestExample encodes and decodes the worked example of doc.go byte for byte.
func TestExample(t *testing.T) {
	dict, block := docBytes(t)
	const text = "A <i>tablet</i>, a tablet</i>, a tablet</i>."
	e := &Encoder{text: []byte("<i>tablet</i>"), shift: 4, phrases: []phrase{{3, 6}}, gens: make([]generation, 1)}
	if got := e.AppendDict(nil); !bytes.Equal(got, dict) {
		t.Errorf("dictionary\n%x\nwant\n%x", got, dict)
	}
	d, err := OpenDict(dict)
	if err != nil {
		t.Fatal(err)
	}
	e.m.lits = []byte("A , a .")
	e.m.seqs = []seq{{2, 13, 0, fromDict}, {4, 6, 0, fromPhrase}, {0, 4, 0, fromLast}, {0, 14, 14, fromBlock}}
	if got := e.code([]byte{1}, []byte(text)); !bytes.Equal(got, block) {
		t.Errorf("block\n%x\nwant\n%x", got, block)
	}
	got := make([]byte, len(text))
	if err := d.Decode(got, block); err != nil || string(got) != text {
		t.Errorf("decoded %q, %v", got, err)
	}
}

// TestGolden decodes the output of an earlier encoder, with Huffman coding. Every later version
// must be able to.
func TestGolden(t *testing.T) {
	blocks := fixedSite()
	if *update {
		e := &Encoder{TextMax: 4 << 10}
		e.Learn(blocks, 4<<10)
		stored := e.Encode(nil, blocks[1])
		for name, p := range map[string][]byte{"testdata/dict.golden": e.AppendDict(nil), "testdata/block.golden": stored, "testdata/block.html": blocks[1]} {
			if err := os.WriteFile(name, p, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var files [3][]byte
	for i, name := range []string{"testdata/dict.golden", "testdata/block.golden", "testdata/block.html"} {
		var err error
		if files[i], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	d, err := OpenDict(files[0])
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(files[2]))
	if err := d.Decode(got, files[1]); err != nil || !bytes.Equal(got, files[2]) {
		t.Errorf("the block is another: %v", err)
	}
}
