package sstable

import (
	"bytes"
	"testing"
)

// Samples are in order, within the bounds, each with about the requested bytes, and divide the file
// as ApproxBytes does.
func TestSamples(t *testing.T) {
	var entries []kv
	for i := range 4000 {
		entries = append(entries, kv{key: []byte{'k', byte(i >> 8), byte(i)}, value: bytes.Repeat([]byte{byte(i * 7)}, 50)})
	}
	for _, blockBytes := range []int{1024, 4096} { // one with an index of two levels
		file, m := build(t, Options{BlockBytes: blockBytes}, nil, entries)
		tab := open(t, bytesSource(file), OpenOptions{})
		for _, c := range [][2][]byte{{nil, nil}, {entries[1000].key, entries[3000].key}, {nil, entries[10].key}, {[]byte("z"), nil}} {
			const every = 10_000
			last, below, lower := c[0], int64(0), c[0]
			err := tab.Samples(c[0], c[1], every, func(key []byte, n int64) {
				if bytes.Compare(key, last) <= 0 || c[1] != nil && bytes.Compare(key, c[1]) >= 0 {
					t.Fatalf("sample %x after %x, bounds %x", key, last, c)
				}
				last = key
				if n < every || n > every+2*int64(blockBytes) {
					t.Fatalf("sample of %d bytes", n)
				}
				below += n
				want, err := tab.ApproxBytes(lower, key)
				want = want * int64(m.DataBytes) / m.Size // without index, filter and properties
				if err != nil || below > want+int64(blockBytes) || below < want*9/10-2*int64(blockBytes) {
					t.Fatalf("%d bytes below %x, ApproxBytes returns %d, error %v", below, key, want, err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if c[0] == nil && c[1] == nil && below < int64(m.DataBytes)-every-2*int64(blockBytes) {
				t.Fatalf("samples of %d of %d bytes", below, m.DataBytes)
			}
		}
	}
}
