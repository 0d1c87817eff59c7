package quota

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Meter is one server's state of one quota. It is safe for concurrent use, except SetRecord,
// SetShares and Report, which only the Reporter's goroutine may call.
type Meter struct {
	key     string
	what    string // table "t" or principal "p"
	record  atomic.Pointer[Record]
	buckets [Kinds]bucket
	shares  [Kinds]float64
	synced  bool // the master knows the shares in use; owned by the Reporter
}

// NewMeter returns a meter that uses the given share of each rate until the master has answered.
// Key names the quota among servers; what names it in errors, such as: table "t".
func NewMeter(key, what string, r *Record, now int64, share float64) *Meter {
	m := &Meter{key: key, what: what}
	for i := range m.shares {
		m.shares[i] = share
	}
	m.SetRecord(now, r)
	return m
}

// SetRecord replaces the record.
func (m *Meter) SetRecord(now int64, r *Record) {
	m.record.Store(r)
	m.apply(now)
}

func (m *Meter) apply(now int64) {
	r := m.record.Load()
	for i := range m.buckets {
		x := r.Rates[i]
		rate := float64(x.PerSecond) * m.shares[i]
		if x.PerSecond > 0 { // a rate of 0 would mean no limit
			rate = max(rate, rateMin)
		}
		m.buckets[i].set(now, rate, x.Burst)
	}
}

// rateMin is the least rate of a bucket with a limit, in units a second: it applies while
// unresponsive servers hold the whole rate.
const rateMin = 1e-3

// SetShares replaces the shares.
func (m *Meter) SetShares(now int64, shares [Kinds]float64) {
	m.shares = shares
	m.apply(now)
}

// applyShares is SetShares, and reports whether a share became smaller.
func (m *Meter) applyShares(now int64, shares [Kinds]float64) (less bool) {
	for k := range shares {
		less = less || shares[k] < m.shares[k]
	}
	if shares != m.shares {
		m.SetShares(now, shares)
	}
	return less
}

// Refusals returns the number of rejected requests, by kind.
func (m *Meter) Refusals() (n [Kinds]int64) {
	for i := range n {
		n[i] = m.buckets[i].refusals.Load()
	}
	return n
}

// Name returns the subject of the quota, such as: table "t".
func (m *Meter) Name() string { return m.what }

// Record returns the quota.
func (m *Meter) Record() *Record { return m.record.Load() }

// Key returns the name of the quota among servers.
func (m *Meter) Key() string { return m.key }

// Refusal describes a rejected request: a rate is used up.
type Refusal struct {
	Quota string // such as: table "t" write_ops
	Limit int64  // per second, cluster-wide
	Wait  time.Duration
}

// Take admits n units of a kind, or returns the refusal. Without a limit of that kind it admits
// all.
func (m *Meter) Take(now int64, k Kind, n int64) *Refusal {
	b := &m.buckets[k.index()]
	if !b.bounded() {
		return nil
	}
	wait := b.take(now, n)
	if wait <= 0 {
		return nil
	}
	// The wait by a small share may be much too long: by then the server may have the whole rate.
	if whole := time.Duration(float64(wait) * b.share(m.record.Load().Rate(k).PerSecond)); whole < wait {
		wait = min(wait, max(whole, shareWait))
	}
	return &Refusal{Quota: fmt.Sprintf("%s %s", m.what, k), Limit: m.record.Load().Rate(k).PerSecond, Wait: wait}
}

// shareWait is how soon a server that rejects requests gets the share that it needs, if there is
// enough.
const shareWait = time.Second

// Charge deducts units that were already used.
func (m *Meter) Charge(now int64, k Kind, n int64) {
	if b := &m.buckets[k.index()]; b.bounded() {
		b.charge(now, n)
	}
}

// Refund returns units that Take admitted and that were not used.
func (m *Meter) Refund(now int64, k Kind, n int64) {
	if b := &m.buckets[k.index()]; b.bounded() {
		b.refund(now, n)
	}
}

// Report is a server's report of one quota to the master.
type Report struct {
	Key string
	// Shares are the shares in use.
	Shares [Kinds]float64
	// Offered is the recent demand, in units per second.
	Offered [Kinds]float64
	// Refused reports whether some of that demand was rejected.
	Refused [Kinds]bool
}

// due reports whether the quota is to be reported: it has rates, and was used or is not in sync
// with the master.
func (m *Meter) due() bool {
	if !m.record.Load().hasRates() {
		return false
	}
	due := !m.synced
	for i := range m.buckets {
		due = due || m.buckets[i].used()
	}
	return due
}

// Report returns the report for the time since the last round.
func (m *Meter) Report(since time.Duration) Report {
	r := Report{Key: m.key, Shares: m.shares}
	for i := range m.buckets {
		n, refused := m.buckets[i].count()
		r.Offered[i] = float64(n) / max(since.Seconds(), 1e-3)
		r.Refused[i] = refused
	}
	return r
}

// used reports whether there was any demand.
func (r *Report) used() bool { return r.Offered != [Kinds]float64{} || r.Refused != [Kinds]bool{} }

// valid reports whether the numbers of a report are in range.
func (r *Report) valid() bool {
	for i := range r.Shares {
		if !(r.Shares[i] >= 0 && r.Shares[i] <= 1) || !(r.Offered[i] >= 0) || math.IsInf(r.Offered[i], 0) {
			return false
		}
	}
	return true
}
