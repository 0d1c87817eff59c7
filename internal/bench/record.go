package bench

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// The number of fields of a YCSB record, and their size.
const (
	recordFields = 10
	fieldBytes   = 100
)

// fieldNames are the qualifiers of the fields.
var fieldNames = func() (names [recordFields][]byte) {
	for f := range names {
		names[f] = []byte("field" + strconv.Itoa(f))
	}
	return names
}()

// records is a table of YCSB records. Those below loaded are written before the measurement; the
// others are inserted.
//
// Each value of a field starts with a stamp, 0 for the initial value, followed by bytes unique to
// the stamp, field, record and table. A value that is read therefore proves that it was written
// there. The floor determines whether it is also recent enough (BN5).
type records struct {
	table    *client.Table
	seed     uint64
	loaded   uint64
	written  bool
	inserted sequence

	// floors is the lowest valid stamp of each field of the loaded records.
	floors []atomic.Uint32
	stamps stamps
	// sorted is the sorted hashes of the loaded records, if they are to be scanned.
	sorted []uint64
}

func newRecords(t *client.Table, seed, n uint64, scanned bool) *records {
	r := &records{table: t, seed: seed, loaded: n, floors: make([]atomic.Uint32, n*recordFields)}
	r.inserted.first = n
	if scanned {
		for i := range n {
			r.sorted = append(r.sorted, hashOf(i))
		}
		slices.Sort(r.sorted)
	}
	return r
}

// Record keys are a prefix and a hash, so that the order of records in the table differs from the
// order of insertion.
const (
	recordPrefix = "user"
	recordDigits = 20
)

func hashOf(record uint64) uint64     { return mix(record + golden) }
func recordOfHash(hash uint64) uint64 { return unmix(hash) - golden }

func appendRecordKey(b []byte, record uint64) []byte { return appendHashKey(b, hashOf(record)) }

func appendHashKey(b []byte, hash uint64) []byte {
	return fmt.Appendf(b, recordPrefix+"%0*d", recordDigits, hash)
}

// parseRecordKey returns the hash and the record of a key.
func parseRecordKey(key []byte) (hash, record uint64, ok bool) {
	if len(key) != len(recordPrefix)+recordDigits || string(key[:len(recordPrefix)]) != recordPrefix {
		return 0, 0, false
	}
	hash, err := strconv.ParseUint(string(key[len(recordPrefix):]), 10, 64)
	return hash, recordOfHash(hash), err == nil
}

// fieldStart is the start of the byte sequence of a value with this stamp.
func (r *records) fieldStart(record uint64, field int, stamp uint32) uint64 {
	return mix(mix(r.seed+record*golden) + (uint64(stamp)*recordFields+uint64(field))*golden)
}

// fillField writes a value to b, which has fieldBytes bytes.
func (r *records) fillField(b []byte, record uint64, field int, stamp uint32) {
	binary.LittleEndian.PutUint32(b, stamp)
	x := r.fieldStart(record, field, stamp)
	for b = b[4:]; len(b) > 0; b = b[8:] {
		binary.LittleEndian.PutUint64(b, mix(x))
		x += golden
	}
}

// stampOf returns the stamp of a value, and whether it is a value of this record's field.
func (r *records) stampOf(b []byte, record uint64, field int) (stamp uint32, ok bool) {
	if len(b) != fieldBytes {
		return 0, false
	}
	stamp = binary.LittleEndian.Uint32(b)
	x := r.fieldStart(record, field, stamp)
	for b = b[4:]; len(b) > 0; b = b[8:] {
		if binary.LittleEndian.Uint64(b) != mix(x) {
			return 0, false
		}
		x += golden
	}
	return stamp, true
}

// floorsOf returns the lowest stamps that a read which starts now may return.
func (r *records) floorsOf(record uint64) (least [recordFields]uint32) {
	if record < r.loaded {
		for f := range least {
			least[f] = r.floors[record*recordFields+uint64(f)].Load()
		}
	}
	return least
}

// raise raises a field's floor to stamp if it is lower.
func (r *records) raise(record uint64, field int, stamp uint32) {
	floor := &r.floors[record*recordFields+uint64(field)]
	for at := floor.Load(); at < stamp && !floor.CompareAndSwap(at, stamp); {
		at = floor.Load()
	}
}

// good reports whether a row has all fields of a record, with stamps that were issued and are not
// below least.
func (r *records) good(row *table.Row, record uint64, least *[recordFields]uint32) bool {
	if row == nil || len(row.Cells) != recordFields {
		return false
	}
	for f := range row.Cells {
		c := &row.Cells[f]
		if c.Family != family || string(c.Qualifier) != string(fieldNames[f]) {
			return false
		}
		if stamp, ok := r.stampOf(c.Value, record, f); !ok || stamp < least[f] || stamp > r.stamps.last.Load() {
			return false
		}
	}
	return true
}

// stamps numbers the updates of a table and tracks those in progress.
type stamps struct {
	last   atomic.Uint32
	oldest atomic.Uint32
	active []activeStamp // by client
}

// activeStamp is a lower bound of the stamp of a client's update in progress, or 0. It is padded to
// a cache line.
type activeStamp struct {
	atomic.Uint32
	_ [60]byte
}

// oldestEvery is the number of updates between recomputations of oldest.
const oldestEvery = 8

// begin returns the stamp of a client's next update, and the floor that it implies: once this
// update is acknowledged, no update below the floor may be read. Updates below it were acknowledged
// before this one started, so this one comes after them.
func (s *stamps) begin(client int) (stamp, floor uint32) {
	// The stored value is not above the stamp, even if other clients get theirs in between. A
	// client that computes the oldest before the store has a lower stamp.
	s.active[client].Store(s.last.Load() + 1)
	stamp = s.last.Add(1)
	if stamp%oldestEvery == 0 {
		oldest := stamp
		for i := range s.active {
			if at := s.active[i].Load(); at > 0 {
				oldest = min(oldest, at)
			}
		}
		for at := s.oldest.Load(); at < oldest && !s.oldest.CompareAndSwap(at, oldest); {
			at = s.oldest.Load()
		}
	}
	return stamp, s.oldest.Load()
}

func (s *stamps) end(client int) { s.active[client].Store(0) }

// A sequence numbers inserted records and tracks up to which number all exist.
type sequence struct {
	first  uint64 // first number
	issued atomic.Uint64
	count  atomic.Uint64 // inserted records without a gap

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		early map[uint64]bool // inserted records after a gap
	}
}

// next returns the number of the next record to insert.
func (s *sequence) next() uint64 { return s.first + s.issued.Add(1) - 1 }

// inserted records that a record exists.
func (s *sequence) inserted(record uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.count.Load()
	if record != s.first+at {
		if s.mu.early == nil {
			s.mu.early = map[uint64]bool{}
		}
		s.mu.early[record] = true
		return
	}
	for at++; s.mu.early[s.first+at]; at++ {
		delete(s.mu.early, s.first+at)
	}
	s.count.Store(at)
}

// existing returns the number of existing records without a gap, including the initial ones.
func (s *sequence) existing() uint64 { return s.first + s.count.Load() }
