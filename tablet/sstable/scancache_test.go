package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/steledb/stele/table"
)

// rowEntries makes rows of 0 to 40 entries, some of which are too large for the scan cache.
func rowEntries(rng *rand.Rand, rows int) (entries []kv, prefixes [][]byte) {
	for row := range rows {
		prefix := fmt.Appendf(nil, "row%04d\x00\x01", row)
		prefixes = append(prefixes, prefix)
		size := 1 + rng.IntN(60)
		if rng.IntN(10) == 0 {
			size = 2000
		}
		for i := range rng.IntN(40) {
			entries = append(entries, kv{fmt.Appendf(bytes.Clone(prefix), "q%03d", i), bytes.Repeat([]byte{byte(i)}, size)})
		}
	}
	return entries, prefixes
}

// TestEntries compares the scan cache's entries of a prefix with an iterator's, for all seeks.
func TestEntries(t *testing.T) {
	rng := newRand(t)
	entries, prefixes := rowEntries(rng, 200)
	file, _ := build(t, Options{BlockBytes: 4 << 10, Compression: table.CompressionS2}, nil, entries)
	src := &countingSource{Source: bytesSource(file)}
	tab := open(t, src, OpenOptions{Cache: NewCache(8 << 20)})
	kept, early := 0, 0
	for _, prefix := range prefixes {
		var want []kv
		for _, e := range entries {
			if bytes.HasPrefix(e.key, prefix) {
				want = append(want, e)
			}
		}
		keep := func() (Entries, bool) {
			tab.cache.blocks.InvalidateAll()
			it := tab.NewIter(IterOptions{})
			it.SeekGE(prefix)
			it.Keep(prefix)
			if err := it.Close(); err != nil {
				t.Fatal(err)
			}
			return tab.Entries(prefix)
		}
		if _, ok := keep(); ok {
			early++ // the doorkeeper took it for another
		}
		e, ok := keep()
		before := src.reads.Load()
		again, okAgain := tab.Entries(prefix)
		if ok != okAgain || !bytes.Equal(e.p, again.p) || ok && src.reads.Load() != before {
			t.Fatalf("%q: %v, then %v after %d reads", prefix, ok, okAgain, src.reads.Load()-before)
		}
		bytesOf := 0
		for _, e := range want {
			bytesOf += len(e.key) + len(e.value) + 3
		}
		if ok != (bytesOf < entriesBytesMax) {
			t.Errorf("%q of %d bytes is kept: %v", prefix, bytesOf, ok)
		}
		if !ok {
			continue
		}
		kept++
		if e.Empty() != (len(want) == 0) {
			t.Errorf("%q is empty: %v", prefix, e.Empty())
		}
		var it EntriesIter
		it.Reset(e)
		i := 0
		for ok := it.First(); ok; ok = it.Next() {
			if i >= len(want) || !bytes.Equal(it.Key(), want[i].key) || !bytes.Equal(it.Value(), want[i].value) {
				t.Fatalf("%q: entry %d is %q", prefix, i, it.Key())
			}
			i++
		}
		if i != len(want) || it.Key() != nil || it.Err() != nil {
			t.Fatalf("%q: %d entries of %d, %v", prefix, i, len(want), it.Err())
		}
		for range 50 {
			key := fmt.Appendf(bytes.Clone(prefix), "q%03d", rng.IntN(45))
			switch rng.IntN(8) {
			case 0:
				key = prefix
			case 1:
				key = append(key, 'x')
			case 2:
				it.Next()
			}
			at, _ := slices.BinarySearchFunc(want, key, func(e kv, key []byte) int { return bytes.Compare(e.key, key) })
			if ok := it.SeekGE(key); ok != (at < len(want)) || ok && !bytes.Equal(it.Key(), want[at].key) {
				t.Fatalf("%q: seek %q: %v, %q", prefix, key, ok, it.Key())
			}
		}
	}
	if early > len(prefixes)/4 {
		t.Errorf("%d of %d prefixes are cached after one request", early, len(prefixes))
	}
	if kept < 100 {
		t.Errorf("%d of %d prefixes are kept", kept, len(prefixes))
	}
	defer func() {
		tab.DropCached()
		tab.cache.blocks.CleanUp()
		tab.cache.rows.CleanUp()
		if s := tab.cache.Stats(); s.Blocks+s.Rows != 0 {
			t.Errorf("of a file that went: %+v", s)
		}
	}()
	if s := tab.cache.Stats(); s.RowHits < uint64(kept) || s.RowMisses < uint64(len(prefixes))/2 {
		t.Errorf("%+v", s)
	}
}

// TestOnlyMissesAreKept: entries whose blocks are in memory are not cached again, and without a
// cache nothing is.
func TestOnlyMissesAreKept(t *testing.T) {
	file, _ := build(t, Options{}, nil, []kv{{[]byte("row1"), []byte("v")}, {[]byte("row2"), nil}})
	for name, c := range map[string]struct {
		cache *Cache
		fill  bool // so that the blocks are found in it
		want  bool
	}{"missed": {NewCache(8 << 20), false, true}, "found": {NewCache(8 << 20), true, false}, "no cache": {nil, false, false}} {
		tab := open(t, bytesSource(file), OpenOptions{Cache: c.cache})
		if _, err := entriesOf(tab, IterOptions{NoCacheFill: !c.fill}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			it := tab.NewIter(IterOptions{NoCacheFill: true})
			it.SeekGE([]byte("row1"))
			it.Keep([]byte("row1"))
			it.Close()
		}
		if _, ok := tab.Entries([]byte("row1")); ok != c.want {
			t.Errorf("%s: kept %v", name, ok)
		}
	}
}

// Two prefixes with the same cache key are not confused.
func TestEntriesOfAnotherPrefix(t *testing.T) {
	p := append([]byte{entriesWhole, 3}, "abc"...)
	if _, found := entriesOfPrefix(p, []byte("abd")); found {
		t.Error("entries of abc returned for abd")
	}
	if _, found := entriesOfPrefix(p, []byte("ab")); found {
		t.Error("entries of abc returned for ab")
	}
	if rest, found := entriesOfPrefix(append(p, "rest"...), []byte("abc")); !found || string(rest) != "rest" {
		t.Errorf("%q, %v", rest, found)
	}
}

// Unreadable entries are not cached.
func TestEntriesOfCorruptFile(t *testing.T) {
	entries, prefixes := rowEntries(newRand(t), 200)
	file, _ := build(t, Options{BlockBytes: 4 << 10, Compression: table.CompressionNone}, nil, entries)
	tab := open(t, bytesSource(file), OpenOptions{Cache: NewCache(8 << 20)})
	for i := range len(file) / 2 {
		file[i] ^= 1
	}
	for range 3 {
		it := tab.NewIter(IterOptions{})
		it.SeekGE(prefixes[10])
		it.Keep(prefixes[10])
		it.Close()
		if e, ok := tab.Entries(prefixes[10]); ok {
			t.Fatalf("corrupt blocks returned %q", e.p)
		}
	}
}

// The doorkeeper admits repeated requests and few others, and is safe for concurrent use.
func TestDoorkeeper(t *testing.T) {
	d := newDoorkeeper(1 << 20)
	rng := newRand(t)
	var first []uint64
	for range 200 {
		first = append(first, rng.Uint64())
	}
	wrong := 0
	for _, h := range first {
		if d.seen(h) {
			wrong++
		}
	}
	if wrong > 60 {
		t.Errorf("%d of %d are false positives", wrong, len(first))
	}
	for _, h := range first {
		if !d.seen(h) {
			t.Fatal("a repeated request is not recognized")
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10_000 {
				d.seen(rand.Uint64())
			}
		})
	}
	wg.Wait()
	set := 0
	for i := range d.bits {
		for b := d.bits[i].Load(); b != 0; b &= b - 1 {
			set++
		}
	}
	if set > len(d.bits)*32*3/4 {
		t.Errorf("%d of %d bits are set", set, len(d.bits)*32)
	}
}
