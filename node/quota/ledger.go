package quota

import (
	"sync"
	"time"
)

// Ledger is what tables take on all servers, for the master: it tells which may not grow. It is
// safe for concurrent use.
type Ledger struct {
	// mu guards the fields in it. Never held while anything is waited for.
	mu struct {
		sync.Mutex
		epoch   uint64 // of the mastership
		since   time.Time
		servers map[string]*told
		whole   bool // all servers have told, or had the time to
		total   map[uint64]int64
		high    map[string]time.Time // quotas whose tables take too much, by key, with since when
		full    map[string]time.Time // quotas that are used up, by key, with when they were last seen to be
		last    map[uint64]Over
		at      time.Time // of last
	}
}

// told is what a server has told last.
type told struct {
	tables map[uint64]int64 // bytes
	at     time.Time
	silent bool // too long ago: it is not in the totals
}

// Bound is a quota of bytes, and the tables that count for it.
type Bound struct {
	Key    string
	Quota  string // such as: table "t" bytes
	Limit  int64
	Tables []uint64
}

// Over tells that a quota is used up.
type Over struct {
	Quota       string
	Limit, Used int64
}

const (
	// fullFor is how long a quota counts as used up after it was. While a tablet is moved neither of two servers may have
	// told of it.
	fullFor = 3 * time.Second
	// highFor is how long tables must have taken too much until the quota counts as used up: while a tablet is moved both
	// servers may have told of it.
	highFor = 1500 * time.Millisecond
	// silentAfter is when what a server has told counts no more: others have its tablets, most likely, and tell of them.
	silentAfter = 1500 * time.Millisecond
	// verdictsFor is how long verdicts are not made anew: each report of a server asks for them.
	verdictsFor = 250 * time.Millisecond
)

// Note takes what a server says that its tables take. A mastership with another epoch begins anew.
func (l *Ledger) Note(now time.Time, epoch uint64, server string, tables map[uint64]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.servers == nil || l.mu.epoch != epoch {
		l.mu.epoch, l.mu.since, l.mu.at, l.mu.whole = epoch, now, time.Time{}, false
		l.mu.servers, l.mu.total = map[string]*told{}, map[uint64]int64{}
		l.mu.high, l.mu.full = map[string]time.Time{}, map[string]time.Time{}
	}
	l.leaveOutLocked(l.mu.servers[server])
	l.mu.servers[server] = &told{tables: tables, at: now}
	for id, n := range tables {
		l.mu.total[id] += n
	}
}

// leaveOutLocked takes what a server has told out of the totals.
func (l *Ledger) leaveOutLocked(t *told) {
	if t == nil || t.silent {
		return
	}
	t.silent = true
	for id, n := range t.tables {
		if l.mu.total[id] -= n; l.mu.total[id] == 0 {
			delete(l.mu.total, id)
		}
	}
}

// Reset forgets all.
func (l *Ledger) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.servers = nil
}

// Forget leaves out a server that serves nothing any more.
func (l *Ledger) Forget(server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveOutLocked(l.mu.servers[server])
	delete(l.mu.servers, server)
}

// Servers returns those that have told something.
func (l *Ledger) Servers() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.mu.servers {
		all = append(all, s)
	}
	return all
}

// Over returns the tables that may not grow, with the quota that says so. It is nil while the master is new, and has not
// heard of all servers, of which so many are thought to live, 0 if that is not known: what was told before holds then. What
// its first verdicts find holds at once; later a quota must have been exceeded for a while.
func (l *Ledger) Over(now time.Time, alive int, bounds func() []Bound) map[uint64]Over {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.servers == nil {
		return nil
	}
	l.mu.whole = l.mu.whole || now.Sub(l.mu.since) >= learning || alive > 0 && len(l.mu.servers) >= alive
	if !l.mu.whole {
		return nil
	}
	if now.Sub(l.mu.at) < verdictsFor {
		return l.mu.last
	}
	for _, t := range l.mu.servers {
		if now.Sub(t.at) > silentAfter {
			l.leaveOutLocked(t)
		}
	}
	first := l.mu.at.IsZero()
	over, high, full := map[uint64]Over{}, map[string]time.Time{}, map[string]time.Time{}
	for _, b := range bounds() {
		used := int64(0)
		for _, id := range b.Tables {
			used += l.mu.total[id]
		}
		at, was := l.mu.full[b.Key]
		since, before := l.mu.high[b.Key]
		if !before {
			since = now
		}
		if used >= b.Limit {
			high[b.Key] = since
		}
		switch {
		case used >= b.Limit && (first || was || now.Sub(since) >= highFor):
			at = now
		case !was || now.Sub(at) > fullFor:
			continue
		}
		full[b.Key] = at
		for _, id := range b.Tables {
			if _, ok := over[id]; !ok {
				over[id] = Over{Quota: b.Quota, Limit: b.Limit, Used: used}
			}
		}
	}
	l.mu.last, l.mu.high, l.mu.full, l.mu.at = over, high, full, now
	return over
}
