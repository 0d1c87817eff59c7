package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/steledb/stele/table"
)

// sitePages are rows of pages that share their frame and many of their lines.
func sitePages(rng *rand.Rand, n int) []kv {
	var lines [][]byte
	for i := range 200 {
		line := fmt.Appendf(nil, "<p class=\"line\" id=\"l%d\">", i)
		for range 5 + rng.IntN(20) {
			line = fmt.Appendf(line, "%x ", rng.Uint32())
		}
		lines = append(lines, append(line, "</p>\n"...))
	}
	frame := bytes.Join(lines[:20], nil)
	var es []kv
	for i := range n {
		page := bytes.Clone(frame)
		for range rng.IntN(20) {
			page = append(page, lines[rng.IntN(len(lines))]...)
		}
		es = append(es, kv{fmt.Appendf(nil, "org.site/page%05d", i), fmt.Appendf(page, "%d", rng.Uint64())})
	}
	return es
}

// TestTwoPass writes pages of a site with a growing dictionary and reads them again. The file is
// much smaller than with zstd, and has version 2.
func TestTwoPass(t *testing.T) {
	es := sitePages(newRand(t), 800)
	plain, zm := build(t, Options{BlockBytes: 8 << 10, Compression: table.CompressionZstd}, nil, es)
	if v := binary.LittleEndian.Uint32(plain[8:]); v != formatVersion {
		t.Errorf("a file without two-pass compression has version %d", v)
	}
	file, m := build(t, Options{BlockBytes: 8 << 10, Compression: table.CompressionTwoPass, FilterPrefixes: someLens,
		LearnBytes: 512 << 10, learnMin: 64 << 10}, nil, es)
	if v := binary.LittleEndian.Uint32(file[8:]); v != dictVersion {
		t.Errorf("version %d, want %d", v, dictVersion)
	}
	if m.DictBytes == 0 || m.DataBytes+m.DictBytes > zm.DataBytes*3/4 {
		t.Errorf("%d bytes of data and %d of dictionary; with zstd %d", m.DataBytes, m.DictBytes, zm.DataBytes)
	}
	if p := verify(t, bytesSource(file), VerifyOptions{}); len(p) != 0 {
		t.Errorf("reported %v", p)
	}
	tab := open(t, bytesSource(file), OpenOptions{Cache: NewCache(1 << 20)})
	if got := tab.Meta(); got.DictBytes != m.DictBytes || got.Compression != table.CompressionTwoPass {
		t.Errorf("read %+v, wrote %+v", got, m)
	}
	if n := tab.MemoryBytes(); n < tab.file.dict.MemoryBytes() {
		t.Errorf("%d bytes of memory, the dictionary alone is %d", n, tab.file.dict.MemoryBytes())
	}
	for _, o := range []IterOptions{{}, {NoCacheFill: true, ReadAheadBytes: 64 << 10}} {
		got, err := entriesOf(tab, o)
		if err != nil || !equalEntries(got, es) {
			t.Fatalf("%d entries of %d, %v", len(got), len(es), err)
		}
	}
	it := tab.NewIter(IterOptions{})
	defer it.Close()
	for i := 0; i < len(es); i += 37 {
		if !it.SeekGE(es[i].key) || !bytes.Equal(it.Value(), es[i].value) {
			t.Fatalf("%s is not found, or another: %v", es[i].key, it.Err())
		}
	}
}

// TestTwoPassHeld reads a writer's estimated size while it holds all blocks.
func TestTwoPassHeld(t *testing.T) {
	w := NewWriter(io.Discard, Options{BlockBytes: 8 << 10, Compression: table.CompressionTwoPass})
	raw := 0
	for _, e := range sitePages(newRand(t), 300) {
		if err := w.Add(e.key, e.value); err != nil {
			t.Fatal(err)
		}
		raw += len(e.value)
	}
	if n := w.EstimatedSize(); n < int64(raw/heldRatio/2) || n > int64(raw) {
		t.Errorf("%d bytes are estimated as a file of %d", raw, n)
	}
}

// TestTwoPassSmall writes files with too little to learn from, and with entries larger than the
// held data.
func TestTwoPassSmall(t *testing.T) {
	rng := newRand(t)
	big := sitePages(rng, 300)
	var huge []byte
	for _, e := range big {
		huge = append(huge, e.value...)
	}
	for name, es := range map[string][]kv{
		"empty": nil, "three": compatEntries(3), "one huge": {{[]byte("a"), huge}},
		"huge among others": append(append(bytesOf("a", big[:100]), kv{[]byte("b"), huge}), bytesOf("c", big[100:])...),
	} {
		for _, o := range []Options{{}, {LearnBytes: 32 << 10, learnMin: 16 << 10}} {
			o.Compression, o.BlockBytes = table.CompressionTwoPass, 4<<10
			file, _ := build(t, o, nil, es)
			got, err := entriesOf(open(t, bytesSource(file), OpenOptions{}), IterOptions{})
			if err != nil || !equalEntries(got, es) {
				t.Errorf("%s: %d entries of %d, %v", name, len(got), len(es), err)
			}
			if p := verify(t, bytesSource(file), VerifyOptions{}); len(p) != 0 {
				t.Errorf("%s: reported %v", name, p)
			}
		}
	}
}

// bytesOf puts prefix before all keys.
func bytesOf(prefix string, es []kv) (out []kv) {
	for _, e := range es {
		out = append(out, kv{append([]byte(prefix), e.key...), e.value})
	}
	return out
}

// TestTwoPassInvalid breaks references to the dictionary, with valid checksums.
func TestTwoPassInvalid(t *testing.T) {
	es := sitePages(newRand(t), 100)
	build := func() ([]byte, *Table) {
		file, _ := build(t, Options{BlockBytes: 8 << 10, Compression: table.CompressionTwoPass, LearnBytes: 1 << 20, learnMin: 1}, nil, es)
		return file, open(t, bytesSource(file), OpenOptions{})
	}
	check := func(name string, file []byte, want string) {
		t.Helper()
		fixChecksums(file)
		tab, err := Open(context.Background(), bytesSource(file), OpenOptions{Name: "hostile"})
		if err == nil {
			_, err = entriesOf(tab, IterOptions{})
		}
		var bad *CorruptError
		if !errors.As(err, &bad) || bad.File != "hostile" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		found := false
		for _, p := range verify(t, bytesSource(file), VerifyOptions{Name: "hostile"}) {
			found = found || strings.Contains(p.Error(), want)
		}
		if !found {
			t.Errorf("%s: Verify does not report %q", name, want)
		}
		exercise(t, file)
	}
	file, tab := build()
	h := tab.blocks[dirDictionary]
	clear(file[h.off : h.off+int64(h.stored)])
	check("dictionary of zeros", file, "dictionary block")

	file, tab = build()
	at := bytes.Index(file[tab.directory.off:], []byte(dirDictionary))
	file[int(tab.directory.off)+at] = 'D'
	check("dictionary under another name", file, "two-pass block of another dictionary")

	file, tab = build()
	first, _ := tab.index.root.handle(0)
	binary.LittleEndian.PutUint32(file[first.end()-12:], blockRawMax)
	check("raw length above what the bytes can make", file, "is too large for its bytes")

	file, tab = build()
	file[tab.blocks[dirProperties].end()-trailerBytes+1] = byte(table.CompressionTwoPass)
	check("properties compressed as data", file, "with the compression of data blocks")
}
