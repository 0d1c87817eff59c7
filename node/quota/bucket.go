package quota

import (
	"math"
	"sync/atomic"
	"time"
)

// bucket lets units in at a rate. Times are ns of one monotonic clock.
type bucket struct {
	// paid is when all that was let in is paid for. A bucket that nobody uses is paid up by now.
	paid atomic.Int64
	// unit is the bits of a float64: how long a unit takes, in ns. 0 is no bound.
	unit  atomic.Uint64
	burst atomic.Int64 // how far paid may lie ahead for more to be let in

	offered  atomic.Int64 // units that were asked for since count was last called
	refused  atomic.Bool  // whether some were not let in
	refusals atomic.Int64 // requests that were not let in, in all
}

// costMax is the longest that one request, and what has been left to be paid of those before it, counts for: more than
// the longest burst, beyond which nothing is let in.
const costMax = int64(24 * BurstMax)

func (b *bucket) bounded() bool { return b.unit.Load() != 0 }

// cost is how long n units take.
func (b *bucket) cost(n int64) int64 {
	return int64(min(float64(n)*math.Float64frombits(b.unit.Load()), float64(costMax)))
}

// take lets n units in, or tells how long to wait.
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

// charge takes units that were used already.
func (b *bucket) charge(now, n int64) {
	b.offered.Add(n)
	b.move(now, b.cost(n))
}

// giveBack returns units that were let in and not used.
func (b *bucket) giveBack(now, n int64) {
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

// share is the part of that rate which the bucket has.
func (b *bucket) share(perSecond int64) float64 {
	return min(float64(time.Second)/(float64(max(perSecond, 1))*math.Float64frombits(b.unit.Load())), 1)
}

// set gives the bucket another rate, or another burst. What was saved, or has still to be paid, is kept in
// units: by time alone a bucket whose rate grows would have saved what it never had.
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
		saved := int64(burst) // a new one is full
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

// used tells whether count has something to tell.
func (b *bucket) used() bool { return b.offered.Load() > 0 || b.refused.Load() }

// count returns what was asked for since it was last called, and whether some was refused.
func (b *bucket) count() (offered int64, refused bool) {
	return max(b.offered.Swap(0), 0), b.refused.Swap(false)
}
