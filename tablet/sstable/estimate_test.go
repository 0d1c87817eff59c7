package sstable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/steledb/stele/table"
)

// TestEstimateOfParts: the estimate of a file's size is close, whatever the file mostly consists
// of.
func TestEstimateOfParts(t *testing.T) {
	rng := newRand(t)
	var long, large, short []kv
	prefix := bytes.Repeat([]byte("long"), 200)
	for i := range 2000 {
		long = append(long, kv{fmt.Appendf(bytes.Clone(prefix), "%06d", i), make([]byte, 900)})
	}
	for _, e := range long[:18] {
		large = append(large, kv{e.key, make([]byte, 2700)})
	}
	var n uint64
	for range 12_000 {
		n += 1 + rng.Uint64N(1<<50)
		short = append(short, kv{binary.BigEndian.AppendUint64([]byte("keys"), n), nil})
	}
	lens := func(_ []byte, dst []int) []int { return append(dst, 5, 6, 7, 8, 9, 10, 11, 12) }
	for name, c := range map[string]struct {
		opts    Options
		entries []kv
	}{
		"the block under way": {Options{BlockBytes: 1 << 20}, []kv{{[]byte("k"), make([]byte, 600_000)}}},
		"the index":           {Options{BlockBytes: 1 << 10}, long},
		"an index of a block": {Options{BlockBytes: 1 << 10}, large},
		"the filter":          {Options{BlockBytes: 4 << 10, FilterPrefixes: lens}, short},
		"half the filter":     {Options{BlockBytes: 4 << 10, FilterPrefixes: lens}, short[:4000]},
	} {
		c.opts.Compression = table.CompressionNone
		var out bytes.Buffer
		w := NewWriter(&out, c.opts)
		for _, e := range c.entries {
			if err := w.Add(e.key, e.value); err != nil {
				t.Fatal(err)
			}
		}
		guess := w.EstimatedSize()
		m, err := w.Finish(nil)
		if err != nil {
			t.Fatal(err)
		}
		if guess < m.Size*95/100 || guess > m.Size*105/100 || w.EstimatedSize() != m.Size {
			t.Errorf("%s: %d bytes are estimated, then %d, the file has %d", name, guess, w.EstimatedSize(), m.Size)
		}
	}
	if n := NewWriter(io.Discard, Options{}).EstimatedSize(); n < headerBytes+footerBytes {
		t.Errorf("an empty file is estimated at %d bytes, its header and footer have %d", n, headerBytes+footerBytes)
	}
}

// TestLearnLeast: two-pass compression makes a dictionary only from at least the minimum of bytes.
func TestLearnLeast(t *testing.T) {
	es := sitePages(newRand(t), 60)
	opts := Options{BlockBytes: 8 << 10, Compression: table.CompressionTwoPass, learnMin: 1 << 30}
	plain, _ := build(t, opts, nil, es)
	tab := open(t, bytesSource(plain), OpenOptions{})
	hs, _ := tab.index.root.handles()
	total := 0
	for _, h := range hs {
		p, err := tab.file.read(h, kindData, 0)
		if err != nil {
			t.Fatal(err)
		}
		total += len(p)
	}
	for least, want := range map[int]bool{total: true, total + 1: false} {
		opts.learnMin = least
		if _, m := build(t, opts, nil, es); (m.DictBytes > 0) != want {
			t.Errorf("of %d bytes, with %d to learn from, the dictionary has %d", total, least, m.DictBytes)
		}
	}
}

// TestHeldMemoryIsFreed: a writer holds no blocks, and no memory for them, when the file is
// finished or it has learned enough.
func TestHeldMemoryIsFreed(t *testing.T) {
	es := sitePages(newRand(t), 400)
	for name, learn := range map[string]int{"finished": 64 << 20, "learnt": 64 << 10} {
		w := NewWriter(io.Discard, Options{BlockBytes: 8 << 10, Compression: table.CompressionTwoPass, LearnBytes: learn, learnMin: 16 << 10})
		held := false
		for _, e := range es {
			if err := w.Add(e.key, e.value); err != nil {
				t.Fatal(err)
			}
			held = held || len(w.held.raws) > 0
		}
		if name == "learnt" && w.comp.two.Wants() {
			t.Fatal("it has not learnt enough")
		}
		if name == "finished" {
			if _, err := w.Finish(nil); err != nil {
				t.Fatal(err)
			}
		}
		if h := w.held; !held || cap(h.raws)+cap(h.seps)+cap(h.warm)+cap(h.spare)+h.bytes != 0 {
			t.Errorf("%s: %d blocks of %d bytes are held, memory for %d", name, len(h.raws), h.bytes, len(h.spare))
		}
	}
}
