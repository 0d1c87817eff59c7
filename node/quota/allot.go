package quota

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// idlePart is what servers that are idle keep of a rate, together.
	idlePart = 0.02
	// headroom is how much more a server may get than it was asked for: that grows from report to report.
	headroom = 1.25
	// learning is how long a new master only learns which shares there are, unless all servers that are thought to live have
	// told it before. Servers report twice a second.
	learning = 3 * time.Second
	// shortFor is how long, after a server had need of more than it has, others are told to go by less that tell nothing of the
	// quota: each tells something twice a second.
	shortFor = 1500 * time.Millisecond
	// From idleFor on after a quota was used last, or who shares it has changed, until settledAfter, servers are told to share it in
	// equal parts. Then nobody is told anything.
	idleFor, settledAfter = 1500 * time.Millisecond, 8 * time.Second
	// slack is the part of a share by which it may differ from what it should be, before a server is told that tells nothing
	// of the quota.
	slack = 0.1
	// silence is after how long a server that reports nothing is left what it has.
	silence = 3 * time.Second
)

// Allotter divides the rates of quotas among the servers, for the master. It is safe for concurrent use.
type Allotter struct {
	// mu guards the fields in it. Never held while anything is waited for.
	mu struct {
		sync.Mutex
		epoch   uint64 // of the mastership
		since   time.Time
		servers map[string]*heard
		quotas  map[string]*division // by key
	}
}

// heard is when a server has told something last, and in which round of its reports.
type heard struct {
	at    time.Time
	round uint64
}

// division is what servers have of a quota.
type division struct {
	held    map[string]*holding // by server
	stirred time.Time           // when it was used last, or who shares it has changed
	short   time.Time           // when a server had need of more than it has
}

// holding is what a server has of a quota.
type holding struct {
	server *heard
	// shares is the most that it may go by: what it said last, or what it was answered since.
	shares  [Kinds]float64
	round   uint64         // in which it has told of the quota last
	offered [Kinds]float64 // a second, in that round
	before  [Kinds]float64 // in the round before it
	refused [Kinds]bool    // in that round
}

// Divide takes what a server reports in a round, 0 if it does not count them, and returns its shares by key, those that it goes by
// from now on: of what it reports, and of what else it must know. Record returns the record of a key, nil if there is none. A
// mastership with another epoch begins anew; alive is how many servers are thought to live, 0 if that is not known.
func (a *Allotter) Divide(now time.Time, epoch uint64, server string, round uint64, reports []Report, alive int, record func(key string) *Record) map[string][Kinds]float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.quotas == nil || a.mu.epoch != epoch {
		a.mu.epoch, a.mu.since, a.mu.servers, a.mu.quotas = epoch, now, map[string]*heard{}, map[string]*division{}
	}
	s := a.mu.servers[server]
	if s == nil {
		s = &heard{}
		a.mu.servers[server] = s
	}
	if round == 0 { // each report of such a server tells of all quotas
		round = s.round + 1
	}
	s.at, s.round = now, round
	answer := make(map[string][Kinds]float64, len(reports))
	for i := range reports {
		r := &reports[i]
		rec := record(r.Key)
		if rec == nil || !r.sane() {
			continue
		}
		d := a.mu.quotas[r.Key]
		if d == nil {
			d = &division{held: map[string]*holding{}}
			a.mu.quotas[r.Key] = d
		}
		h := d.held[server]
		if h == nil {
			h = &holding{server: s}
			d.held[server], d.stirred = h, now
		}
		h.note(round, r)
		if r.used() {
			d.stirred = now
		}
		h.shares = r.Shares
		shares, _ := a.divideLocked(now, d, server, rec, alive)
		if h.short(rec, shares) {
			d.short = now
		}
		h.hold(shares) // until it says that it goes by less
		answer[r.Key] = shares
	}
	a.pushLocked(now, server, alive, record, answer)
	return answer
}

// pushLocked adds to an answer the shares of quotas of which the server has told nothing, if others need what it has, or nobody
// uses them and it should have another part.
func (a *Allotter) pushLocked(now time.Time, server string, alive int, record func(key string) *Record, answer map[string][Kinds]float64) {
	for key, d := range a.mu.quotas {
		h := d.held[server]
		if _, told := answer[key]; told || h == nil {
			continue
		}
		stirred := now.Sub(d.stirred)
		short, idle := now.Sub(d.short) <= shortFor, stirred > idleFor && stirred <= settledAfter
		if !short && !idle {
			continue
		}
		rec := record(key)
		if rec == nil {
			continue
		}
		if len(answer) >= ReportsMax {
			return // the next message is answered with others
		}
		shares, over := a.divideLocked(now, d, server, rec, alive)
		changed := false
		for k, has := range h.shares {
			much := math.Abs(shares[k]-has) > slack*max(shares[k], has)
			if shares[k] < has && (much || over[k]) || shares[k] > has && much && idle {
				changed = true
			} else {
				shares[k] = has
			}
		}
		if changed {
			h.hold(shares)
			answer[key] = shares
		}
	}
}

// divideLocked returns the shares of a quota that a server is to have, and of which rates more than all is held. They stay as
// they are while the master learns.
func (a *Allotter) divideLocked(now time.Time, d *division, server string, rec *Record, alive int) (shares [Kinds]float64, over [Kinds]bool) {
	shares = d.held[server].shares
	if now.Sub(a.mu.since) < learning && (alive <= 0 || fresh(now, d.held) < alive) {
		return shares, over
	}
	for k := range shares {
		if rec.Rates[k].PerSecond > 0 {
			shares[k], over[k] = divide(now, d.held, server, k, float64(rec.Rates[k].PerSecond))
		}
	}
	return shares, over
}

// fresh is how many servers that have told of a quota have told something of late.
func fresh(now time.Time, all map[string]*holding) (n int) {
	for _, h := range all {
		if now.Sub(h.server.at) <= silence {
			n++
		}
	}
	return n
}

// note takes what a server reports. It may do so twice in a round.
func (h *holding) note(round uint64, r *Report) {
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

// hold notes what the server may go by from now on.
func (h *holding) hold(shares [Kinds]float64) {
	for k := range shares {
		h.shares[k] = max(h.shares[k], shares[k])
	}
}

// part is the part of a rate of which the server has need: by the larger of the last two rounds. One in which it told nothing of
// the quota was one in which nobody used it there.
func (h *holding) part(k int, rate float64) float64 {
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

// short tells whether the server has need of more than such shares.
func (h *holding) short(rec *Record, shares [Kinds]float64) bool {
	for k := range shares {
		if rate := rec.Rates[k].PerSecond; rate > 0 && min(h.part(k, float64(rate)), 1) > shares[k] {
			return true
		}
	}
	return false
}

// divide returns the share that a server is to have of one rate, and whether all servers together have more than there is.
func divide(now time.Time, all map[string]*holding, server string, k int, rate float64) (share float64, over bool) {
	type need struct {
		server string
		part   float64
	}
	var needs []need
	free, total := 1.0, 1.0 // what others do not hold, and what there is to be divided
	for name, h := range all {
		if name != server {
			free -= h.shares[k]
		}
		if now.Sub(h.server.at) > silence {
			total -= h.shares[k] // it goes on with that
			continue
		}
		needs = append(needs, need{name, h.part(k, rate)})
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
	target += left / float64(len(needs)) // what nobody needs
	has := all[server].shares[k]
	if target > has {
		target = max(has, min(target, free))
	}
	return min(target, 1), has-free > 1e-9
}

// Stale returns the servers that have reported nothing for a while.
func (a *Allotter) Stale(now time.Time) (servers []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, s := range a.mu.servers {
		if now.Sub(s.at) > silence {
			servers = append(servers, name)
		}
	}
	return servers
}

// Forget takes back what a server has that serves nothing any more.
func (a *Allotter) Forget(now time.Time, server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.servers, server)
	for key, d := range a.mu.quotas {
		if d.held[server] == nil {
			continue
		}
		d.stirred = now
		if delete(d.held, server); len(d.held) == 0 {
			delete(a.mu.quotas, key)
		}
	}
}

// Keep forgets the quotas that there are no longer.
func (a *Allotter) Keep(there func(key string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.mu.quotas {
		if !there(key) {
			delete(a.mu.quotas, key)
		}
	}
}
