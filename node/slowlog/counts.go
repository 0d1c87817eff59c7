package slowlog

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
)

// Bounds of what is counted: a user with requests to many tables, or many users, must not use up the memory.
const (
	countsPerMinute = 256 // beyond it, requests are counted without user and table
	countsPerUser   = 32  // beyond it, those of the user are counted without table
	errorTextMax    = 200
)

// kind is what counted requests have in common. code is empty for slow ones, however they ended.
type kind struct{ method, code, table, user string }

// tally is how many requests of a kind there were.
type tally struct {
	n       int64
	lastMS  int64
	message string // of the last
	took    time.Duration
	longest time.Duration
	row     []byte // of the longest
	trace   string // likewise
}

// add adds requests that were later, if their last was.
func (x *tally) add(y *tally) {
	x.n += y.n
	x.took += y.took
	if y.lastMS >= x.lastMS {
		x.lastMS, x.message = y.lastMS, y.message
	}
	if y.longest >= x.longest {
		x.longest, x.row, x.trace = y.longest, y.row, y.trace
	}
}

// counts counts requests by kind and by the minute. It is safe for concurrent use.
type counts struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		minutes [api.ErrorMinutes]minute // by the minute since 1970, modulo their number
	}
}

// minute has the requests of one minute.
type minute struct {
	at    int64 // since 1970
	kinds map[kind]*tally
	users map[string]int // number of kinds by user
}

// CountError is for rpc.ServerConfig.Failed.
func (l *Log) CountError(s *rpc.TracedCall) {
	caller := subject(s.Identity)
	if caller != nil && !caller.Restricted() || strings.Contains(s.Method, ".") { // a node's, or of the lock service
		return
	}
	k := kind{method: s.Method, code: s.Err.Code.String()}
	if caller != nil {
		k.user = short(caller.Owner())
	}
	if shape, known := shapes[s.Method]; known {
		if k.table, _ = shape.names(s); shape == ofCursor {
			k.table = short(s.Trace.Table())
		}
	}
	message := s.Err.Message
	if len(message) > errorTextMax {
		message = message[:errorTextMax]
	}
	now := time.Now()
	l.errors.add(k, &tally{n: 1, lastMS: now.UnixMilli(), message: message}, now)
}

// countSlow counts a request that took long.
func (l *Log) countSlow(t *api.Trace, now time.Time) {
	l.slow.add(kind{method: t.Method, table: t.Table, user: t.User}, &tally{n: 1, lastMS: t.EndMS, took: t.Took, longest: t.Took, row: t.Row, trace: t.Trace}, now)
}

// add adds requests of a kind.
func (x *counts) add(k kind, more *tally, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := &x.mu.minutes[now.Unix()/60%api.ErrorMinutes]
	if m.at != now.Unix()/60 {
		*m = minute{now.Unix() / 60, map[kind]*tally{}, map[string]int{}}
	}
	m.of(k).add(more)
}

// of returns the tally of a kind, or of more kinds if there are too many.
func (m *minute) of(k kind) *tally {
	for range 3 {
		if n := m.kinds[k]; n != nil {
			return n
		}
		switch {
		case len(m.kinds) >= countsPerMinute && (k.table != api.ErrorsOther || k.user != api.ErrorsOther):
			k.table, k.user = api.ErrorsOther, api.ErrorsOther
			continue
		case m.users[k.user] >= countsPerUser && k.table != "" && k.table != api.ErrorsOther:
			k.table = api.ErrorsOther
			continue
		}
		break
	}
	n := &tally{}
	m.kinds[k] = n
	m.users[k.user]++
	return n
}

// sums returns the requests of the last minutes by kind.
func (x *counts) sums(now time.Time) map[kind]*tally {
	sums := map[kind]*tally{}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.mu.minutes {
		m := &x.mu.minutes[i]
		if now.Unix()/60-m.at >= api.ErrorMinutes {
			continue
		}
		for k, n := range m.kinds {
			if sums[k] == nil {
				sums[k] = &tally{}
			}
			sums[k].add(n)
		}
	}
	return sums
}

// errorCounts returns the requests that failed, the most frequent first.
func (l *Log) errorCounts(now time.Time) []api.ErrorCount {
	all := []api.ErrorCount{}
	for k, n := range l.errors.sums(now) {
		all = append(all, api.ErrorCount{Method: k.method, Code: k.code, Table: k.table, User: k.user, N: n.n, LastMS: n.lastMS, Message: strings.ToValidUTF8(n.message, "")})
	}
	slices.SortFunc(all, func(a, b api.ErrorCount) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Method+a.Code, b.Method+b.Code), cmp.Compare(a.Table, b.Table), cmp.Compare(a.User, b.User))
	})
	return all[:min(len(all), api.ErrorsMax)]
}

// slowCounts returns the requests that took long, those that took the most time together first.
func (l *Log) slowCounts(now time.Time) []api.SlowCount {
	all := []api.SlowCount{}
	for k, n := range l.slow.sums(now) {
		all = append(all, api.SlowCount{Method: k.method, Table: k.table, User: k.user, N: n.n, LastMS: n.lastMS, Took: n.took, Longest: n.longest, Row: n.row, Trace: n.trace})
	}
	slices.SortFunc(all, func(a, b api.SlowCount) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Method, b.Method), cmp.Compare(a.Table, b.Table), cmp.Compare(a.User, b.User))
	})
	return all[:min(len(all), api.ErrorsMax)]
}
