package bench

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestRecordKeys: keys identify their record and are unique.
func TestRecordKeys(t *testing.T) {
	seen := map[string]uint64{}
	for _, record := range []uint64{0, 1, 2, 99, 1 << 20, 1 << 40, 1<<64 - 1} {
		key := appendRecordKey(nil, record)
		if other, again := seen[string(key)]; again {
			t.Errorf("records %d and %d have the key %s", record, other, key)
		}
		seen[string(key)] = record
		hash, back, ok := parseRecordKey(key)
		if !ok || back != record || hash != hashOf(record) || len(key) != 24 {
			t.Errorf("key %s of record %d is read as %d, %v", key, record, back, ok)
		}
	}
	for _, key := range []string{"", "user", "user0123456789012345678x", "xser01234567890123456789", "user99999999999999999999"} {
		if _, _, ok := parseRecordKey([]byte(key)); ok {
			t.Errorf("%q parses as a key", key)
		}
	}
}

// TestFields: a value identifies its table, record, field and stamp; a changed byte is detected.
func TestFields(t *testing.T) {
	r, other := newRecords(nil, 7, 10, false), newRecords(nil, 8, 10, false)
	var b, again [fieldBytes]byte
	seen := map[string]bool{}
	for record := range uint64(10) {
		for field := range recordFields {
			for stamp := range uint32(5) {
				r.fillField(b[:], record, field, stamp)
				r.fillField(again[:], record, field, stamp)
				if got, ok := r.stampOf(b[:], record, field); !ok || got != stamp || !bytes.Equal(b[:], again[:]) {
					t.Fatalf("record %d, field %d, stamp %d: %d, %v", record, field, stamp, got, ok)
				}
				if seen[string(b[:])] {
					t.Fatalf("record %d, field %d, stamp %d has another's value", record, field, stamp)
				}
				seen[string(b[:])] = true
				for _, wrong := range []struct {
					r      *records
					record uint64
					field  int
				}{{other, record, field}, {r, record + 1, field}, {r, record, (field + 1) % recordFields}} {
					if _, ok := wrong.r.stampOf(b[:], wrong.record, wrong.field); ok {
						t.Fatalf("value of record %d, field %d counts as another's", record, field)
					}
				}
				at := int(stamp) * 23 % fieldBytes
				b[at] ^= 1
				if _, ok := r.stampOf(b[:], record, field); ok {
					t.Fatalf("value counts as good though byte %d is not", at)
				}
			}
		}
	}
	if _, ok := r.stampOf(b[:fieldBytes-1], 0, 0); ok {
		t.Error("a short value counts as good")
	}
}

// TestFloors: BN5. A register updated in any order never has a lower stamp than the floor of a read
// that started before; and floors rise.
func TestFloors(t *testing.T) {
	const clients, rounds = 8, 4000
	r := newRecords(nil, 1, 1, false)
	r.stamps.active = make([]activeStamp, clients)
	var register atomic.Uint32
	var group sync.WaitGroup
	for id := range clients {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(id)))
			for range rounds {
				least := r.floorsOf(0)
				if got := register.Load(); got < least[0] {
					t.Errorf("read %d where %d is the least", got, least[0])
					return
				}
				stamp, floor := r.stamps.begin(id)
				if floor > stamp {
					t.Errorf("the floor of %d is %d", stamp, floor)
				}
				for range random.IntN(3) {
					runtime.Gosched()
				}
				register.Store(stamp)
				for range random.IntN(3) {
					runtime.Gosched()
				}
				r.raise(0, 0, floor)
				r.stamps.end(id)
			}
		})
	}
	group.Wait()
	if least := r.floorsOf(0); least[0] < clients*rounds-10*clients*oldestEvery {
		t.Errorf("after %d updates the floor is %d", clients*rounds, least[0])
	}
}

// TestSequence: a record counts once all before it exist.
func TestSequence(t *testing.T) {
	s := sequence{first: 10}
	var numbers []uint64
	for range 5 {
		numbers = append(numbers, s.next())
	}
	for i, want := range []struct{ insert, there uint64 }{{11, 10}, {13, 10}, {10, 12}, {14, 12}, {12, 15}} {
		s.inserted(want.insert)
		if got := s.existing(); got != want.there || numbers[i] != 10+uint64(i) {
			t.Errorf("after %d, number %d: %d are there, want %d", want.insert, numbers[i], got, want.there)
		}
	}
	if len(s.mu.early) != 0 {
		t.Errorf("left: %v", s.mu.early)
	}
}

func TestUnmix(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		if x := r.Uint64(); unmix(mix(x)) != x {
			t.Fatalf("%x comes back as %x", x, unmix(mix(x)))
		}
	}
}
