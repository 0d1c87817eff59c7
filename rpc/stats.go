package rpc

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// LatencyBuckets is the number of buckets of a method's latency histogram.
const LatencyBuckets = 26

// LatencyBound returns the upper bound of histogram bucket i: 1 µs for bucket 0, twice as much for
// each further one. The last bucket has no bound and yields 0.
func LatencyBound(i int) time.Duration {
	if i >= LatencyBuckets-1 {
		return 0
	}
	return time.Microsecond << i
}

// methodStats counts the calls of one method, with two atomic additions a call, and one more for an
// error.
type methodStats struct {
	errors  atomic.Pointer[[]atomic.Uint64] // by the code's slot, the last for other codes; nil before the first error
	nanos   atomic.Uint64
	buckets [LatencyBuckets]atomic.Uint64
}

// done counts a call that took d and was answered with e, or with a result if e is nil.
func (m *methodStats) done(d time.Duration, e *Error) {
	d = max(d, 0)
	m.nanos.Add(uint64(d))
	m.buckets[min(bits.Len64(uint64((d-1)/time.Microsecond)), LatencyBuckets-1)].Add(1)
	if e != nil {
		m.failed(e.Code)
	}
}

func (m *methodStats) failed(c Code) {
	counts := m.errors.Load()
	if counts == nil {
		made := make([]atomic.Uint64, len(codeSlots)+1)
		m.errors.CompareAndSwap(nil, &made)
		counts = m.errors.Load()
	}
	other := len(*counts) - 1
	slot, named := codeSlots[c]
	if !named {
		slot = other
	}
	(*counts)[min(slot, other)].Add(1)
}

// OtherCode is the name under which errors are counted whose code has none. Such codes come from
// other servers whose answers are passed on.
const OtherCode = "other"

// errorCounts returns the numbers of errors by the code's name, without zeros.
func (m *methodStats) errorCounts() map[string]uint64 {
	counts := m.errors.Load()
	if counts == nil {
		return nil
	}
	other := len(*counts) - 1
	byName := make(map[string]uint64)
	for c, slot := range codeSlots {
		if slot < other {
			byName[c.String()] = (*counts)[slot].Load()
		}
	}
	byName[OtherCode] = (*counts)[other].Load()
	maps.DeleteFunc(byName, func(_ string, n uint64) bool { return n == 0 })
	return byName
}

// counters are the counters of a Server.
type counters struct {
	framed, plain, claimed, refusedConns atomic.Uint64
	conns                                atomic.Int64
	bytesIn, bytesOut, writes            atomic.Uint64
	notifications, unknown, guarded      atomic.Uint64
	malformed, corrupt, stalled          atomic.Uint64
	overloaded, late, dropped, panics    atomic.Uint64
}

// Stats is a snapshot of a server's counters. Conns, InFlight, MemoryBytes and BufferBytes are
// gauges; all others only grow.
type Stats struct {
	Conns       int64  // open now
	FramedConns uint64 // opened in framed mode
	PlainConns  uint64 // opened in plain mode
	Claimed     uint64 // connections passed to listeners of Claim
	Refused     uint64 // connections closed at once: over ConnsMax, or an unknown first byte

	BytesIn, BytesOut uint64
	Writes            uint64 // write calls; responses / Writes shows how well they coalesce

	InFlight      int64 // requests in flight
	MemoryBytes   int64 // bytes of requests in flight and unsent responses
	BufferBytes   int64 // bytes that read buffers have grown by
	Notifications uint64
	Unknown       uint64 // requests for unknown methods
	Guarded       uint64 // requests that the guard rejected
	Malformed     uint64 // connections closed because of malformed messages
	Corrupt       uint64 // connections closed because of a wrong checksum
	Stalled       uint64 // connections closed because a message was sent or read too slowly
	Overloaded    uint64 // requests rejected for lack of memory or workers
	Late          uint64 // requests rejected because their deadline had passed
	Dropped       uint64 // requests not run because their connection had ended
	Panics        uint64 // handlers that panicked

	Methods []MethodStats // sorted by name
}

// MethodStats holds the counters of one method.
type MethodStats struct {
	Method   string
	Requests uint64        // answered, and notifications handled
	Time     time.Duration // sum, from arrival to answer
	// Errors counts the requests answered with an error, by the name of its code, or OtherCode. It
	// has no zeros, and is nil if there are no errors.
	Errors map[string]uint64
	// Latency counts requests by time from arrival to answer; see LatencyBound.
	Latency [LatencyBuckets]uint64
}

// Stats returns the server's counters. Counters are read one by one, so sums of
// them may be off by requests in flight.
func (s *Server) Stats() Stats {
	c := &s.count
	st := Stats{
		Conns: c.conns.Load(), FramedConns: c.framed.Load(), PlainConns: c.plain.Load(),
		Claimed: c.claimed.Load(), Refused: c.refusedConns.Load(),
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), Writes: c.writes.Load(),
		MemoryBytes: s.memory.used.Load(), BufferBytes: s.buffers.used.Load(),
		Notifications: c.notifications.Load(), Unknown: c.unknown.Load(), Guarded: c.guarded.Load(),
		Malformed: c.malformed.Load(), Corrupt: c.corrupt.Load(), Stalled: c.stalled.Load(),
		Overloaded: c.overloaded.Load(), Late: c.late.Load(), Dropped: c.dropped.Load(), Panics: c.panics.Load(),
	}
	for _, conn := range s.snapshot() {
		st.InFlight += conn.inFlight.Load()
	}
	for name, m := range s.methods {
		ms := MethodStats{Method: name, Errors: m.stats.errorCounts(), Time: time.Duration(m.stats.nanos.Load())}
		for i := range ms.Latency {
			ms.Latency[i] = m.stats.buckets[i].Load()
			ms.Requests += ms.Latency[i]
		}
		st.Methods = append(st.Methods, ms)
	}
	slices.SortFunc(st.Methods, func(a, b MethodStats) int { return strings.Compare(a.Method, b.Method) })
	return st
}
