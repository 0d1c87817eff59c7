package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/table"
)

// fixChecksums corrects the checksums of a file, as far as its frames can be found from its end. So
// a fuzzer, or an attacker, gets past them.
func fixChecksums(file []byte) {
	n := len(file) - footerBytes
	if n < headerBytes {
		return
	}
	binary.LittleEndian.PutUint32(file[12:], crc.Sum(file[:12]))
	foot := file[n:]
	binary.LittleEndian.PutUint64(foot[8:], uint64(len(file)))
	copy(foot[32:], magic)
	binary.LittleEndian.PutUint32(foot[28:], crc.Sum(foot[:28]))
	for end := n; end >= headerBytes+trailerBytes; {
		stored := int(binary.LittleEndian.Uint32(file[end-8:]))
		start := end - trailerBytes - stored
		if start < headerBytes {
			return
		}
		trailer := file[end-trailerBytes : end]
		binary.LittleEndian.PutUint32(trailer[10:], checksum(file[start:end-trailerBytes], trailer, int64(start)))
		end = start
	}
}

// seedFiles are small valid files of all shapes.
func seedFiles(t testing.TB) [][]byte {
	var files [][]byte
	for _, c := range []table.Compression{table.CompressionNone, table.CompressionS2, table.CompressionZstd, table.CompressionTwoPass} {
		for _, entries := range [][]kv{nil, compatEntries(3), compatEntries(60)} {
			for _, prefixes := range []func([]byte, []int) []int{nil, someLens} {
				file, _ := build(t, Options{BlockBytes: 1 << 10, Compression: c, RestartInterval: 3, FilterPrefixes: prefixes, LearnBytes: 4 << 10, learnMin: 1},
					map[string][]byte{"k": []byte("v")}, entries)
				files = append(files, file)
			}
		}
	}
	return files
}

// FuzzOpen opens files with valid checksums and arbitrary contents, and performs all operations of
// a table. Nothing may panic or loop without end, and every error must be of the documented types.
func FuzzOpen(f *testing.F) {
	for _, file := range seedFiles(f) {
		f.Add(file, true)
		f.Add(file, false)
	}
	f.Fuzz(func(t *testing.T, file []byte, fix bool) {
		if fix {
			fixChecksums(file)
		}
		exercise(t, file)
	})
}

func exercise(t *testing.T, file []byte) {
	t.Helper()
	known := func(err error) {
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("unexpected error: %v", err)
		}
	}
	for _, opts := range []OpenOptions{{}, {IndexBytesMax: -1, Cache: NewCache(1 << 20)}} {
		tab, err := Open(context.Background(), bytesSource(file), opts)
		known(err)
		if err != nil {
			continue
		}
		for _, o := range []IterOptions{{}, {Lower: []byte("b"), Upper: []byte("row5"), NoCacheFill: true, ReadAheadBytes: 3000}} {
			it := tab.NewIter(o)
			// Every entry takes at least three bytes of a block.
			n := 0
			for ok := it.First(); ok; ok = it.Next() {
				tab.MayContain(it.Key())
				if n++; n > 1<<20 {
					break
				}
			}
			known(it.Err())
			for _, key := range []string{"", "row", "row010", "row010", "row011", "row059\x00", "\xff\xff"} {
				it.SeekGE([]byte(key))
				it.Next()
				known(it.Err())
				it.SeekLT([]byte(key))
				known(it.Err())
				it.SeekWithin([]byte("row"), []byte("row011"))
				it.Next()
				known(it.Err())
			}
			n = 0
			for ok := it.SeekLT(nil); ok && n < 1<<12; ok = it.SeekLT(bytes.Clone(it.Key())) {
				n++
			}
			known(it.Err())
			it.Close()
		}
		_, err = tab.ApproxBytes([]byte("row005"), []byte("row007"))
		known(err)
		tab.MemoryBytes()
		tab.DropCached()
	}
	_, err := Verify(context.Background(), bytesSource(file), VerifyOptions{
		FilterPrefixes: func(string) func([]byte, []int) []int { return someLens },
	}, known)
	known(err)
	known(Dump(context.Background(), io.Discard, bytesSource(file), DumpOptions{}))
}

// FuzzBlock iterates over arbitrary map blocks.
func FuzzBlock(f *testing.F) {
	for _, interval := range []int{1, 2, 16} {
		b := blockBuilder{interval: interval}
		var prev []byte
		for _, e := range compatEntries(30) {
			b.add(e.key, commonPrefix(prev, e.key), e.value)
			prev = e.key
		}
		f.Add(bytes.Clone(b.finish()), []byte("row015"))
	}
	f.Fuzz(func(t *testing.T, p, target []byte) {
		p, sum := bytes.Clone(p), crc.Sum(p)
		steps := 1000
		var it blockIter
		if it.reset(p) == nil {
			for it.next() {
			}
			if it.reset(p) == nil && it.seekGE(target, 0) {
				for range 10 {
					target = append(target, 'x')
					if bytes.Compare(it.key, target) < 0 && !it.seekForward(target) {
						break
					}
				}
			}
		}
		if it.reset(p) == nil {
			for ok := it.seekLT(nil); ok; ok = it.seekLT(bytes.Clone(it.key)) {
				if it.seekLT(target); it.valid {
					it.seekBack(target)
				}
				if steps--; steps < 0 {
					break
				}
			}
		}
		var x indexBlock
		if x.parse(p, 1<<40) == nil && x.entries > 0 {
			x.find(target)
			if x.prepare() == nil {
				if i, ok := x.find(target); ok {
					x.handle(i)
				}
				x.handles()
			}
		}
		var part filterPart
		if part.parse(p) == nil {
			for h := range uint64(100) {
				part.contains(h * 0x9e3779b97f4a7c15)
			}
		}
		if crc.Sum(p) != sum {
			t.Fatal("a block was written to")
		}
	})
}
