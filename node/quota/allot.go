package quota

import (
	"cmp"
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
	// silence is after how long a server that reports nothing is left what it has.
	silence = 3 * time.Second
)

// Allotter divides the rates of quotas among the servers, for the master. It is safe for concurrent use.
type Allotter struct {
	// mu guards the fields in it. Never held while anything is waited for.
	mu struct {
		sync.Mutex
		epoch  uint64 // of the mastership
		since  time.Time
		quotas map[string]map[string]*holding // by key, by server
	}
}

// holding is what a server has of a quota.
type holding struct {
	// shares is the most that it may go by: what it said last, or what it was answered since.
	shares  [Kinds]float64
	offered [Kinds]float64 // a second; the larger of the last two reports
	before  [Kinds]float64 // the last
	refused [Kinds]bool
	at      time.Time
}

// Divide takes what a server reports, and returns its shares by key, those that it goes by from now
// on. Record returns the record of a key, nil if there is none. A mastership with another epoch begins
// anew; alive is how many servers are thought to live, 0 if that is not known.
func (a *Allotter) Divide(now time.Time, epoch uint64, server string, reports []Report, alive int, record func(key string) *Record) map[string][Kinds]float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.quotas == nil || a.mu.epoch != epoch {
		a.mu.epoch, a.mu.since, a.mu.quotas = epoch, now, map[string]map[string]*holding{}
	}
	answer := make(map[string][Kinds]float64, len(reports))
	for i := range reports {
		r := &reports[i]
		rec := record(r.Key)
		if rec == nil || !r.sane() {
			continue
		}
		all := a.mu.quotas[r.Key]
		if all == nil {
			all = map[string]*holding{}
			a.mu.quotas[r.Key] = all
		}
		h := all[server]
		if h == nil {
			h = &holding{}
			all[server] = h
		}
		h.note(now, r)
		shares := r.Shares
		if now.Sub(a.mu.since) >= learning || alive > 0 && fresh(now, all) >= alive {
			for k := range shares {
				if rec.Rates[k].PerSecond > 0 {
					shares[k] = divide(now, all, server, k, float64(rec.Rates[k].PerSecond))
				}
			}
		}
		for k := range shares {
			h.shares[k] = max(r.Shares[k], shares[k]) // until it says that it goes by less
		}
		answer[r.Key] = shares
	}
	return answer
}

// fresh is how many servers have reported of late.
func fresh(now time.Time, all map[string]*holding) (n int) {
	for _, h := range all {
		if now.Sub(h.at) <= silence {
			n++
		}
	}
	return n
}

func (h *holding) note(now time.Time, r *Report) {
	for k := range r.Offered {
		h.offered[k] = max(h.before[k], r.Offered[k])
	}
	h.shares, h.before, h.refused, h.at = r.Shares, r.Offered, r.Refused, now
}

// divide returns the share that a server is to have of one rate.
func divide(now time.Time, all map[string]*holding, server string, k int, rate float64) float64 {
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
		if now.Sub(h.at) > silence {
			total -= h.shares[k] // it goes on with that
			continue
		}
		part := h.offered[k] * headroom / rate
		if h.refused[k] {
			part = 1
		}
		needs = append(needs, need{name, part})
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
	if has := all[server].shares[k]; target > has {
		target = max(has, min(target, free))
	}
	return min(target, 1)
}

// Stale returns the servers that have reported nothing for a while.
func (a *Allotter) Stale(now time.Time) (servers []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, all := range a.mu.quotas {
		for name, h := range all {
			if now.Sub(h.at) > silence && !slices.Contains(servers, name) {
				servers = append(servers, name)
			}
		}
	}
	return servers
}

// Forget takes back what a server has that serves nothing any more.
func (a *Allotter) Forget(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, all := range a.mu.quotas {
		if delete(all, server); len(all) == 0 {
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
