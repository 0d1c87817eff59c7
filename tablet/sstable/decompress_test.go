package sstable

import (
	"bytes"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/steledb/stele/table"
)

// TestDecompressChecksLengths: compressed bytes are accepted if they state the raw length, or are
// too short to state one, and decompress to it.
func TestDecompressChecksLengths(t *testing.T) {
	text := func(n int) []byte { return bytes.Repeat([]byte("0123456789"), n/10+1)[:n] }
	stated := func(n int) []byte { return zstdEncoder().EncodeAll(text(n), nil) }
	unstated := func(n int) []byte {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(text(n))
		if err == nil {
			err = w.Flush() // before Close, so that the size is not known when the header is written
		}
		if err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	damaged := func(p []byte) []byte {
		p = bytes.Clone(p)
		p[len(p)-5] ^= 0xff
		return p
	}
	const lengthS2, badS2 = "s2 length differs from the trailer's", "malformed s2"
	const lengthZstd, badZstd = "zstd length differs from the trailer's", "malformed zstd"
	for name, c := range map[string]struct {
		c      table.Compression
		stored []byte
		raw    int
		want   string
	}{
		"s2":                            {table.CompressionS2, s2.Encode(nil, text(1000)), 1000, ""},
		"s2 of a byte less":             {table.CompressionS2, s2.Encode(nil, text(1000)), 1001, lengthS2},
		"s2 of a byte more":             {table.CompressionS2, s2.Encode(nil, text(1000)), 999, lengthS2},
		"s2 cut":                        {table.CompressionS2, s2.Encode(nil, text(1000))[:8], 1000, badS2},
		"s2 of nothing":                 {table.CompressionS2, nil, 0, lengthS2},
		"zstd":                          {table.CompressionZstd, stated(1000), 1000, ""},
		"zstd of a byte less":           {table.CompressionZstd, stated(1000), 1001, lengthZstd},
		"zstd of a byte more":           {table.CompressionZstd, stated(1000), 999, lengthZstd},
		"zstd of much less":             {table.CompressionZstd, stated(1000), 1 << 30, lengthZstd},
		"zstd damaged":                  {table.CompressionZstd, damaged(stated(1000)), 1000, badZstd},
		"zstd of nothing":               {table.CompressionZstd, nil, 0, lengthZstd},
		"no zstd":                       {table.CompressionZstd, []byte("no zstd frame"), 100, lengthZstd},
		"zstd without length":           {table.CompressionZstd, unstated(255), 255, ""},
		"zstd without length, too long": {table.CompressionZstd, unstated(256), 256, lengthZstd},
		"zstd without length, shorter":  {table.CompressionZstd, unstated(99), 100, badZstd},
		"zstd without length, longer":   {table.CompressionZstd, unstated(101), 100, badZstd},
		"of no kind":                    {table.CompressionTwoPass + 1, []byte("x"), 1, "unknown compression"},
	} {
		p, reason := decompress(c.c, c.stored, c.raw, nil)
		if reason != c.want || reason == "" && !bytes.Equal(p, text(c.raw)) || reason != "" && p != nil {
			t.Errorf("%s: %d bytes, %q, want %q", name, len(p), reason, c.want)
		}
	}
}

// TestCompressedIfItPays: a block is stored compressed if that saves an eighth of it, and not if it
// saves a byte less.
func TestCompressedIfItPays(t *testing.T) {
	random := make([]byte, 704)
	randomBytes(newRand(t), random)
	at, below := 0, 0
	for zeros := range 400 {
		raw := append(bytes.Clone(random), make([]byte, zeros)...)
		saved := len(raw) - len(s2.Encode(nil, raw))
		c := compressor{method: table.CompressionS2}
		if _, got := c.stored(raw, kindData); (got == table.CompressionS2) != (saved >= len(raw)/8) {
			t.Errorf("a block of %d bytes of which compression saves %d is stored by %v", len(raw), saved, got)
		}
		switch saved - len(raw)/8 {
		case 0:
			at++
		case -1:
			below++
		}
	}
	if at == 0 || below == 0 {
		t.Errorf("%d blocks are at the bound, %d just below it", at, below)
	}
}

// TestConsistentMeta: the numbers in a file's properties must be consistent with the file and each other.
func TestConsistentMeta(t *testing.T) {
	good := Meta{Size: 100, Entries: 3, DataBlocks: 3, FirstKey: []byte("a"), LastKey: []byte("b")}
	for name, c := range map[string]struct {
		change func(m *Meta)
		want   bool
	}{
		"good":                 {func(*Meta) {}, true},
		"all of the file":      {func(m *Meta) { m.DataBytes, m.IndexBytes, m.FilterBytes, m.DictBytes = 100, 100, 100, 100 }, true},
		"more data":            {func(m *Meta) { m.DataBytes = 101 }, false},
		"more index":           {func(m *Meta) { m.IndexBytes = 101 }, false},
		"more filter":          {func(m *Meta) { m.FilterBytes = 101 }, false},
		"more dictionary":      {func(m *Meta) { m.DictBytes = 101 }, false},
		"more blocks":          {func(m *Meta) { m.DataBlocks = 4 }, false},
		"fewer blocks":         {func(m *Meta) { m.DataBlocks = 1 }, true},
		"no blocks":            {func(m *Meta) { m.DataBlocks = 0 }, false},
		"one key":              {func(m *Meta) { m.LastKey = m.FirstKey }, true},
		"keys in wrong order":  {func(m *Meta) { m.FirstKey = []byte("c") }, false},
		"no first key":         {func(m *Meta) { m.FirstKey = nil }, false},
		"no last key":          {func(m *Meta) { m.LastKey = nil }, false},
		"nothing":              {func(m *Meta) { *m = Meta{Size: 100} }, true},
		"nothing but a first":  {func(m *Meta) { *m = Meta{Size: 100, FirstKey: []byte("a")} }, false},
		"nothing but a last":   {func(m *Meta) { *m = Meta{Size: 100, LastKey: []byte("a")} }, false},
		"nothing but a block":  {func(m *Meta) { *m = Meta{Size: 100, DataBlocks: 1} }, false},
		"nothing in two keys":  {func(m *Meta) { m.Entries, m.DataBlocks = 0, 0 }, false},
		"entries of no blocks": {func(m *Meta) { *m = Meta{Size: 100, Entries: 1} }, false},
	} {
		m := good
		if c.change(&m); m.consistent() != c.want {
			t.Errorf("%s: consistent is %v", name, m.consistent())
		}
	}
}

// TestOverlapsAtTheEnds: a table's range includes its first and last key; an empty table overlaps
// nothing.
func TestOverlapsAtTheEnds(t *testing.T) {
	file, _ := build(t, Options{}, nil, []kv{{[]byte("b"), nil}, {[]byte("d"), nil}})
	tab := open(t, bytesSource(file), OpenOptions{})
	for _, c := range []struct {
		lower, upper string // "-" is no bound
		want         bool
	}{
		{"-", "-", true}, {"-", "a", false}, {"-", "b", false}, {"-", "b\x00", true}, {"d", "-", true}, {"d\x00", "-", false}, {"c", "c\x00", true},
		{"a", "z", true}, {"", "-", true}, {"-", "", false},
	} {
		bound := func(s string) []byte {
			if s == "-" {
				return nil
			}
			return []byte(s)
		}
		if got := tab.Overlaps(bound(c.lower), bound(c.upper)); got != c.want {
			t.Errorf("from %q to %q: %v", c.lower, c.upper, got)
		}
	}
	file, _ = build(t, Options{}, nil, nil)
	if open(t, bytesSource(file), OpenOptions{}).Overlaps(nil, nil) {
		t.Error("a table without entries overlaps")
	}
}
