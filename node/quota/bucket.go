package quota

import (
	"math"
	"sync/atomic"
	"time"
)

// bucket is a token bucket. Times are nanoseconds of one monotonic clock. It is safe for concurrent
// use, but for set.
type bucket struct {
	// paid is when all admitted units are paid for. For an unused bucket it is not after the
	// present.
	paid atomic.Int64
	// unit holds the bits of a float64: the nanoseconds of one unit. 0 means no limit.
	unit  atomic.Uint64
	burst atomic.Int64 // how far paid may lie ahead for more units to be admitted

	offered  atomic.Int64 // units requested since the last count
	refused  atomic.Bool  // whether some were rejected since the last count
	refusals atomic.Int64 // requests rejected in total
}

// costMax bounds the debt of a bucket, in nanoseconds: more than the longest burst, beyond which
// nothing is admitted.
const costMax = int64(24 * BurstMax)

func (b *bucket) bounded() bool { return b.unit.Load() != 0 }

// cost returns the nanoseconds of n units.
func (b *bucket) cost(n int64) int64 {
	return int64(min(float64(n)*math.Float64frombits(b.unit.Load()), float64(costMax)))
}

// take admits n units, or returns how long to wait.
func (b *bucket) take(now, n int64) (wait time.Duration) {
	b.offered.Add(n)
	cost, burst := b.cost(n), b.burst.Load()
	for {
		paid := b.paid.Load()
		ahead := max(paid, now) - now
		if ahead > burst {
			b.refused.Store(true)
			b.refusals.Add(1)
			return time.Duration(ahead - burst)
		}
		if b.paid.CompareAndSwap(paid, now+min(ahead+cost, costMax)) {
			return 0
		}
	}
}

// charge deducts units that were already used.
func (b *bucket) charge(now, n int64) {
	b.offered.Add(n)
	b.move(now, b.cost(n))
}

// refund returns units that were admitted and not used.
func (b *bucket) refund(now, n int64) {
	b.offered.Add(-n)
	b.move(now, -b.cost(n))
}

func (b *bucket) move(now, by int64) {
	for {
		paid := b.paid.Load()
		if b.paid.CompareAndSwap(paid, now+min(max(max(paid, now)-now+by, 0), costMax)) {
			return
		}
	}
}

// share returns the part of that rate which the bucket has.
func (b *bucket) share(perSecond int64) float64 {
	return min(float64(time.Second)/(float64(max(perSecond, 1))*math.Float64frombits(b.unit.Load())), 1)
}

// set changes the rate and the burst. The saved units, or the debt, are kept in units: kept as
// time, a bucket whose rate grows would have saved units that it never had.
func (b *bucket) set(now int64, perSecond float64, burst time.Duration) {
	if perSecond <= 0 {
		b.unit.Store(0)
		return
	}
	old, next := math.Float64frombits(b.unit.Load()), float64(time.Second)/perSecond
	oldBurst := b.burst.Load()
	if old == next && oldBurst == int64(burst) {
		return
	}
	for {
		paid := b.paid.Load()
		saved := int64(burst) // a new bucket is full
		if old != 0 {
			units := float64(oldBurst-(max(paid, now)-now)) / old
			saved = int64(max(min(units*next, float64(burst)), -float64(costMax)))
		}
		if b.paid.CompareAndSwap(paid, now+int64(burst)-saved) {
			break
		}
	}
	b.unit.Store(math.Float64bits(next))
	b.burst.Store(int64(burst))
}

// used reports whether units were requested or rejected since the last count.
func (b *bucket) used() bool { return b.offered.Load() > 0 || b.refused.Load() }

// count returns the units requested since the last count, and whether any were rejected.
func (b *bucket) count() (offered int64, refused bool) {
	return max(b.offered.Swap(0), 0), b.refused.Swap(false)
}
