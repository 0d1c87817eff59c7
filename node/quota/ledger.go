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
		kept    map[string]*kept     // of servers that have fallen silent, or are gone
		high    map[string]time.Time // quotas whose tables take too much, by key, with since when
		full    map[string]seen      // quotas that are used up, by key
		last    map[uint64]Over
		at      time.Time // of last
		bounds  []Bound   // that it is of
	}
}

// told is what a server has told last.
type told struct {
	tables map[uint64]int64 // bytes
	all    map[uint64]int64 // bytes of the same tables on all servers then
	at     time.Time
	silent bool // too long ago: it is not in the totals
}

// seen is when a quota was last seen to be used up, and what it was.
type seen struct {
	at    time.Time
	limit int64
}

// kept is what tables took on all servers when one of them has told last.
type kept struct {
	all   map[uint64]int64
	until time.Time
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
	// fullFor is how long a quota counts as used up after it was, unless it is raised. While a tablet is moved neither of two
	// servers may have told of it.
	fullFor = 3 * time.Second
	// highFor is how long tables must have taken too much until the quota counts as used up: while a tablet is moved both
	// servers may have told of it.
	highFor = 1500 * time.Millisecond
	// silentAfter is when what a server has told is added no more: others have its tablets, most likely, and tell of them.
	silentAfter = 1500 * time.Millisecond
	// keptFor is how long tables count as no smaller than they were with the server that has fallen silent, unless it tells again:
	// longer than its tablets take to be others'. Added to what those tell they would count twice.
	keptFor = 2 * time.Minute
	// verdictsFor is how long verdicts are not made anew: each report of a server asks for them.
	verdictsFor = 250 * time.Millisecond
)

// Note takes what a server says that its tables take. A mastership with another epoch begins anew.
func (l *Ledger) Note(now time.Time, epoch uint64, server string, tables map[uint64]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.servers == nil || l.mu.epoch != epoch {
		l.mu.epoch, l.mu.since, l.mu.at, l.mu.whole = epoch, now, time.Time{}, false
		l.mu.servers, l.mu.total, l.mu.kept = map[string]*told{}, map[uint64]int64{}, map[string]*kept{}
		l.mu.high, l.mu.full = map[string]time.Time{}, map[string]seen{}
	}
	l.leaveOutLocked(l.mu.servers[server])
	delete(l.mu.kept, server)
	t := &told{tables: tables, all: make(map[uint64]int64, len(tables)), at: now}
	l.mu.servers[server] = t
	for id, n := range tables {
		l.mu.total[id] += n
		t.all[id] = l.mu.total[id]
	}
}

// keepLocked notes what tables took when a server has told last, which is about to be left out: by now others may tell of
// its tablets, too.
func (l *Ledger) keepLocked(now time.Time, server string) {
	if t := l.mu.servers[server]; t != nil && !t.silent {
		l.mu.kept[server] = &kept{t.all, now.Add(keptFor)}
	}
}

// leastLocked returns what tables count for at least, and forgets what was kept for long.
func (l *Ledger) leastLocked(now time.Time) map[uint64]int64 {
	least := map[uint64]int64{}
	for server, k := range l.mu.kept {
		if !now.Before(k.until) {
			delete(l.mu.kept, server)
			continue
		}
		for id, n := range k.all {
			least[id] = max(least[id], n)
		}
	}
	return least
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
func (l *Ledger) Forget(now time.Time, server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepLocked(now, server)
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
func (l *Ledger) Over(now time.Time, alive int, bounds []Bound) map[uint64]Over {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.servers == nil {
		return nil
	}
	l.mu.whole = l.mu.whole || now.Sub(l.mu.since) >= learning || alive > 0 && len(l.mu.servers) >= alive
	if !l.mu.whole {
		return nil
	}
	if now.Sub(l.mu.at) < verdictsFor && sameBounds(bounds, l.mu.bounds) {
		return l.mu.last
	}
	for server, t := range l.mu.servers {
		if now.Sub(t.at) > silentAfter {
			l.keepLocked(now, server)
			l.leaveOutLocked(t)
		}
	}
	least := l.leastLocked(now)
	first := l.mu.at.IsZero()
	over, high, full := map[uint64]Over{}, map[string]time.Time{}, map[string]seen{}
	for _, b := range bounds {
		used := int64(0)
		for _, id := range b.Tables {
			used += max(l.mu.total[id], least[id])
		}
		last, was := l.mu.full[b.Key]
		since, before := l.mu.high[b.Key]
		if !before {
			since = now
		}
		if used >= b.Limit {
			high[b.Key] = since
		}
		switch {
		case used >= b.Limit && (first || was || now.Sub(since) >= highFor):
			last = seen{now, b.Limit}
		case !was || now.Sub(last.at) > fullFor || b.Limit > last.limit:
			continue
		}
		full[b.Key] = last
		for _, id := range b.Tables {
			if _, ok := over[id]; !ok {
				over[id] = Over{Quota: b.Quota, Limit: b.Limit, Used: used}
			}
		}
	}
	l.mu.last, l.mu.high, l.mu.full, l.mu.at, l.mu.bounds = over, high, full, now, bounds
	return over
}

// sameBounds tells whether two lists are one: whoever changes a bound makes a new list.
func sameBounds(a, b []Bound) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
