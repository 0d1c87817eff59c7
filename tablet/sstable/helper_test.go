package sstable

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/internal/testseed"
)

// newRand returns a generator with the seed of the test.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testseed.New(t), 0))
}

type kv struct{ key, value []byte }

// build writes a table of entries, which must be sorted.
func build(t testing.TB, opts Options, props map[string][]byte, entries []kv) ([]byte, Meta) {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, opts)
	for _, e := range entries {
		if err := w.Add(e.key, e.value); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Finish(props)
	if err != nil {
		t.Fatal(err)
	}
	if m.Size != int64(out.Len()) {
		t.Fatalf("meta has %d bytes, file has %d", m.Size, out.Len())
	}
	return out.Bytes(), m
}

func open(t testing.TB, src Source, opts OpenOptions) *Table {
	t.Helper()
	tab, err := Open(context.Background(), src, opts)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// verify runs Verify and returns what it reported.
func verify(t testing.TB, src Source, opts VerifyOptions) []error {
	t.Helper()
	var problems []error
	st, err := Verify(context.Background(), src, opts, func(err error) { problems = append(problems, err) })
	if err != nil {
		t.Fatal(err)
	}
	if st.Problems != len(problems) {
		t.Fatalf("%d problems counted, %d reported", st.Problems, len(problems))
	}
	return problems
}

// entriesOf reads all entries of a table.
func entriesOf(tab *Table, opts IterOptions) ([]kv, error) {
	it := tab.NewIter(opts)
	var got []kv
	for ok := it.First(); ok; ok = it.Next() {
		got = append(got, kv{bytes.Clone(it.Key()), it.Value()})
	}
	return got, it.Close()
}

func equalEntries(a, b []kv) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].key, b[i].key) || !bytes.Equal(a[i].value, b[i].value) {
			return false
		}
	}
	return true
}

// countingSource counts reads.
type countingSource struct {
	Source
	reads, bytes atomic.Int64
}

func (s *countingSource) ReadChecked(p []byte, off int64, ok func([]byte) error) error {
	s.reads.Add(1)
	s.bytes.Add(int64(len(p)))
	return s.Source.ReadChecked(p, off, ok)
}

// failingSource fails the n-th read from now on, once.
type failingSource struct {
	Source
	n atomic.Int64
}

var errDisk = errors.New("disk on fire")

func (s *failingSource) ReadChecked(p []byte, off int64, ok func([]byte) error) error {
	if s.n.Add(-1) == 0 {
		return errDisk
	}
	return s.Source.ReadChecked(p, off, ok)
}

// bytesSource is an SSTable in memory.
type bytesSource []byte

// ReadChecked copies from the slice. It returns ok's error, or
// io.ErrUnexpectedEOF if the slice ends before p is full.
func (s bytesSource) ReadChecked(p []byte, off int64, ok func([]byte) error) error {
	if off < 0 || off > int64(len(s)) || int64(len(p)) > int64(len(s))-off {
		return io.ErrUnexpectedEOF
	}
	copy(p, s[off:])
	return ok(p)
}

// Size returns the length of the slice.
func (s bytesSource) Size() int64 { return int64(len(s)) }
