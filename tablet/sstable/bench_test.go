package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/steledb/stele/table"
)

// benchRows is the number of rows in the lookup and scan benchmarks. The figures in DESIGN.md are
// for 1,000,000.
var benchRows = flag.Int("bench-rows", 100_000, "rows of the benchmarks' tables")

// benchKey has the form of a cell's internal key: row, family, column, timestamp, sequence number.
// rowLen is the length of its row.
func benchKey(dst []byte, row int) []byte {
	dst = fmt.Appendf(dst, "user%010d\x00\x01f\x00\x00\x00\x00\x02field0\x00\x01\x01", row)
	dst = binary.BigEndian.AppendUint64(dst, ^uint64(1_700_000_000_000_000+uint64(row)))
	return binary.BigEndian.AppendUint64(dst, ^uint64(row))
}

const benchRowLen, benchColumnLen = 16, 30

func benchPrefixes(_ []byte, dst []int) []int { return append(dst, benchRowLen, benchColumnLen) }

// rowTable returns a table of rows of 1000 random bytes.
func rowTable(tb testing.TB, rows int, opts Options) []byte {
	tb.Helper()
	var out bytes.Buffer
	out.Grow(rows * 1100)
	w := NewWriter(&out, opts)
	rng := rand.New(rand.NewPCG(1, 2))
	var key []byte
	value := make([]byte, 1000)
	for i := range rows {
		key = benchKey(key[:0], i)
		randomBytes(rng, value)
		if err := w.Add(key, value); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := w.Finish(nil); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func randomBytes(rng *rand.Rand, p []byte) {
	for i := 0; i+8 <= len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], rng.Uint64())
	}
}

func openBench(b *testing.B, file []byte, cache *Cache) *Table {
	b.Helper()
	t, err := Open(context.Background(), bytesSource(file), OpenOptions{Cache: cache})
	if err != nil {
		b.Fatal(err)
	}
	return t
}

var benchSizes = []struct {
	name  string
	bytes int
}{{"8KiB", 8 << 10}, {"64KiB", 64 << 10}}

var benchCompressions = []struct {
	name string
	c    table.Compression
}{{"none", table.CompressionNone}, {"s2", table.CompressionS2}, {"zstd", table.CompressionZstd}, {"two-pass", table.CompressionTwoPass}}

// BenchmarkSeek looks up random keys in cached blocks, each with a new iterator, and reads the
// value.
func BenchmarkSeek(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			rows := *benchRows
			t := openBench(b, rowTable(b, rows, Options{BlockBytes: size.bytes}), NewCache(4<<30))
			warm(t)
			rng := rand.New(rand.NewPCG(3, 4))
			var key []byte
			sink := 0
			b.ReportAllocs()
			for b.Loop() {
				// The key as used by a reader: row, family and column.
				key = seekKey(key, rng.IntN(rows))
				it := t.NewIter(IterOptions{})
				if !it.SeekGE(key) {
					b.Fatal(it.Err())
				}
				sink += int(it.Value()[0])
				it.Close()
			}
			if s := t.cache.Stats(); s.Misses > uint64(t.meta.DataBlocks) {
				b.Fatalf("misses: %+v", s)
			}
		})
	}
}

// warm reads the whole table, so that its blocks are cached.
func warm(t *Table) {
	it := t.NewIter(IterOptions{})
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
	}
}

// seekKey is benchKey up to the column, cheaply.
func seekKey(dst []byte, row int) []byte {
	if len(dst) == 0 {
		dst = benchKey(nil, 0)[:benchColumnLen]
	}
	for i, n := 13, row; i >= 4; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// BenchmarkSeekCold looks up random keys with no cache: one read each.
func BenchmarkSeekCold(b *testing.B) {
	for _, size := range benchSizes {
		for _, c := range benchCompressions[:2] {
			b.Run(size.name+"/"+c.name, func(b *testing.B) {
				rows := *benchRows
				t := openBench(b, rowTable(b, rows, Options{BlockBytes: size.bytes, Compression: c.c}), nil)
				rng := rand.New(rand.NewPCG(3, 4))
				var key []byte
				b.ReportAllocs()
				for b.Loop() {
					key = seekKey(key, rng.IntN(rows))
					it := t.NewIter(IterOptions{})
					if !it.SeekGE(key) {
						b.Fatal(it.Err())
					}
					it.Close()
				}
			})
		}
	}
}

// BenchmarkSeekNear moves one iterator forward a few entries at a time.
func BenchmarkSeekNear(b *testing.B) {
	rows := *benchRows
	t := openBench(b, rowTable(b, rows, Options{}), NewCache(4<<30))
	warm(t)
	it := t.NewIter(IterOptions{})
	defer it.Close()
	var key []byte
	row := 0
	b.ReportAllocs()
	for b.Loop() {
		if row += 3; row >= rows {
			row = 0
		}
		key = seekKey(key, row)
		if !it.SeekGE(key) {
			b.Fatal(it.Err())
		}
	}
}

// BenchmarkScan reads all rows. Its MB/s count keys and values.
func BenchmarkScan(b *testing.B) {
	for _, c := range []struct {
		name  string
		cache bool
		opts  IterOptions
	}{
		{"cached", true, IterOptions{}},
		{"uncached", false, IterOptions{NoCacheFill: true}},
		{"readahead", false, IterOptions{NoCacheFill: true, ReadAheadBytes: 1 << 20}},
	} {
		for _, size := range benchSizes {
			b.Run(c.name+"/"+size.name, func(b *testing.B) {
				var cache *Cache
				if c.cache {
					cache = NewCache(4 << 30)
				}
				t := openBench(b, rowTable(b, *benchRows, Options{BlockBytes: size.bytes}), cache)
				scanBench(b, t, c.opts)
			})
		}
	}
}

// BenchmarkScanSmall reads entries of 100 bytes that compress.
func BenchmarkScanSmall(b *testing.B) {
	for _, c := range benchCompressions {
		b.Run(c.name, func(b *testing.B) {
			scanBench(b, openBench(b, textTable(b, Options{Compression: c.c}), nil), IterOptions{NoCacheFill: true})
		})
	}
}

func scanBench(b *testing.B, t *Table, opts IterOptions) {
	b.SetBytes(int64(t.meta.RawBytes))
	b.ReportAllocs()
	scan := func() {
		it := t.NewIter(opts)
		n := 0
		for ok := it.First(); ok; ok = it.Next() {
			n++
		}
		if it.Close() != nil || uint64(n) != t.meta.Entries {
			b.Fatal("scan ended early")
		}
	}
	scan()
	for b.Loop() {
		scan()
	}
}

var words = []string{"tablet", "server", "the", "of", "commit", "log", "memtable", "row", "column", "family",
	"a", "compaction", "in", "Chubby", "master", "SSTable", "and", "locality", "group", "is", "split"}

// textTable returns a table of 100,000 entries of about 100 bytes of text.
func textTable(tb testing.TB, opts Options) []byte {
	var out bytes.Buffer
	w := NewWriter(&out, opts)
	textEntries(tb, 100_000, w.Add)
	if _, err := w.Finish(nil); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func textEntries(tb testing.TB, n int, add func(key, value []byte) error) {
	rng := rand.New(rand.NewPCG(5, 6))
	var key, value []byte
	for i := range n {
		key = benchKey(key[:0], i)
		for value = value[:0]; len(value) < 60; {
			value = append(append(value, words[rng.IntN(len(words))]...), ' ')
		}
		if err := add(key, value); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkBuild writes tables. Its MB/s count keys and values.
func BenchmarkBuild(b *testing.B) {
	type entry struct{ key, value []byte }
	var random, text []entry
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		value := make([]byte, 1000)
		randomBytes(rng, value)
		random = append(random, entry{benchKey(nil, i), value})
	}
	textEntries(b, 200_000, func(key, value []byte) error {
		text = append(text, entry{bytes.Clone(key), bytes.Clone(value)})
		return nil
	})
	for _, data := range []struct {
		name    string
		entries []entry
	}{{"random1000", random}, {"text100", text}} {
		for _, c := range benchCompressions {
			for _, filter := range []bool{false, true} {
				opts := Options{Compression: c.c}
				name := data.name + "/" + c.name
				if filter {
					opts.FilterPrefixes = benchPrefixes
					name += "+filter"
				}
				b.Run(name, func(b *testing.B) {
					var m Meta
					for b.Loop() {
						w := NewWriter(io.Discard, opts)
						for _, e := range data.entries {
							if err := w.Add(e.key, e.value); err != nil {
								b.Fatal(err)
							}
						}
						m, _ = w.Finish(nil)
					}
					b.SetBytes(int64(m.RawBytes))
					b.ReportMetric(float64(m.RawBytes)/float64(m.DataBytes), "ratio")
				})
			}
		}
	}
}

// BenchmarkFilter looks up prefixes in filters of one block and of many.
func BenchmarkFilter(b *testing.B) {
	for _, rows := range []int{10_000, 1_000_000} {
		var out bytes.Buffer
		w := NewWriter(&out, Options{FilterPrefixes: benchPrefixes})
		var key []byte
		for i := range rows {
			key = benchKey(key[:0], i*2)
			if err := w.Add(key, nil); err != nil {
				b.Fatal(err)
			}
		}
		m, err := w.Finish(nil)
		if err != nil {
			b.Fatal(err)
		}
		t := openBench(b, out.Bytes(), nil)
		for _, absent := range []int{0, 1} {
			b.Run(fmt.Sprintf("%d/absent=%d", rows, absent), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(3, 4))
				passed, n := 0, 0
				b.ReportAllocs()
				for b.Loop() {
					key = seekKey(key[:benchColumnLen], rng.IntN(rows)*2+absent)
					if t.MayContain(key) {
						passed++
					}
					n++
				}
				b.ReportMetric(float64(passed)/float64(n)*100, "%passed")
				b.ReportMetric(float64(m.FilterBytes)*8/float64(m.FilterPrefixes), "bits/prefix")
			})
		}
	}
}
