package quota

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/internal/planted"
)

const (
	// idlePart is the part of a rate that idle servers keep, together.
	idlePart = 0.02
	// headroom is the factor by which a share may exceed the demand, which grows from report to
	// report.
	headroom = 1.25
	// learnPeriod is how long a new master only collects shares, unless all servers believed alive
	// have reported before. Servers report twice a second.
	learnPeriod = 3 * time.Second
	// shortfallPeriod is how long, after a server needed more than its share, the shares of servers
	// that did not report the quota are reduced. Each server sends a message twice a second.
	shortfallPeriod = 1500 * time.Millisecond
	// From idleFor until settledAfter after a quota was last used, or its set of servers changed,
	// servers are given equal shares. Afterwards no share is changed.
	idleFor, settledAfter = 1500 * time.Millisecond, 8 * time.Second
	// tolerance is the relative difference from the desired share up to which a server that did not
	// report the quota keeps its share.
	tolerance = 0.1
	// reportTimeout is the time after which the shares of a server that does not report are left
	// alone.
	reportTimeout = 3 * time.Second
)

// Allocator divides the rates of quotas among the servers. It runs on the master, and is safe for
// concurrent use.
type Allocator struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		epoch   uint64 // the master's epoch
		since   time.Time
		servers map[string]*lastReport
		quotas  map[string]*allocation // by key
	}
}

// lastReport is a server's last report and its round.
type lastReport struct {
	at    time.Time
	round uint64
}

// allocation is how a quota is divided.
type allocation struct {
	grants  map[string]*grant // by server name
	active  time.Time         // when it was last used, or its set of servers last changed
	shortAt time.Time         // when a server last needed more than its share
}

// grant is one server's part of a quota.
type grant struct {
	server *lastReport
	// shares are the most that the server may use: its last reported shares, or larger ones
	// answered since.
	shares  [Kinds]float64
	round   uint64         // round in which the server last reported the quota
	offered [Kinds]float64 // demand a second in that round
	before  [Kinds]float64 // demand in the round before
	refused [Kinds]bool    // whether requests were rejected in that round
}

// Divide processes the reports of a server and returns its new shares by key: for the reported
// quotas, and for others whose shares change. Round numbers the server's rounds; 0 if it does not
// count them. Record returns the record of a key, nil if there is none. A new epoch discards all
// state. Alive is the number of servers believed alive, 0 if unknown.
func (a *Allocator) Divide(now time.Time, epoch uint64, server string, round uint64, reports []Report, alive int, record func(key string) *Record) map[string][Kinds]float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.quotas == nil || a.mu.epoch != epoch {
		a.mu.epoch, a.mu.since, a.mu.servers, a.mu.quotas = epoch, now, map[string]*lastReport{}, map[string]*allocation{}
	}
	s := a.mu.servers[server]
	if s == nil {
		s = &lastReport{}
		a.mu.servers[server] = s
	}
	if round == 0 { // each report of such a server covers all quotas
		round = s.round + 1
	}
	s.at, s.round = now, round
	answer := make(map[string][Kinds]float64, len(reports))
	for i := range reports {
		r := &reports[i]
		rec := record(r.Key)
		if rec == nil || !r.valid() {
			continue
		}
		d := a.mu.quotas[r.Key]
		if d == nil {
			d = &allocation{grants: map[string]*grant{}}
			a.mu.quotas[r.Key] = d
		}
		h := d.grants[server]
		if h == nil {
			h = &grant{server: s}
			d.grants[server], d.active = h, now
		}
		h.note(round, r)
		if r.used() {
			d.active = now
		}
		h.shares = r.Shares
		shares, _ := a.divideLocked(now, d, server, rec, alive)
		if h.needsMoreThan(rec, shares) {
			d.shortAt = now
		}
		h.raise(shares) // until the server reports that it uses less
		answer[r.Key] = shares
	}
	a.pushLocked(now, server, alive, record, answer)
	return answer
}

// pushLocked adds to an answer the shares of quotas that the server did not report, if other
// servers need its part, or the quota is idle and its shares are not equal.
func (a *Allocator) pushLocked(now time.Time, server string, alive int, record func(key string) *Record, answer map[string][Kinds]float64) {
	for key, d := range a.mu.quotas {
		h := d.grants[server]
		if _, reported := answer[key]; reported || h == nil {
			continue
		}
		active := now.Sub(d.active)
		short, idle := now.Sub(d.shortAt) <= shortfallPeriod, active > idleFor && active <= settledAfter
		if !short && !idle {
			continue
		}
		rec := record(key)
		if rec == nil {
			continue
		}
		if len(answer) >= ReportsMax {
			return // further quotas follow in the next answer
		}
		shares, over := a.divideLocked(now, d, server, rec, alive)
		changed := false
		for k, has := range h.shares {
			much := math.Abs(shares[k]-has) > tolerance*max(shares[k], has)
			if shares[k] < has && (much || over[k]) || shares[k] > has && much && idle {
				changed = true
			} else {
				shares[k] = has
			}
		}
		if changed {
			h.raise(shares)
			answer[key] = shares
		}
	}
}

// divideLocked returns a server's new shares of a quota, and of which rates more than the whole is
// granted. Shares are unchanged while the master collects them.
func (a *Allocator) divideLocked(now time.Time, d *allocation, server string, rec *Record, alive int) (shares [Kinds]float64, over [Kinds]bool) {
	shares = d.grants[server].shares
	if now.Sub(a.mu.since) < learnPeriod && (alive <= 0 || reporting(now, d.grants) < alive) {
		return shares, over
	}
	for k := range shares {
		if rec.Rates[k].PerSecond > 0 {
			shares[k], over[k] = divide(now, d.grants, server, k, float64(rec.Rates[k].PerSecond))
			if planted.On(planted.QuotaNotDivided) {
				shares[k], over[k] = float64(rec.Rates[k].PerSecond), false
			}
		}
	}
	return shares, over
}

// reporting returns how many servers with a grant have reported recently.
func reporting(now time.Time, all map[string]*grant) (n int) {
	for _, h := range all {
		if now.Sub(h.server.at) <= reportTimeout {
			n++
		}
	}
	return n
}

// note records a report. A server may report twice in a round.
func (h *grant) note(round uint64, r *Report) {
	if round == h.round {
		for k := range r.Offered {
			h.offered[k], h.refused[k] = max(h.offered[k], r.Offered[k]), h.refused[k] || r.Refused[k]
		}
		return
	}
	h.before = [Kinds]float64{}
	if round == h.round+1 {
		h.before = h.offered
	}
	h.round, h.offered, h.refused = round, r.Offered, r.Refused
}

// raise records the shares that the server may use from now on.
func (h *grant) raise(shares [Kinds]float64) {
	for k := range shares {
		h.shares[k] = max(h.shares[k], shares[k])
	}
}

// demand returns the part of a rate that the server needs: the larger demand of the last two
// rounds, with headroom. A round without a report of the quota is a round without use.
func (h *grant) demand(k int, rate float64) float64 {
	offered := 0.0
	switch h.server.round - h.round {
	case 0:
		if h.refused[k] {
			return 1
		}
		offered = max(h.offered[k], h.before[k])
	case 1:
		offered = h.offered[k]
	}
	return offered * headroom / rate
}

// needsMoreThan reports whether the server needs more than the given shares.
func (h *grant) needsMoreThan(rec *Record, shares [Kinds]float64) bool {
	for k := range shares {
		if rate := rec.Rates[k].PerSecond; rate > 0 && min(h.demand(k, float64(rate)), 1) > shares[k] {
			return true
		}
	}
	return false
}

// divide returns a server's share of one rate, and whether all servers together hold more than the
// whole.
func divide(now time.Time, all map[string]*grant, server string, k int, rate float64) (share float64, over bool) {
	type need struct {
		server string
		part   float64
	}
	var needs []need
	free, total := 1.0, 1.0 // the part not held by others, and the part to be divided
	for name, h := range all {
		if name != server {
			free -= h.shares[k]
		}
		if now.Sub(h.server.at) > reportTimeout {
			total -= h.shares[k] // it keeps its share
			continue
		}
		needs = append(needs, need{name, h.demand(k, rate)})
	}
	total = max(total, 0)
	idle := idlePart * total / float64(len(needs))
	left := total
	slices.SortFunc(needs, func(x, y need) int { return cmp.Or(cmp.Compare(x.part, y.part), cmp.Compare(x.server, y.server)) })
	target := 0.0
	for i := range needs {
		part := min(max(needs[i].part, idle), left/float64(len(needs)-i))
		left -= part
		if needs[i].server == server {
			target = part
		}
	}
	target += left / float64(len(needs)) // the remainder, in equal parts
	has := all[server].shares[k]
	if target > has {
		target = max(has, min(target, free))
	}
	return min(target, 1), has-free > 1e-9
}

// Stale returns the servers that have not reported for reportTimeout.
func (a *Allocator) Stale(now time.Time) (servers []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, s := range a.mu.servers {
		if now.Sub(s.at) > reportTimeout {
			servers = append(servers, name)
		}
	}
	return servers
}

// Forget removes a server that no longer serves, and frees its shares.
func (a *Allocator) Forget(now time.Time, server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.servers, server)
	for key, d := range a.mu.quotas {
		if d.grants[server] == nil {
			continue
		}
		d.active = now
		if delete(d.grants, server); len(d.grants) == 0 {
			delete(a.mu.quotas, key)
		}
	}
}

// Keep removes the quotas for which there reports false.
func (a *Allocator) Keep(there func(key string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.mu.quotas {
		if !there(key) {
			delete(a.mu.quotas, key)
		}
	}
}
