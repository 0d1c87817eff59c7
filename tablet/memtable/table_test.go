package memtable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/internal/testseed"
)

func TestAgainstMap(t *testing.T) {
	seed := testseed.New(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		mt, model := New(), map[string]string{}
		next := 0
		for range 3000 {
			key := fmt.Sprintf("%06d", r.IntN(5000))
			if r.IntN(3) > 0 { // runs of ascending keys exercise the kept splice
				next++
				key = fmt.Sprintf("%06d", next)
			}
			value := make([]byte, r.IntN(40))
			if r.IntN(500) == 0 {
				value = make([]byte, 2<<20)
			}
			added, err := mt.Add([]byte(key), value)
			if err != nil {
				t.Fatal(err)
			}
			if _, there := model[key]; there == added {
				t.Fatalf("add %s: added %v, in the model %v", key, added, there)
			}
			if added {
				model[key] = string(value)
			}
		}
		keys := slices.Sorted(maps.Keys(model))
		it := mt.Iter()
		i := 0
		for it.First(); it.Valid(); it.Next() {
			if string(it.Key()) != keys[i] || string(it.Value()) != model[keys[i]] {
				t.Fatalf("entry %d: got %s, want %s", i, it.Key(), keys[i])
			}
			i++
		}
		if i != len(keys) || mt.Len() != len(keys) {
			t.Fatalf("got %d entries, Len %d, want %d", i, mt.Len(), len(keys))
		}
		for range 1000 {
			target := fmt.Sprintf("%06d", r.IntN(5002))
			at, _ := slices.BinarySearch(keys, target)
			it.SeekGE([]byte(target))
			if it.Valid() != (at < len(keys)) || it.Valid() && string(it.Key()) != keys[at] {
				t.Fatalf("seek %s: wrong place", target)
			}
			if r.IntN(2) == 0 { // also without the position that SeekGE found
				it = mt.Iter()
			}
			it.SeekLT([]byte(target))
			if it.Valid() != (at > 0) || it.Valid() && string(it.Key()) != keys[at-1] {
				t.Fatalf("seek below %s: wrong place", target)
			}
		}
		backward := slices.Clone(keys)
		slices.Reverse(backward)
		it.SeekLT(nil)
		for i := range backward {
			if !it.Valid() || string(it.Key()) != backward[i] || string(it.Value()) != model[backward[i]] {
				t.Fatalf("entry %d from the end: want %s", i, backward[i])
			}
			it.SeekLT([]byte(backward[i]))
		}
		if it.Valid() {
			t.Fatalf("entry %s is below the first", it.Key())
		}
	}
	empty := New().Iter()
	if empty.SeekLT(nil) || empty.SeekLT([]byte("a")) || empty.Valid() {
		t.Fatal("an empty table has an entry")
	}
}

// M1, M2: readers run concurrently with the writer and always see an ordered list with at least the
// entries added before they started.
func TestReadersBesideWriter(t *testing.T) {
	mt := New()
	var added atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var last []byte
			for !stop.Load() {
				floor, n := added.Load(), int64(0)
				last = last[:0]
				it := mt.Iter()
				for it.First(); it.Valid(); it.Next() {
					if bytes.Compare(last, it.Key()) >= 0 {
						t.Errorf("out of order: %x then %x", last, it.Key())
						return
					}
					last = append(last[:0], it.Key()...)
					if !bytes.Equal(it.Value(), it.Key()) {
						t.Errorf("value of %x is %x", it.Key(), it.Value())
						return
					}
					n++
				}
				if n < floor {
					t.Errorf("saw %d entries, %d were there", n, floor)
					return
				}
				if !readBackward(t, &it, added.Load()) {
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 30_000 {
		k := binary.BigEndian.AppendUint64(nil, r.Uint64())
		if ok, err := mt.Add(k, k); err != nil || !ok {
			t.Fatal(ok, err)
		}
		added.Add(1)
	}
	stop.Store(true)
	wg.Wait()
}

// readBackward reads a table from its end, where each step may also look at the entry before, and
// reports whether it found at least floor entries in order.
func readBackward(t *testing.T, it *Iter, floor int64) bool {
	var last []byte
	for ok := it.SeekLT(nil); ok; ok = it.SeekLT(last) {
		if last != nil && bytes.Compare(last, it.Key()) <= 0 {
			t.Errorf("out of order backward: %x then %x", last, it.Key())
			return false
		}
		last = append(last[:0], it.Key()...)
		if floor--; floor%2 == 0 {
			it.SeekGE(last)
		}
	}
	if floor > 0 {
		t.Errorf("%d entries are missing backward", floor)
	}
	return floor <= 0
}

func TestSmallWhenEmpty(t *testing.T) {
	if got := New().Bytes(); got > 1<<10 {
		t.Fatalf("an empty table takes %d bytes", got)
	}
}

func BenchmarkAddRandom(b *testing.B) {
	benchmarkAdd(b, func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 })
}
func BenchmarkAddSequential(b *testing.B) { benchmarkAdd(b, func(i uint64) uint64 { return i }) }

func benchmarkAdd(b *testing.B, key func(uint64) uint64) {
	value := make([]byte, 1000)
	k := make([]byte, 40)
	mt := New()
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		if i++; i%65_536 == 0 { // a 64 MiB memtable
			mt = New()
		}
		binary.BigEndian.PutUint64(k, key(i))
		if _, err := mt.Add(k, value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSeek(b *testing.B) {
	mt := New()
	k := make([]byte, 40)
	for i := range uint64(65_536) {
		binary.BigEndian.PutUint64(k, i*0x9e3779b97f4a7c15)
		if _, err := mt.Add(k, make([]byte, 1000)); err != nil {
			b.Fatal(err)
		}
	}
	it := mt.Iter()
	i := uint64(0)
	for b.Loop() {
		i++
		binary.BigEndian.PutUint64(k, (i%65_536)*0x9e3779b97f4a7c15)
		it.SeekGE(k)
		if !it.Valid() {
			b.Fatal("not found")
		}
	}
}
