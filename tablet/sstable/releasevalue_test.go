package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// openGate admits every block.
type openGate struct{}

func (openGate) Enter(int) error { return nil }

// largeTable returns a table in which some entries are large, and its entries.
func largeTable(t *testing.T, rng *rand.Rand, src func([]byte) Source) (*Table, []kv) {
	var entries []kv
	for i := range 40 {
		n := rng.IntN(100)
		if rng.IntN(3) == 0 {
			n = GateBytes + rng.IntN(GateBytes)
		}
		v := make([]byte, n)
		for i := range v {
			v[i] = byte(rng.Uint32())
		}
		entries = append(entries, kv{fmt.Appendf(nil, "key%03d", 2*i), v})
	}
	file, _ := build(t, Options{}, nil, entries)
	return open(t, src(file), OpenOptions{}), entries
}

// TestReleaseValue: an iterator that releases large blocks at any time finds the same as one that does
// not.
func TestReleaseValue(t *testing.T) {
	rng, released := newRand(t), 0
	for range 50 {
		tab, _ := largeTable(t, rng, func(p []byte) Source { return bytesSource(p) })
		var opts IterOptions
		if rng.IntN(2) == 0 {
			opts.Upper = fmt.Appendf(nil, "key%03d", rng.IntN(80))
		}
		want := tab.NewIter(opts)
		opts.Gate = openGate{}
		if rng.IntN(2) == 0 {
			opts.NoCacheFill, opts.ReadAheadBytes = true, 64<<10<<rng.IntN(3)
		}
		got := tab.NewIter(opts)
		for range 300 {
			var was, is bool
			switch key := fmt.Appendf(nil, "key%03d", rng.IntN(85)); rng.IntN(6) {
			case 0:
				was, is = want.SeekGE(key), got.SeekGE(key)
			case 1, 2, 3:
				was, is = want.Next(), got.Next()
			case 4:
				if got.LargeBytes() > 0 {
					released++
				}
				got.ReleaseValue()
				if got.LargeBytes() != 0 {
					t.Fatal("it has not let go")
				}
				continue
			default:
				if !bytes.Equal(want.Value(), got.Value()) {
					t.Fatalf("at %q the values are different", want.Key())
				}
				continue
			}
			if was != is || is != got.Valid() || !bytes.Equal(want.Key(), got.Key()) || got.Err() != nil {
				t.Fatalf("%q, %v; want %q, %v; %v", got.Key(), is, want.Key(), was, got.Err())
			}
		}
		want.Close()
		got.Close()
	}
	if released < 50 {
		t.Errorf("only %d blocks were let go of", released)
	}
}

// TestReleaseValueAndLost: a released value that cannot be read again is an error, not an empty value.
func TestReleaseValueAndLost(t *testing.T) {
	var src *failingSource
	tab, entries := largeTable(t, newRand(t), func(p []byte) Source {
		src = &failingSource{Source: bytesSource(p)}
		return src
	})
	it := tab.NewIter(IterOptions{Gate: openGate{}})
	defer it.Close()
	for i, e := range entries {
		if len(e.value) < GateBytes {
			continue
		}
		if !it.SeekGE(e.key) {
			t.Fatal(it.Err())
		}
		it.ReleaseValue()
		src.n.Store(1)
		if v := it.Value(); v != nil || !errors.Is(it.Err(), errDisk) || it.Valid() || it.Next() {
			t.Fatalf("entry %d: a value of %d bytes, %v", i, len(v), it.Err())
		}
		if !it.SeekGE(e.key) || !bytes.Equal(it.Value(), e.value) {
			t.Fatalf("entry %d is not there afterwards: %v", i, it.Err())
		}
	}
}
