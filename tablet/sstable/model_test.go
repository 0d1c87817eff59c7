package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/steledb/stele/table"
)

// keyMaker returns a function that makes keys of one type.
func keyMaker(rng *rand.Rand) (name string, next func() []byte) {
	long := make([]byte, 64<<10)
	randomBytes(rng, long)
	switch rng.IntN(5) {
	case 0: // few bytes of a small alphabet: dense, prefixes of each other
		return "dense", func() []byte {
			p := make([]byte, rng.IntN(8))
			for i := range p {
				p[i] = "\x00\x01ab\xff"[rng.IntN(5)]
			}
			return p
		}
	case 1:
		return "numbers", func() []byte { return benchKey(nil, rng.IntN(1_000_000)) }
	case 2:
		return "random", func() []byte {
			p := make([]byte, rng.IntN(64))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			return p
		}
	case 3: // a row key and a qualifier at their limits
		return "long", func() []byte {
			p := slices.Clone(long[:len(long)-rng.IntN(4)])
			q := make([]byte, rng.IntN(16<<10))
			randomBytes(rng, q)
			return append(p, q...)
		}
	default: // much in common, then zeros
		return "zeros", func() []byte {
			return append(slices.Clone(long[:100]), make([]byte, rng.IntN(300))...)
		}
	}
}

func randomValue(rng *rand.Rand, big bool) []byte {
	n := 0
	switch rng.IntN(20) {
	case 0, 1:
	case 2:
		n = rng.IntN(3000)
	case 3:
		if n = rng.IntN(100_000); big && rng.IntN(10) == 0 {
			n = 1<<20 + rng.IntN(1<<20)
		}
	default:
		n = rng.IntN(100)
	}
	p := make([]byte, n)
	if rng.IntN(2) == 0 {
		randomBytes(rng, p)
	}
	return p
}

// someLens returns one to three prefix lengths that depend on the key only.
func someLens(key []byte, dst []int) []int {
	for _, n := range []int{2, len(key) / 2, len(key)} {
		if n >= 1 && n <= len(key) {
			dst = append(dst, n)
		}
	}
	return dst
}

type modelCase struct {
	name    string
	opts    Options
	entries []kv
	next    func() []byte
}

func randomCase(rng *rand.Rand) modelCase {
	kind, next := keyMaker(rng)
	n := rng.IntN(2000)
	if kind == "long" {
		n = rng.IntN(60)
	}
	big := rng.IntN(4) == 0
	m := map[string][]byte{}
	for range n {
		m[string(next())] = randomValue(rng, big)
	}
	c := modelCase{next: next, opts: Options{
		BlockBytes:      []int{0, 1 << 10, 4 << 10, 8 << 10, 1 << 20}[rng.IntN(5)],
		Compression:     table.Compression(rng.IntN(5)),
		LearnBytes:      1 << (10 + rng.IntN(8)),
		learnMin:        1,
		RestartInterval: []int{0, 1, 2, 16, 1024}[rng.IntN(5)],
	}}
	if rng.IntN(3) > 0 {
		c.opts.FilterPrefixes, c.opts.FilterName = someLens, "some"
	}
	for k, v := range m {
		c.entries = append(c.entries, kv{[]byte(k), v})
	}
	slices.SortFunc(c.entries, func(a, b kv) int { return bytes.Compare(a.key, b.key) })
	c.name = fmt.Sprintf("%s keys, %d entries, %d/%v/%d", kind, len(c.entries),
		c.opts.BlockBytes, c.opts.Compression, c.opts.RestartInterval)
	return c
}

// TestModel compares tables of all shapes with sorted slices.
func TestModel(t *testing.T) {
	rng := newRand(t)
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for range rounds {
		c := randomCase(rng)
		file, m := build(t, c.opts, map[string][]byte{"who": []byte("model")}, c.entries)
		if m.Entries != uint64(len(c.entries)) {
			t.Fatalf("%s: %d entries in meta", c.name, m.Entries)
		}
		opts := OpenOptions{Name: "model"}
		switch rng.IntN(3) {
		case 0:
			opts.Cache = NewCache(64 << 20)
		case 1:
			opts.Cache = NewCache(100 << 10)
		}
		if rng.IntN(2) == 0 {
			opts.IndexBytesMax = -1
		}
		src := &countingSource{Source: bytesSource(file)}
		tab := open(t, src, opts)
		checkModel(t, rng, tab, c)
		for _, p := range verify(t, src, VerifyOptions{
			FilterPrefixes: func(string) func([]byte, []int) []int { return c.opts.FilterPrefixes },
		}) {
			t.Fatalf("%s: verify: %v", c.name, p)
		}
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
}

func checkModel(t *testing.T, rng *rand.Rand, tab *Table, c modelCase) {
	t.Helper()
	if string(tab.Properties()["who"]) != "model" || len(tab.Properties()) != 1 {
		t.Errorf("properties: %q", tab.Properties())
	}
	for _, e := range c.entries {
		for _, n := range someLens(e.key, nil) {
			if !tab.MayContain(e.key[:n]) {
				t.Fatalf("filter denies %.40q", e.key[:n])
			}
		}
	}
	for _, o := range []IterOptions{{}, {NoCacheFill: true}, {NoCacheFill: true, ReadAheadBytes: 20_000}} {
		got, err := entriesOf(tab, o)
		if err != nil || !equalEntries(got, c.entries) {
			t.Fatalf("scan %+v: %d entries, %v; want %d", o, len(got), err, len(c.entries))
		}
		for range 5 {
			walk(t, rng, tab, c, o)
		}
	}
}

// walk moves one iterator at random within random bounds and compares each position.
func walk(t *testing.T, rng *rand.Rand, tab *Table, c modelCase, o IterOptions) {
	t.Helper()
	some := func() []byte {
		if len(c.entries) > 0 && rng.IntN(3) > 0 {
			return c.entries[rng.IntN(len(c.entries))].key
		}
		return c.next()
	}
	lo, hi := 0, len(c.entries)
	find := func(key []byte) int {
		return sort.Search(len(c.entries), func(i int) bool { return bytes.Compare(c.entries[i].key, key) >= 0 })
	}
	if rng.IntN(2) == 0 {
		o.Lower = some()
		lo = find(o.Lower)
	}
	if rng.IntN(2) == 0 {
		o.Upper = some()
		hi = find(o.Upper)
	}
	it := tab.NewIter(o)
	defer it.Close()
	at, all := -1, hi
	var values [][]byte
	var stops []int
	for range 60 {
		step, ok := "", false
		switch r := rng.IntN(14); {
		case r >= 12 && at >= 0: // a row, and back below it
			key, upper := some(), some()
			if at < len(c.entries) && rng.IntN(2) == 0 {
				key = c.entries[max(at-rng.IntN(6), 0)].key
				upper = c.entries[min(at+rng.IntN(6), len(c.entries)-1)].key
			}
			step, hi = "within", min(all, find(upper))
			ok, at = it.SeekWithin(key, upper), max(find(key), lo)
		case r >= 10:
			key, below := some(), 0
			if at >= 0 && at < len(c.entries) && rng.IntN(2) == 0 {
				key = bytes.Clone(c.entries[max(at-rng.IntN(3), 0)].key)
			}
			if below = find(key); rng.IntN(20) == 0 {
				key, below = nil, len(c.entries)
			}
			hi = all
			step, ok, at = "below", it.SeekLT(key), min(below, hi)-1
			if at < lo {
				at = hi
			}
			if lo >= hi {
				at = len(c.entries)
			}
		case r == 0 || at < 0:
			step, ok, at = "first", it.First(), lo
		case r < 6:
			step, ok, at = "next", it.Next(), min(at+1, max(hi, at))
		case r < 7 && at < len(c.entries): // to itself or a little further
			key := c.entries[min(at+rng.IntN(6), len(c.entries)-1)].key
			step, ok, at = "near", it.SeekGE(key), max(find(key), lo)
		default:
			key := some()
			step, ok, at = "seek", it.SeekGE(key), max(find(key), lo)
		}
		if at >= hi {
			at = max(at, hi)
		}
		if ok != (at < hi) || it.Valid() != ok || it.Err() != nil {
			t.Fatalf("%s: %s in [%.40q, %.40q): valid %v, err %v, want entry %d of %d to %d",
				c.name, step, o.Lower, o.Upper, ok, it.Err(), at, lo, hi)
		}
		if !ok {
			if it.Key() != nil || it.Value() != nil {
				t.Fatal("key or value without entry")
			}
			continue
		}
		if e := c.entries[at]; !bytes.Equal(it.Key(), e.key) || !bytes.Equal(it.Value(), e.value) {
			t.Fatalf("%s: %s: at %.60q, want %.60q", c.name, step, it.Key(), e.key)
		}
		values, stops = append(values, it.Value()), append(stops, at)
	}
	for i, v := range values {
		if !bytes.Equal(v, c.entries[stops[i]].value) {
			t.Fatal("a value that was kept has changed")
		}
	}
}
