package quota

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Meter is what a server knows of one quota. It is safe for concurrent use, but for Set and Report, which one goroutine calls, the Reporter's.
type Meter struct {
	key     string
	what    string // table "t" or principal "p"
	record  atomic.Pointer[Record]
	buckets [Kinds]bucket
	shares  [Kinds]float64
	told    bool // the master knows which shares this server goes by: the Reporter's own
}

// NewMeter returns the meter of a quota of which the master has said nothing yet: this server takes a share of
// it. Key names the quota among servers.
func NewMeter(key, what string, r *Record, now int64, share float64) *Meter {
	m := &Meter{key: key, what: what}
	for i := range m.shares {
		m.shares[i] = share
	}
	m.SetRecord(now, r)
	return m
}

// SetRecord has the meter go by another record.
func (m *Meter) SetRecord(now int64, r *Record) {
	m.record.Store(r)
	m.apply(now)
}

func (m *Meter) apply(now int64) {
	r := m.record.Load()
	for i := range m.buckets {
		x := r.Rates[i]
		rate := float64(x.PerSecond) * m.shares[i]
		if x.PerSecond > 0 { // none at all would be no bound
			rate = max(rate, rateMin)
		}
		m.buckets[i].set(now, rate, x.Burst)
	}
}

// rateMin is the least rate of a bucket that has a bound, in units a second: while others that are silent have all.
const rateMin = 1e-3

// SetShares has the meter go by other shares.
func (m *Meter) SetShares(now int64, shares [Kinds]float64) {
	m.shares = shares
	m.apply(now)
}

// goBy is SetShares, and tells whether a share is less than before.
func (m *Meter) goBy(now int64, shares [Kinds]float64) (less bool) {
	for k := range shares {
		less = less || shares[k] < m.shares[k]
	}
	if shares != m.shares {
		m.SetShares(now, shares)
	}
	return less
}

// Refusals returns how many requests were refused, by kind.
func (m *Meter) Refusals() (n [Kinds]int64) {
	for i := range n {
		n[i] = m.buckets[i].refusals.Load()
	}
	return n
}

// Name returns what the quota is of, such as: table "t".
func (m *Meter) Name() string { return m.what }

// Record returns the quota.
func (m *Meter) Record() *Record { return m.record.Load() }

// Key returns what the quota is named by among servers.
func (m *Meter) Key() string { return m.key }

// Refusal says that a rate is used up.
type Refusal struct {
	Quota string // such as: table "t" write_ops
	Limit int64  // per second, of the cluster
	Wait  time.Duration
}

// Take lets n units of a kind in, or says why not. Without a bound of that kind it lets all in.
func (m *Meter) Take(now int64, k Kind, n int64) *Refusal {
	b := &m.buckets[k.index()]
	if !b.bounded() {
		return nil
	}
	wait := b.take(now, n)
	if wait <= 0 {
		return nil
	}
	// By then the share may be all of it: one that is a small part says little.
	if whole := time.Duration(float64(wait) * b.share(m.record.Load().Rate(k).PerSecond)); whole < wait {
		wait = min(wait, max(whole, shareWait))
	}
	return &Refusal{Quota: fmt.Sprintf("%s %s", m.what, k), Limit: m.record.Load().Rate(k).PerSecond, Wait: wait}
}

// shareWait is how soon a server that refuses has the share that it needs, if there is enough.
const shareWait = time.Second

// Charge takes units that were used already.
func (m *Meter) Charge(now int64, k Kind, n int64) {
	if b := &m.buckets[k.index()]; b.bounded() {
		b.charge(now, n)
	}
}

// GiveBack returns units that Take has let in and that were not used.
func (m *Meter) GiveBack(now int64, k Kind, n int64) {
	if b := &m.buckets[k.index()]; b.bounded() {
		b.giveBack(now, n)
	}
}

// Report is what a server tells the master of one quota.
type Report struct {
	Key string
	// Shares are those that the server goes by.
	Shares [Kinds]float64
	// Offered is units per second that it was asked for of late.
	Offered [Kinds]float64
	// Refused tells whether some of them were refused.
	Refused [Kinds]bool
}

// due tells whether the master is to be told of the quota: it has rates, and was used or is not known to him.
func (m *Meter) due() bool {
	if !m.record.Load().hasRates() {
		return false
	}
	due := !m.told
	for i := range m.buckets {
		due = due || m.buckets[i].used()
	}
	return due
}

// Report tells what there was since the last one; the last round of reports was so long ago.
func (m *Meter) Report(since time.Duration) Report {
	r := Report{Key: m.key, Shares: m.shares}
	for i := range m.buckets {
		n, refused := m.buckets[i].count()
		r.Offered[i] = float64(n) / max(since.Seconds(), 1e-3)
		r.Refused[i] = refused
	}
	return r
}

// used tells whether there was anything.
func (r *Report) used() bool { return r.Offered != [Kinds]float64{} || r.Refused != [Kinds]bool{} }

// sane tells whether what a server has told can be reckoned with.
func (r *Report) sane() bool {
	for i := range r.Shares {
		if !(r.Shares[i] >= 0 && r.Shares[i] <= 1) || !(r.Offered[i] >= 0) || math.IsInf(r.Offered[i], 0) {
			return false
		}
	}
	return true
}
