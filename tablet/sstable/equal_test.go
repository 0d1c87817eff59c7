package sstable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/table"
)

// equalBlocks returns a table of ten data blocks of the same size, each with one of the keys k0 to
// k9, and the stored size of each.
func equalBlocks(t *testing.T, cache *Cache) (tab *Table, src *countingSource, stored int) {
	t.Helper()
	var entries []kv
	for i := range 10 {
		entries = append(entries, kv{fmt.Appendf(nil, "k%d", i), make([]byte, 2000)})
	}
	file, m := build(t, Options{BlockBytes: 1 << 10, Compression: table.CompressionNone}, nil, entries)
	src = &countingSource{Source: bytesSource(file)}
	tab = open(t, src, OpenOptions{Cache: cache})
	h, _ := tab.index.root.handle(0)
	if m.DataBlocks != 10 || m.DataBytes != uint64(10*(h.stored+trailerBytes)) {
		t.Fatalf("%d blocks of %d bytes", m.DataBlocks, m.DataBytes)
	}
	src.reads.Store(0)
	return tab, src, h.stored
}

// cached returns the digits of the keys whose blocks are in the cache.
func cached(tab *Table) string {
	var s strings.Builder
	for i := range 10 {
		h, _ := tab.index.root.handle(i)
		if _, ok := tab.cache.peek(cacheKey{tab.num, h.off}); ok {
			fmt.Fprint(&s, i)
		}
	}
	return s.String()
}

// TestKeyFraction: the fraction of a key between two bounds follows from its next eight bytes.
func TestKeyFraction(t *testing.T) {
	for _, c := range []struct {
		key, lo, hi string
		want        float64
	}{
		{"b", "a", "c", 0.5}, {"a", "a", "c", 0}, {"c", "a", "c", 1}, {"d", "a", "c", 1}, {"A", "a", "c", 0},
		{"xxb", "xxa", "xxc", 0.5}, {"x", "xxa", "xxc", 0}, {"xxb", "xxa", "xxe", 0.25}, {"ab@", "ab", "ab\x80", 0.5},
		{"a", "", "\x80", float64('a') / 128}, {"b", "c", "a", 0}, {"a", "a", "a", 0}, {"ab", "a", "a", 0}, {"a\x80", "a", "b", 0.5},
	} {
		if got := keyFraction([]byte(c.key), []byte(c.lo), []byte(c.hi)); got != c.want {
			t.Errorf("%q is at %v from %q to %q, want %v", c.key, got, c.lo, c.hi, c.want)
		}
	}
}

// TestApproxBytesOfEqualBlocks: each block has an equal share of the file, and a key within it a
// proportional part.
func TestApproxBytesOfEqualBlocks(t *testing.T) {
	tab, _, _ := equalBlocks(t, nil)
	size := tab.meta.Size
	for i := range 10 {
		if got, err := tab.bytesBelow(fmt.Appendf(nil, "k%d", i)); err != nil || got != size*int64(i)/10 {
			t.Errorf("%d bytes of %d are below block %d, %v", got, size, i, err)
		}
		if i == 9 {
			break // its one key is the last
		}
		want := size * int64(2*i+1) / 20
		if got, err := tab.bytesBelow(fmt.Appendf(nil, "k%d\x80", i)); err != nil || got > want || got < want-size/1000 {
			t.Errorf("%d bytes are below the middle of block %d, want %d: %v", got, i, want, err)
		}
	}
	if got, err := tab.bytesBelow([]byte("k9\x00")); err != nil || got != size {
		t.Errorf("%d bytes of %d are below a key above all, %v", got, size, err)
	}
	for _, c := range []struct {
		lower, upper []byte
		want         bool
	}{
		{nil, nil, true}, {nil, []byte("k0"), false}, {nil, []byte("k0\x00"), true}, {[]byte("k9"), nil, true}, {[]byte("k9\x00"), nil, false},
	} {
		if got := tab.Overlaps(c.lower, c.upper); got != c.want {
			t.Errorf("keys from %q to %q are in the table: %v", c.lower, c.upper, got)
		}
	}
	one, _ := build(t, Options{Compression: table.CompressionNone}, nil, []kv{{[]byte("k0"), nil}, {[]byte("k9"), make([]byte, 1000)}})
	tab = open(t, bytesSource(one), OpenOptions{})
	if got, err := tab.bytesBelow([]byte("k4\x80")); err != nil || got < int64(len(one))*4/10 || got > int64(len(one)+1)/2 {
		t.Errorf("%d bytes of %d are below the middle of the only block, %v", got, len(one), err)
	}
}

// TestSamplesOfEqualBlocks: a sample is returned as soon as its bytes are reached.
func TestSamplesOfEqualBlocks(t *testing.T) {
	tab, _, stored := equalBlocks(t, nil)
	for _, c := range []struct {
		lower, upper string
		every        int
		want         string
	}{
		{"", "", 3 * stored, "k3 k6 k9"}, {"", "", 3*stored - 1, "k3 k6 k9"}, {"", "", 3*stored + 1, "k4 k8"}, {"", "k6", 3 * stored, "k3"},
		{"", "k6\x00", 3 * stored, "k3 k6"}, {"k2", "", 3 * stored, "k5 k8"}, {"", "", 10 * stored, ""}, {"k9\x00", "", 1, ""},
	} {
		var lower, upper []byte
		if c.lower != "" {
			lower = []byte(c.lower)
		}
		if c.upper != "" {
			upper = []byte(c.upper)
		}
		var got []string
		err := tab.Samples(lower, upper, int64(c.every), func(key []byte, n int64) {
			got = append(got, string(key))
			if blocks := (c.every + stored - 1) / stored; n != int64(blocks*stored) {
				t.Errorf("a sample of %d bytes, want %d blocks", n, blocks)
			}
		})
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("each %d bytes from %q to %q are parted at %s, want %s: %v", c.every, c.lower, c.upper, got, c.want, err)
		}
	}
}

// TestDropCachedIn: the blocks that end within the bounds are dropped, starting with that of the
// lower bound.
func TestDropCachedIn(t *testing.T) {
	for _, c := range []struct{ lower, upper, left string }{
		{"", "", ""}, {"", "k5", "56789"}, {"", "k4\x80", "456789"}, {"k2\x80", "k5", "0156789"}, {"k7", "", "0123456"}, {"", "z", "9"}, {"z", "", "0123456789"},
	} {
		tab, _, _ := equalBlocks(t, NewCache(64<<20))
		if _, err := entriesOf(tab, IterOptions{}); err != nil || cached(tab) != "0123456789" {
			t.Fatalf("cached are %s, %v", cached(tab), err)
		}
		var lower, upper []byte
		if c.lower != "" {
			lower = []byte(c.lower)
		}
		if c.upper != "" {
			upper = []byte(c.upper)
		}
		if err := tab.DropCachedIn(lower, upper); err != nil || cached(tab) != c.left {
			t.Errorf("without those from %q to %q the blocks %s are left, want %s: %v", c.lower, c.upper, cached(tab), c.left, err)
		}
	}
}

// TestWarmPortions: blocks that are not cached are read in portions that end with the block that
// reaches the size.
func TestWarmPortions(t *testing.T) {
	for _, c := range []struct {
		bytes int // beyond those of two blocks
		warm  []uint64
		want  string
	}{
		{0, []uint64{1, 2, 3, 7}, "k1-k3:k2*2 k3-k8:k7*2 "}, {1, []uint64{1, 2, 3, 7}, "k1-k4:k3*3 k7-k8:k7*1 "}, {0, []uint64{0, 9}, "-:k9*2 "},
		{0, []uint64{1, 5, 6}, "k1-k7:k6*2 "}, {0, []uint64{5}, ""},
	} {
		tab, _, stored := equalBlocks(t, NewCache(64<<20))
		it := tab.NewIter(IterOptions{})
		it.SeekGE([]byte("k5")) // is cached
		it.Close()
		var blocks Blocks
		for _, i := range c.warm {
			blocks.add(i)
		}
		var got strings.Builder
		err := tab.Warm(t.Context(), blocks, 2*stored+c.bytes, func(lower, upper []byte) error {
			fmt.Fprintf(&got, "%s-%s:", lower, upper)
			return nil
		}, func(last []byte, n int) error {
			fmt.Fprintf(&got, "%s*%d ", last, n/stored)
			return nil
		})
		if err != nil || got.String() != c.want {
			t.Errorf("blocks %v are read as %s, want %s: %v", c.warm, got.String(), c.want, err)
		}
		for _, i := range c.warm {
			if !strings.Contains(cached(tab), fmt.Sprint(i)) {
				t.Errorf("block %d is not cached", i)
			}
		}
		if n := len(cached(tab)); n != len(c.warm)+1 && !slices.Contains(c.warm, 5) {
			t.Errorf("%d blocks are cached after %v", n, c.warm)
		}
	}
	tab, _, _ := equalBlocks(t, NewCache(64<<20))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	nothing := func([]byte, []byte) error { return nil }
	if err := tab.Warm(ctx, Blocks{1 << 4}, 1, nothing, func([]byte, int) error { return nil }); err != context.Canceled {
		t.Errorf("after the end of its context: %v", err)
	}
}

// TestReadsAhead: as many blocks are read at once as fit the limit, after the first, which is read
// alone.
func TestReadsAhead(t *testing.T) {
	for _, c := range []struct{ blocks, less, reads int }{{1, 0, 10}, {2, 0, 6}, {3, 0, 4}, {3, 1, 6}, {9, 0, 2}, {9, 1, 3}} {
		tab, src, stored := equalBlocks(t, nil)
		got, err := entriesOf(tab, IterOptions{NoCacheFill: true, ReadAheadBytes: c.blocks*(stored+trailerBytes) - c.less})
		if n := int(src.reads.Load()); err != nil || len(got) != 10 || n != c.reads {
			t.Errorf("%d entries in %d reads of up to %d blocks, less %d bytes, want %d: %v", len(got), n, c.blocks, c.less, c.reads, err)
		}
	}
}

// TestPinRuns: one read of Pin takes up to 1 MiB.
func TestPinRuns(t *testing.T) {
	var entries []kv
	for i := range 32 {
		entries = append(entries, kv{[]byte{byte(i)}, make([]byte, 1<<16-trailerBytes-(1<<17-valueFor(1<<17)))})
	}
	file, m := build(t, Options{BlockBytes: 1 << 10, Compression: table.CompressionNone}, nil, entries)
	if m.DataBytes != 2<<20 || m.DataBlocks != 32 {
		t.Fatalf("%d blocks of %d bytes", m.DataBlocks, m.DataBytes)
	}
	src := &countingSource{Source: bytesSource(file)}
	tab := open(t, src, OpenOptions{})
	src.reads.Store(0)
	if err := tab.Pin(t.Context(), nil, nil, func(int64) bool { return true }); err != nil || src.reads.Load() != 2 {
		t.Errorf("32 blocks of 64 KiB are pinned with %d reads, %v", src.reads.Load(), err)
	}
	var want int64
	for i := range entries {
		h, _ := tab.index.root.handle(i)
		p, ok := tab.pinnedBlock(h.off)
		if !ok || len(p) != h.stored {
			t.Fatalf("block %d has %d bytes, pinned: %v", i, len(p), ok)
		}
		want += int64(cap(p)) + pinOverhead
	}
	if got := tab.PinnedBytes(); got != want {
		t.Errorf("%d bytes are pinned, want %d", got, want)
	}
}

// TestDoorkeeperSize: a doorkeeper has a bit per KiB of budget, within its limits, and is cleared
// when more than half are set.
func TestDoorkeeperSize(t *testing.T) {
	for budget, want := range map[int64]int{0: doorBitsMin, 1 << 20: doorBitsMin, 1<<20 + 1<<10: 2 * doorBitsMin, 1 << 32: 1 << 22, 1 << 40: doorBitsMax} {
		if got := 32 * len(newDoorkeeper(budget).bits); got != want {
			t.Errorf("for %d bytes it has %d bits, want %d", budget, got, want)
		}
	}
	d := newDoorkeeper(0)
	for h := range uint64(doorBitsMin / 2) {
		if d.seen(h) {
			t.Fatalf("hash %d is known", h)
		}
	}
	for h := range uint64(doorBitsMin / 2) {
		if !d.seen(h) || !d.seen(h+doorBitsMin) {
			t.Fatalf("hash %d is forgotten", h)
		}
	}
	if d.seen(doorBitsMin/2) || d.seen(0) || d.set.Load() != 1 {
		t.Errorf("with more than half of its bits set it forgets nothing, %d are counted", d.set.Load())
	}
}

// TestCollectBounds: the entries of a prefix are cached up to 32 KiB, with their lengths, and up to
// a 64th of the budget.
func TestCollectBounds(t *testing.T) {
	const overhead = 1 + 10 + 1 + 10 + 2 // of one entry with a key of two bytes, for a prefix of one
	for _, c := range []struct {
		budget int64
		most   int
	}{{64 << 20, 32 << 10}, {64 * 1000, 1000}} {
		for extra, want := range map[int]byte{0: entriesWhole, 1: entriesTooLarge} {
			file, _ := build(t, Options{}, nil, []kv{{[]byte("p1"), make([]byte, c.most-overhead+extra)}, {[]byte("q"), nil}})
			it := open(t, bytesSource(file), OpenOptions{Cache: NewCache(c.budget)}).NewIter(IterOptions{})
			p, ok := it.collect([]byte("p"))
			if !ok || p[0] != want || want == entriesWhole && len(p) > c.most {
				t.Errorf("of a budget of %d bytes, %d bytes more than the bound: %d, %v", c.budget, extra, p[0], ok)
			}
			it.Close()
		}
	}
}

// TestKeptEntriesAreBounded: the latest 4,096 keys are recorded.
func TestKeptEntriesAreBounded(t *testing.T) {
	var k keptEntries
	if k.any.Load() || len(k.take()) != 0 {
		t.Error("places of none")
	}
	for i := range int64(2*keptMax + 3) {
		k.add(i)
	}
	got := k.take()
	slices.Sort(got)
	if len(got) != keptMax || got[0] != keptMax+3 || got[keptMax-1] != 2*keptMax+2 || !k.any.Load() {
		t.Errorf("%d places, %d to %d", len(got), got[0], got[len(got)-1])
	}
	if k.add(7); !slices.Equal(k.take(), []int64{7}) {
		t.Error("another place after they were taken")
	}
}

// TestWarmBlocks: a block is warm if half of its bytes were cached.
func TestWarmBlocks(t *testing.T) {
	w := newWarmth(NewCache(1 << 20))
	for i, c := range []struct {
		bytes, raw int
		want       bool
	}{{50, 100, true}, {49, 100, false}, {0, 100, false}, {50, 101, false}, {51, 101, true}} {
		w.bytes = c.bytes
		if got := w.end(c.raw); got != c.want || w.blocks.has(uint64(i)) != c.want || w.bytes != 0 {
			t.Errorf("%d cached bytes of %d: %v", c.bytes, c.raw, got)
		}
	}
	none := newWarmth(nil)
	if none.bytes = 100; none.end(100) || none.num != 0 {
		t.Error("a block is warm without a cache")
	}
	var b Blocks
	for _, i := range []uint64{200, 0, 64, 63} {
		b.add(i)
	}
	for i := range uint64(300) {
		if want := slices.Contains([]uint64{0, 63, 64, 200}, i); b.has(i) != want {
			t.Errorf("block %d is among them: %v", i, !want)
		}
	}
	if len(b) != 4 {
		t.Errorf("blocks up to 200 are kept in %d words", len(b))
	}
}

// TestCacheSpace: a block of up to an eighth of the budget is cached, and fits until the level of
// blocks is full.
func TestCacheSpace(t *testing.T) {
	const budget = 80_000
	for n, want := range map[int]bool{budget/8 - entryOverhead: true, budget/8 - entryOverhead + 1: false} {
		c := NewCache(budget)
		c.put(cacheKey{1, 1}, make([]byte, n))
		if _, ok := c.peek(cacheKey{1, 1}); ok != want {
			t.Errorf("a block of %d bytes is cached: %v", n, ok)
		}
	}
	c := NewCache(budget)
	const most = budget - budget/rowShare
	for n, want := range map[int]bool{most - entryOverhead: true, most - entryOverhead + 1: false} {
		if got := c.hasSpace(n); got != want {
			t.Errorf("an empty cache has space for %d bytes: %v", n, got)
		}
	}
	c.put(cacheKey{1, 1}, make([]byte, 1000))
	c.blocks.CleanUp()
	if used := int(c.blocks.WeightedSize()); !c.hasSpace(most-entryOverhead-used) || c.hasSpace(most-entryOverhead-used+1) || used < 1000+entryOverhead {
		t.Errorf("beside %d bytes the space is not what is left", used)
	}
}
