package heat

import (
	"bytes"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unique"
)

// TabletBytesMax bounds the memory of a Tablet.
const TabletBytesMax = 24 << 10

const (
	// RowMax is the number of bytes of a row that are kept. Rows that begin equally are then one.
	RowMax = 128
	// sampleMax and sampleBytesMax bound one side's sample: 144 rows, with 4 KiB of keys.
	sampleMax, sampleBytesMax = 144, 4 << 10
	// userMax is the number of bytes of a user's name that are kept.
	userMax = 64
	// LargeRow is the size in bytes from which a row is named as large: what a tablet server reads or writes at
	// once, so that a megabyte already delays others.
	LargeRow = 1 << 20
	// largeMax is the number of large rows that are kept, the largest ones.
	largeMax = 4
)

// Sums are numbers of operations on rows, their bytes, and the time that they took in µs.
type Sums struct{ Reads, Writes, ReadBytes, WriteBytes, ReadMicros, WriteMicros int64 }

// Add adds o to s.
func (s *Sums) Add(o Sums) {
	s.Reads += o.Reads
	s.Writes += o.Writes
	s.ReadBytes += o.ReadBytes
	s.WriteBytes += o.WriteBytes
	s.ReadMicros += o.ReadMicros
	s.WriteMicros += o.WriteMicros
}

// Scale returns a share of s.
func (s Sums) Scale(share float64) Sums {
	part := func(n int64) int64 { return int64(float64(n) * share) }
	return Sums{part(s.Reads), part(s.Writes), part(s.ReadBytes), part(s.WriteBytes), part(s.ReadMicros), part(s.WriteMicros)}
}

// IsZero reports whether nothing was counted.
func (s Sums) IsZero() bool { return s == Sums{} }

// Ops returns the number of operations.
func (s Sums) Ops() int64 { return s.Reads + s.Writes }

// Tablet counts the operations on a tablet. A nil Tablet counts nothing. It is safe for concurrent use.
type Tablet struct {
	table         uint64
	start, end    []byte
	reads, writes side

	// mu guards large. Never held with another lock.
	mu    sync.Mutex
	large []Large
}

// side counts the operations of one kind.
type side struct {
	ops, bytes atomic.Int64
	nanos      atomic.Int64 // that the operations took; take leaves what is less than a µs
	// mask selects the operations that are sampled, one of mask+1: those with a random number without a bit of it.
	mask atomic.Uint32

	// mu guards what follows. Never held with another lock.
	mu       sync.Mutex
	rows     []sample
	rowBytes int // of the keys in rows
}

// sample is a sampled operation.
type sample struct {
	row []byte
	cost
	user unique.Handle[string] // the zero value is none
}

// Caller has the name of the user of an operation; empty if it has none. The name is read only for operations that are sampled.
type Caller interface{ Caller() string }

// named returns the user of a caller, which may be nil. Names are shared by all tablets.
func named(by Caller) (user unique.Handle[string]) {
	if by != nil {
		if name := by.Caller(); name != "" {
			user = unique.Make(name[:min(len(name), userMax)])
		}
	}
	return user
}

// User is the user with that name, as a Caller.
type User string

// Caller implements Caller.
func (u User) Caller() string { return string(u) }

// cost is what one operation took, as a weight.
type cost struct {
	bytes uint32 // at most 2^32-1
	nanos float32
}

// costOf returns the cost of an operation.
func costOf(bytes int64, took time.Duration) cost {
	return cost{uint32(min(max(bytes, 0), math.MaxUint32)), float32(max(took, 1))}
}

// Large is a row of LargeRow bytes or more, as it was last read or written.
type Large struct {
	Row   []byte
	Bytes int64
}

// New returns a counter for a tablet of the table with that id: start < row <= end; empty is no bound.
func New(table uint64, start, end []byte) *Tablet {
	return &Tablet{table: table, start: start, end: end}
}

// Reader counts the rows that one operation reads, in one tablet after another, and adds them to the tablets at their end: a scan costs
// a tablet no more than a read of a row. The time in a tablet is shared by the rows that were read there. The zero value is ready for use,
// by one goroutine at a time.
type Reader struct {
	of          *Tablet
	rows, bytes int64
	skip        uint32 // rows until the next one that is sampled
	began       time.Time
	timed       time.Time // of the last sampled row, or began
	untimed     int64     // rows since then
	by          Caller    // may be nil
}

// Start begins an operation that arrived at a time; zero means now. by may be nil.
func (r *Reader) Start(arrived time.Time, by Caller) {
	if *r = (Reader{began: arrived, by: by}); arrived.IsZero() {
		r.began = time.Now()
	}
}

// Begin ends what was begun before, and begins to count for a tablet, which may be nil.
func (r *Reader) Begin(t *Tablet) {
	r.End()
	if r.of = t; t != nil {
		r.timed = r.began
		r.next(t.reads.mask.Load())
	}
}

// next draws the number of rows to skip: mask on average.
func (r *Reader) next(mask uint32) {
	if r.skip = 0; mask > 0 {
		r.skip = rand.Uint32N(2*mask + 1)
	}
}

// Read notes that a row was read, of which bytes were returned. row is not kept.
func (r *Reader) Read(row []byte, bytes int64) {
	if r.of == nil {
		return
	}
	r.rows++
	r.bytes += bytes
	r.untimed++
	if bytes >= LargeRow {
		r.of.noteLarge(row, bytes)
	}
	if r.skip > 0 {
		r.skip--
		return
	}
	now := time.Now()
	mask := r.of.reads.mask.Load()
	r.of.reads.keep(row, costOf(bytes, now.Sub(r.timed)/time.Duration(r.untimed)), r.by, mask)
	r.timed, r.untimed = now, 0
	r.next(mask)
}

// End adds the counts to the tablet, if Begin was called since the last End. Another Begin may follow.
func (r *Reader) End() {
	if r.of == nil {
		return
	}
	now := time.Now()
	if r.rows > 0 {
		r.of.reads.add(r.rows, r.bytes, now.Sub(r.began))
	}
	*r = Reader{began: now, by: r.by}
}

// Write notes a mutation of a row, and the time that it took. row is not kept, and by may be nil.
func (t *Tablet) Write(row []byte, bytes int64, took time.Duration, by Caller) {
	if t == nil {
		return
	}
	s := &t.writes
	n := s.add(1, bytes, took)
	if mask := s.mask.Load(); mix(uint32(n))&mask == 0 {
		s.keep(row, costOf(bytes, took), by, mask)
	}
	if bytes >= LargeRow {
		t.noteLarge(row, bytes)
	}
}

// add adds operations, and returns the number of all.
func (s *side) add(ops, bytes int64, took time.Duration) int64 {
	s.bytes.Add(bytes)
	s.nanos.Add(max(0, int64(took)))
	return s.ops.Add(ops)
}

// mix scatters the bits of n, so that a sample does not follow a pattern of the operations.
func mix(n uint32) uint32 {
	n *= 0x9e3779b1
	n ^= n >> 15
	n *= 0x85ebca77
	return n ^ n>>13
}

// keep adds an operation, selected by mask, to the sample.
func (s *side) keep(row []byte, c cost, by Caller, mask uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mask.Load() != mask { // thinned or taken meanwhile; it is only a sample
		return
	}
	kept := bytes.Clone(row[:min(len(row), RowMax)])
	if s.rows == nil {
		s.rows = make([]sample, 0, sampleMax)
	}
	s.rows, s.rowBytes = append(s.rows, sample{kept, c, named(by)}), s.rowBytes+len(kept)
	for (len(s.rows) >= sampleMax || s.rowBytes > sampleBytesMax) && mask < 1<<30 {
		mask = mask<<1 | 1
		s.thin()
	}
	s.mask.Store(mask)
}

// thin drops about half of the sample.
func (s *side) thin() {
	left := s.rows[:0]
	s.rowBytes = 0
	for _, x := range s.rows {
		if rand.Uint32()&1 == 0 {
			left, s.rowBytes = append(left, x), s.rowBytes+len(x.row)
		}
	}
	clear(s.rows[len(left):])
	s.rows = left
}

// take returns what was counted since the last take.
func (s *side) take() (ops, bytes, micros int64, rows []sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const micro = int64(time.Microsecond)
	nanos := s.nanos.Load()
	micros = nanos / micro
	s.nanos.Add(-micros * micro)
	ops, bytes, rows = s.ops.Swap(0), s.bytes.Swap(0), s.rows
	s.rows, s.rowBytes = nil, 0
	s.mask.Store(0)
	return ops, bytes, micros, rows
}

func (t *Tablet) noteLarge(row []byte, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.large = AddLarge(t.large, largeMax, Large{row[:min(len(row), RowMax)], n})
}

// AddLarge adds a row to large rows, of which it keeps the most largest, the largest first. It copies the row.
func AddLarge(all []Large, most int, l Large) []Large {
	at := len(all)
	for i := range all {
		if bytes.Equal(all[i].Row, l.Row) {
			if l.Bytes <= all[i].Bytes {
				return all
			}
			all = append(all[:i], all[i+1:]...)
			break
		}
	}
	for at = len(all); at > 0 && all[at-1].Bytes < l.Bytes; at-- {
	}
	if at == most {
		return all
	}
	l.Row = bytes.Clone(l.Row)
	all = append(all[:at], append([]Large{l}, all[at:]...)...)
	return all[:min(len(all), most)]
}
