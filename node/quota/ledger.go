package quota

import (
	"sync"
	"time"
)

// Ledger adds up the bytes of tables over all servers, and finds the tables that may not grow. It
// runs on the master, and is safe for concurrent use.
type Ledger struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		epoch    uint64 // the master's epoch
		since    time.Time
		servers  map[string]*serverUsage
		complete bool // all servers have reported, or had the time to
		total    map[uint64]int64
		retained map[string]*retained // by server that is unresponsive or gone
		high     map[string]time.Time // quotas that are exceeded, by key, and since when
		full     map[string]exceeded  // quotas that count as exceeded, by key
		last     map[uint64]Over
		at       time.Time // time of last
		bounds   []Bound   // bounds of last
	}
}

// serverUsage is a server's last report.
type serverUsage struct {
	tables map[uint64]int64 // bytes
	all    map[uint64]int64 // bytes of the same tables on all servers at that time
	at     time.Time
	silent bool // reported too long ago: not in the totals
}

// exceeded is when a quota was last found exceeded, and its limit then.
type exceeded struct {
	at    time.Time
	limit int64
}

// retained is what tables occupied on all servers at the last report of one of them.
type retained struct {
	all   map[uint64]int64
	until time.Time
}

// Bound is a quota of bytes and the tables that it covers.
type Bound struct {
	Key    string
	Quota  string // such as: table "t" bytes
	Limit  int64
	Tables []uint64
}

// Over describes an exceeded quota.
type Over struct {
	Quota       string
	Limit, Used int64
}

const (
	// fullFor is how long a quota counts as exceeded after it no longer is, unless it is raised.
	// While a tablet moves, neither of two servers may have reported it.
	fullFor = 3 * time.Second
	// highFor is how long a quota must be exceeded before it counts. While a tablet moves, both
	// servers may have reported it.
	highFor = 1500 * time.Millisecond
	// usageTimeout is the age at which a server's report no longer counts: most likely other servers
	// have its tablets and report them.
	usageTimeout = 1500 * time.Millisecond
	// retainFor is how long tables count as no smaller than at the last report of an unresponsive
	// server, unless it reports again. It is longer than the reassignment of its tablets takes.
	// Adding its last report to the other servers' reports would count tablets twice.
	retainFor = 2 * time.Minute
	// verdictsFor is how long a result of Over is reused: each report of a server asks for it.
	verdictsFor = 250 * time.Millisecond
)

// Note records a server's report of the bytes of its tables. A new epoch discards all state.
func (l *Ledger) Note(now time.Time, epoch uint64, server string, tables map[uint64]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.servers == nil || l.mu.epoch != epoch {
		l.mu.epoch, l.mu.since, l.mu.at, l.mu.complete = epoch, now, time.Time{}, false
		l.mu.servers, l.mu.total, l.mu.retained = map[string]*serverUsage{}, map[uint64]int64{}, map[string]*retained{}
		l.mu.high, l.mu.full = map[string]time.Time{}, map[string]exceeded{}
	}
	l.excludeLocked(l.mu.servers[server])
	delete(l.mu.retained, server)
	t := &serverUsage{tables: tables, all: make(map[uint64]int64, len(tables)), at: now}
	l.mu.servers[server] = t
	for id, n := range tables {
		l.mu.total[id] += n
		t.all[id] = l.mu.total[id]
	}
}

// retainLocked retains what tables occupied at the last report of a server that is about to be
// excluded: other servers may now report its tablets.
func (l *Ledger) retainLocked(now time.Time, server string) {
	if t := l.mu.servers[server]; t != nil && !t.silent {
		l.mu.retained[server] = &retained{t.all, now.Add(retainFor)}
	}
}

// minimumsLocked returns the least bytes that tables count for, and drops expired retentions.
func (l *Ledger) minimumsLocked(now time.Time) map[uint64]int64 {
	least := map[uint64]int64{}
	for server, k := range l.mu.retained {
		if !now.Before(k.until) {
			delete(l.mu.retained, server)
			continue
		}
		for id, n := range k.all {
			least[id] = max(least[id], n)
		}
	}
	return least
}

// excludeLocked removes a server's report from the totals.
func (l *Ledger) excludeLocked(t *serverUsage) {
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

// Reset discards all state.
func (l *Ledger) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.servers = nil
}

// Forget removes a server that no longer serves.
func (l *Ledger) Forget(now time.Time, server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retainLocked(now, server)
	l.excludeLocked(l.mu.servers[server])
	delete(l.mu.servers, server)
}

// Servers returns the servers that have reported.
func (l *Ledger) Servers() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.mu.servers {
		all = append(all, s)
	}
	return all
}

// Over returns the tables that may not grow, each with the exceeded quota. It returns nil while a
// new master has not heard from all servers: then earlier results remain in force. Alive is the
// number of servers believed alive, 0 if unknown. The first result applies at once; later a quota
// must be exceeded for highFor.
func (l *Ledger) Over(now time.Time, alive int, bounds []Bound) map[uint64]Over {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.servers == nil {
		return nil
	}
	l.mu.complete = l.mu.complete || now.Sub(l.mu.since) >= learnPeriod || alive > 0 && len(l.mu.servers) >= alive
	if !l.mu.complete {
		return nil
	}
	if now.Sub(l.mu.at) < verdictsFor && sameBounds(bounds, l.mu.bounds) {
		return l.mu.last
	}
	for server, t := range l.mu.servers {
		if now.Sub(t.at) > usageTimeout {
			l.retainLocked(now, server)
			l.excludeLocked(t)
		}
	}
	least := l.minimumsLocked(now)
	first := l.mu.at.IsZero()
	over, high, full := map[uint64]Over{}, map[string]time.Time{}, map[string]exceeded{}
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
			last = exceeded{now, b.Limit}
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

// sameBounds reports whether both are the same slice: a change of bounds makes a new one.
func sameBounds(a, b []Bound) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
