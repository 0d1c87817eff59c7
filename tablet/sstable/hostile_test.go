package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/steledb/stele/table"
)

// invalidTables are tables with valid checksums and invalid contents. Each modifies a Writer before
// Finish.
var invalidTables = []struct {
	name   string
	change func(w *Writer)
	report string // part of what Verify reports
	open   bool   // Open finds it too
}{
	{"more entries", func(w *Writer) { w.meta.Entries++ }, "4 entries, the properties have 5", false},
	{"fewer raw bytes", func(w *Writer) { w.meta.RawBytes-- }, "raw bytes, the properties have", false},
	{"more data blocks", func(w *Writer) { w.meta.DataBlocks++ }, "data blocks, the properties have", false},
	{"no entries", func(w *Writer) { w.meta.Entries, w.meta.FirstKey = 0, nil }, "malformed properties block", true},
	{"another first key", func(w *Writer) { w.meta.FirstKey = []byte("a") }, "first or last key differs", false},
	{"another last key", func(w *Writer) { w.prev = []byte("zz") }, "first or last key differs", false},
	{"first key above last", func(w *Writer) { w.meta.FirstKey = []byte("zzz") }, "malformed properties block", true},
	{"key out of order", func(w *Writer) { w.data.add([]byte("aa"), 0, nil) }, "is not above the key before it", false},
	{"separator above its block", func(w *Writer) { w.sep = []byte("zz") }, "key below the separator", false},
	{"separator below the block before", func(w *Writer) { w.sep = []byte("a") }, "separator is not above the key before", false},
	{"filter without the last prefix", func(w *Writer) { w.filter.hashes = w.filter.hashes[:1] }, "filter denies", false},
	{"entry count of a block", func(w *Writer) { w.data.entries++ }, "malformed data block", false},
	{"restart in the middle of an entry", func(w *Writer) {
		w.data.restarts = binary.LittleEndian.AppendUint64(w.data.restarts, 1)
		w.data.entries++
	}, "malformed data block", false},
	{"first restart elsewhere", func(w *Writer) { w.data.restarts[0] = 1 }, "malformed data block", false},
	{"shared length above the key before", func(w *Writer) {
		w.data.keys = append(w.data.keys, 100, 1, 0, 'x')
		w.data.entries++
	}, "malformed data block", false},
	{"own length beyond the block", func(w *Writer) {
		w.data.keys = append(w.data.keys, 0, 100, 0, 'x')
		w.data.entries++
	}, "malformed data block", false},
	{"value beyond the block", func(w *Writer) {
		w.data.keys = append(w.data.keys, 0, 1, 100, 'x')
		w.data.entries++
	}, "malformed data block", false},
	{"length that never ends", func(w *Writer) {
		w.data.keys = append(w.data.keys, bytes.Repeat([]byte{0xff}, 12)...)
		w.data.entries++
	}, "malformed data block", false},
	{"unused values", func(w *Writer) { w.data.values = append(w.data.values, 'x') }, "malformed data block", false},
	{"bytes between blocks", func(w *Writer) {
		_ = w.cutData([]byte("g"))
		w.meta.LastKey = w.prev
		w.out = append(w.out, 0)
	}, "does not follow", false},
}

// invalidTable writes four entries in two blocks and calls change during the second block.
func invalidTable(t *testing.T, change func(*Writer)) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, Options{BlockBytes: 1 << 10, Compression: table.CompressionNone, FilterPrefixes: someLens})
	for _, key := range []string{"b", "c", "d", "f"} {
		if err := w.Add([]byte(key), make([]byte, 450)); err != nil {
			t.Fatal(err)
		}
	}
	change(w)
	if _, err := w.Finish(nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

//	TestInvalidContents verifies that Verify finds defects behind valid checksums, and that reading
//
// such a file is harmless (S4).
func TestInvalidContents(t *testing.T) {
	opts := VerifyOptions{Name: "hostile", FilterPrefixes: func(string) func([]byte, []int) []int { return someLens }}
	if p := verify(t, bytesSource(invalidTable(t, func(*Writer) {})), opts); len(p) > 0 {
		t.Fatal(p)
	}
	for _, c := range invalidTables {
		file := invalidTable(t, c.change)
		problems := verify(t, bytesSource(file), opts)
		found := false
		for _, p := range problems {
			if !errors.Is(p, ErrCorrupt) {
				t.Errorf("%s: %v is not a CorruptError", c.name, p)
			}
			found = found || strings.Contains(p.Error(), c.report) && strings.Contains(p.Error(), "hostile")
		}
		if !found {
			t.Errorf("%s: reported %v, want %q", c.name, problems, c.report)
		}
		if _, err := Open(context.Background(), bytesSource(file), OpenOptions{}); (err != nil) != c.open {
			t.Errorf("%s: open: %v", c.name, err)
		}
		exercise(t, file)
	}
}

// TestInvalidFrames changes one field of a valid file and corrects all checksums. Every reader of the
// field must return a typed error.
func TestInvalidFrames(t *testing.T) {
	put := binary.LittleEndian.PutUint32
	for _, comp := range []table.Compression{table.CompressionNone, table.CompressionS2, table.CompressionZstd, table.CompressionTwoPass} {
		for _, c := range []struct {
			name string
			edit func(frame []byte)
		}{
			{"kind", func(f []byte) { f[len(f)-trailerBytes] = byte(kindIndex) }},
			{"kind that is none", func(f []byte) { f[len(f)-trailerBytes] = 99 }},
			{"compression that is none", func(f []byte) { f[len(f)-trailerBytes+1] = 99 }},
			{"another compression", func(f []byte) { f[len(f)-trailerBytes+1] = f[len(f)-trailerBytes+1]%4 + 1 }},
			{"raw length", func(f []byte) { put(f[len(f)-12:], binary.LittleEndian.Uint32(f[len(f)-12:])+1) }},
			{"huge raw length", func(f []byte) { put(f[len(f)-12:], 1<<31) }},
			{"largest raw length", func(f []byte) { put(f[len(f)-12:], blockRawMax) }},
			{"stored bytes", func(f []byte) {
				if comp != table.CompressionNone {
					clear(f[:len(f)-trailerBytes])
				} else {
					clear(f[len(f)-trailerBytes-blockTailBytes : len(f)-trailerBytes])
					f[len(f)-trailerBytes-1] = 1
				}
			}},
		} {
			file, _ := build(t, Options{Compression: comp, FilterPrefixes: someLens}, nil, compatEntries(30))
			tab := open(t, bytesSource(file), OpenOptions{})
			h, _ := tab.index.root.handle(0)
			c.edit(file[h.off:h.end()])
			fixChecksums(file)
			tab = open(t, bytesSource(file), OpenOptions{Name: "hostile"})
			_, err := entriesOf(tab, IterOptions{})
			var bad *CorruptError
			if !errors.As(err, &bad) || bad.Offset != h.off || bad.File != "hostile" {
				t.Errorf("%v: %s: %v", comp, c.name, err)
			}
			exercise(t, file)
		}
	}
}

// TestRandomContents changes valid files at random, corrects all checksums, and performs all operations
// on the result.
func TestRandomContents(t *testing.T) {
	rng := newRand(t)
	seeds := seedFiles(t)
	rounds := 1000
	if testing.Short() || raceEnabled {
		rounds = 100
	}
	for range rounds {
		file := bytes.Clone(seeds[rng.IntN(len(seeds))])
		for range 1 + rng.IntN(4) {
			at := headerBytes + rng.IntN(len(file)-headerBytes)
			if rng.IntN(2) == 0 {
				at = len(file) - 1 - rng.IntN(min(len(file), 600)) // index, properties, directory
			}
			file[at] = []byte{0, 1, 0x7f, 0x80, 0xff, file[at] + 1, file[at] ^ 1<<rng.IntN(8)}[rng.IntN(7)]
		}
		fixChecksums(file)
		exercise(t, file)
	}
}

// TestFilterBlock verifies that a filter's numbers are checked before its fingerprints are used.
func TestFilterBlock(t *testing.T) {
	const most = filterSegmentMax
	for name, c := range map[string]struct {
		h    filterHeader
		bits int
		good bool
	}{
		"one segment":         {filterHeader{kind: filterFuse8, prefixes: 1, seed: 7, segment: 4, segments: 1}, 12, true},
		"segments of one":     {filterHeader{kind: filterFuse8, segment: 1, segments: 5}, 7, true},
		"the longest segment": {filterHeader{kind: filterFuse8, segment: most, segments: 1}, 3 * most, true},
		"a longer segment":    {filterHeader{kind: filterFuse8, segment: 2 * most, segments: 1}, 6 * most, false},
		"another kind":        {filterHeader{kind: 2, segment: 4, segments: 1}, 12, false},
		"empty segments":      {filterHeader{kind: filterFuse8, segment: 0, segments: 1}, 0, false},
		"no power of two":     {filterHeader{kind: filterFuse8, segment: 3, segments: 2}, 12, false},
		"no segments":         {filterHeader{kind: filterFuse8, segment: 4, segments: 0}, 8, false},
		"too few bits":        {filterHeader{kind: filterFuse8, segment: 4, segments: 2}, 15, false},
		"too many bits":       {filterHeader{kind: filterFuse8, segment: 4, segments: 2}, 17, false},
		"an overflow":         {filterHeader{kind: filterFuse8, segment: 1 << 31, segments: 1<<32 - 2}, 0, false},
		"all pass":            {filterHeader{kind: filterAll, prefixes: 9}, 0, true},
		"all pass, bits":      {filterHeader{kind: filterAll}, 1, false},
		"all pass, a seed":    {filterHeader{kind: filterAll, seed: 1}, 0, false},
		"all pass, segment":   {filterHeader{kind: filterAll, segment: 1}, 0, false},
		"all pass, segments":  {filterHeader{kind: filterAll, segments: 1}, 0, false},
	} {
		p := append(c.h.append(nil), make([]byte, c.bits)...)
		var f filterPart
		if err := f.parse(p); (err == nil) != c.good || c.good && f.prefixes != c.h.prefixes {
			t.Errorf("%s: %v, %d prefixes", name, err, f.prefixes)
		}
		if c.good && c.h.kind == filterAll && !f.contains(1) {
			t.Errorf("%s: a prefix does not", name)
		}
		for i := 1; i < 4; i++ {
			p[i] = 1
			if err := f.parse(p); err == nil {
				t.Errorf("%s: read with byte %d set", name, i)
			}
			p[i] = 0
		}
		for n := range filterHeaderBytes {
			if err := f.parse(p[:n]); err == nil {
				t.Errorf("%s: %d bytes are read", name, n)
			}
		}
	}
}

// TestVerifyNamesIndexBlocks: an index block whose separators do not ascend is reported itself, and
// its data blocks are not read through it.
func TestVerifyNamesIndexBlocks(t *testing.T) {
	file, _ := build(t, Options{BlockBytes: 1 << 10, Compression: table.CompressionNone}, nil, bigEntries(2000))
	root := &open(t, bytesSource(file), OpenOptions{}).index.root
	h, ok := root.handle(1)
	var leaf indexBlock
	if !ok || leaf.parse(file[h.off:h.end()-trailerBytes], root.limit) != nil {
		t.Fatal("no second index block")
	}
	sep, _ := leaf.wholeKey(5) // a part of the file
	sep[0] = 0
	fixChecksums(file)
	var bad *CorruptError
	problems := verify(t, bytesSource(file), VerifyOptions{})
	if len(problems) != 1 || !errors.As(problems[0], &bad) || bad.Offset != h.off || !strings.Contains(bad.Reason, kindIndex.String()) {
		t.Errorf("reported %v, want a malformed index block at %d", problems, h.off)
	}
}
