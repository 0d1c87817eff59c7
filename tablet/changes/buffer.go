package changes

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/tablet/logbody"
)

// Record is one committed row mutation.
type Record struct {
	First uint64 // sequence number of its first entry
	Time  int64  // of the commit, in µs
	Body  []byte // see logbody
}

// recordBytes is the memory of a record without its body, in bytes.
const recordBytes = 40

// chunkBytes is the size in which a buffer allocates memory for bodies.
const chunkBytes = 64 << 10

// Buffer holds the records of one memtable. The zero value is an empty buffer.
type Buffer struct {
	size atomic.Int64
	// gap and gapTime are the last sequence number that was added without a record, and a time at or after it.
	gap     atomic.Uint64
	gapTime atomic.Int64

	// mu guards the fields below. Records that were added never change, so that readers use slices of them without it.
	mu      sync.Mutex
	records []Record
	chunk   []byte
}

// Add adds a copy of a record.
func (b *Buffer) Add(r Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(r.Body); n > cap(b.chunk)-len(b.chunk) {
		b.chunk = make([]byte, 0, max(n, chunkBytes))
	}
	at := len(b.chunk)
	b.chunk = append(b.chunk, r.Body...)
	r.Body = b.chunk[at:len(b.chunk):len(b.chunk)]
	b.records = append(b.records, r)
	b.size.Add(int64(len(r.Body)) + recordBytes)
}

// Skip records that a mutation has no record, as its table had no change stream: the sequence number of its last entry, and
// a time at or after it. It is for the goroutine that adds.
func (b *Buffer) Skip(last uint64, time int64) {
	if last > b.gap.Load() {
		b.gapTime.Store(time)
		b.gap.Store(last)
	}
}

// Gap returns the last sequence number without a record and a time at or after it; zero if there is none.
func (b *Buffer) Gap() (last uint64, time int64) { return b.gap.Load(), b.gapTime.Load() }

// Bytes returns the memory of the records.
func (b *Buffer) Bytes() int64 { return b.size.Load() }

// Sort puts records that were added in the order of rows into that of sequence numbers, and removes duplicates. It is for
// the goroutine that adds, before anything reads.
func (b *Buffer) Sort() {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortStableFunc(b.records, func(x, y Record) int { return cmp.Compare(x.First, y.First) })
	b.records = slices.CompactFunc(b.records, func(x, y Record) bool {
		return x.First == y.First && bytes.Equal(rowPart(&x), rowPart(&y))
	})
}

// From returns the records with sequence numbers of at least next that were added so far.
func (b *Buffer) From(next uint64) []Record {
	b.mu.Lock()
	all := b.records
	b.mu.Unlock()
	at, _ := slices.BinarySearchFunc(all, next, func(r Record, next uint64) int { return cmp.Compare(r.First, next) })
	return all[at:len(all):len(all)]
}

// rowPart returns the row's part of a record's keys, or nil if its body is damaged.
func rowPart(r *Record) []byte {
	part, err := logbody.RowPart(r.Body)
	if err != nil {
		return nil
	}
	return part
}

// Signal wakes those that wait for changes of a tablet. The zero value is usable.
type Signal struct{ waiting atomic.Pointer[chan struct{}] }

// Wait returns a channel that the next Wake closes. The caller looks for changes again before it waits.
func (s *Signal) Wait() <-chan struct{} {
	for {
		if ch := s.waiting.Load(); ch != nil {
			return *ch
		}
		ch := make(chan struct{})
		if s.waiting.CompareAndSwap(nil, &ch) {
			return ch
		}
	}
}

// Wake closes the channel of those that wait, if any do.
func (s *Signal) Wake() {
	if s.waiting.Load() == nil {
		return
	}
	if ch := s.waiting.Swap(nil); ch != nil {
		close(*ch)
	}
}
