package client

import (
	"sync"
	"sync/atomic"
	"time"
)

// budget bounds the retries that reach nodes: one for every five successful calls, and some per
// second for programs that make few calls. Without it, each client of an overloaded node would send
// the same work several times.
//
// Amounts are in thousandths of a retry, so that a fifth is a whole number.
type budget struct {
	tokens atomic.Int64
	rate   int64 // per second
	max    int64

	mu   sync.Mutex
	last time.Time // when the rate was last credited
}

const (
	retryCost     = 1000
	successCredit = retryCost / 5
	budgetSeconds = 10 // capacity of the budget, in seconds of its rate
)

func newBudget(retriesPerSecond int) *budget {
	rate := int64(retriesPerSecond) * retryCost
	b := &budget{rate: rate, max: budgetSeconds * rate, last: time.Now()}
	b.tokens.Store(b.max)
	return b
}

// credit counts a successful call. On the hot path, where the budget is full, it only reads.
func (b *budget) credit() {
	if b.tokens.Load() < b.max {
		b.tokens.Add(successCredit)
	}
}

// spend takes one retry from the budget. It reports false if there is none.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	earned := now.Sub(b.last).Seconds() * float64(b.rate)
	b.last = now
	have := b.tokens.Add(int64(min(earned, float64(b.max))))
	if have > b.max {
		b.tokens.Add(b.max - have)
		have = b.max
	}
	if have < retryCost {
		return false
	}
	b.tokens.Add(-retryCost)
	return true
}
