package sstable

import (
	"bytes"
	"fmt"
	"testing"
)

// The sizes of ranges add up to the size of the file, wherever it is divided, and each is about as
// large as its content, even if the file has only one data block.
func TestApproxBytesAddUp(t *testing.T) {
	for _, c := range []struct{ entries, blockBytes int }{{100, 1 << 20}, {4000, 1024}, {4000, 64 << 10}} {
		t.Run(fmt.Sprintf("%d entries in blocks of %d bytes", c.entries, c.blockBytes), func(t *testing.T) {
			var entries []kv
			for i := range c.entries {
				value := bytes.Repeat([]byte{byte(i * 7)}, 50)
				entries = append(entries, kv{key: []byte{'k', byte(i >> 8), byte(i)}, value: value})
			}
			file, _ := build(t, Options{BlockBytes: c.blockBytes}, nil, entries)
			tab := open(t, bytesSource(file), OpenOptions{})
			for _, parts := range []int{1, 2, 3, 10, 50} {
				bounds := [][]byte{nil}
				for i := 1; i < parts; i++ {
					bounds = append(bounds, entries[i*c.entries/parts].key)
				}
				bounds = append(bounds, nil)
				sum, want := int64(0), int64(len(file)/parts)
				for i := range parts {
					n, err := tab.ApproxBytes(bounds[i], bounds[i+1])
					if err != nil {
						t.Fatal(err)
					}
					if off := n - want; max(off, -off) > want/4+1024 {
						t.Errorf("part %d of %d has %d bytes, not about %d", i, parts, n, want)
					}
					sum += n
				}
				if sum != int64(len(file)) {
					t.Errorf("%d parts have %d bytes, the file %d", parts, sum, len(file))
				}
			}
			for _, beside := range [][2][]byte{{nil, []byte("a")}, {[]byte("z"), nil}, {nil, entries[0].key}} {
				if n, err := tab.ApproxBytes(beside[0], beside[1]); n != 0 || err != nil {
					t.Errorf("%d bytes in %q, outside the file, error %v", n, beside, err)
				}
			}
		})
	}
}
