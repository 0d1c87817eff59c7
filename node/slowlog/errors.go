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

// Bounds of what is kept of failed requests: a user who fails with many tables, or many users, must not use up the memory.
const (
	errorsPerMinute = 256 // beyond it, failures are counted without user and table
	errorsPerUser   = 32  // beyond it, those of the user are counted without table
	errorTextMax    = 200
)

// failure is what failed requests have in common.
type failure struct{ method, code, table, user string }

// failures counts failed requests by the minute. It is safe for concurrent use.
type failures struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		minutes [api.ErrorMinutes]errorMinute // by the minute since 1970, modulo their number
	}
}

// errorMinute has the failures of one minute.
type errorMinute struct {
	minute int64 // since 1970
	counts map[failure]*api.ErrorCount
	users  map[string]int // number of counts by user
}

// CountError is for rpc.ServerConfig.Failed.
func (l *Log) CountError(s *rpc.TracedCall) {
	caller := subject(s.Identity)
	if caller != nil && !caller.Restricted() || strings.Contains(s.Method, ".") { // a node's, or of the lock service
		return
	}
	f := failure{method: s.Method, code: s.Err.Code.String()}
	if caller != nil {
		f.user = short(caller.Owner())
	}
	if shape, known := shapes[s.Method]; known {
		if f.table, _ = shape.names(s); shape == ofCursor {
			f.table = short(s.Trace.Table())
		}
	}
	l.failures.add(f, s.Err.Message, time.Now())
}

// add counts a failure.
func (x *failures) add(f failure, message string, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := &x.mu.minutes[now.Unix()/60%api.ErrorMinutes]
	if m.minute != now.Unix()/60 {
		*m = errorMinute{now.Unix() / 60, map[failure]*api.ErrorCount{}, map[string]int{}}
	}
	n := m.of(f)
	n.N++
	n.LastMS = now.UnixMilli()
	if len(message) > errorTextMax {
		message = message[:errorTextMax]
	}
	n.Message = message
}

// of returns the count of a failure, or of more failures if there are too many.
func (m *errorMinute) of(f failure) *api.ErrorCount {
	for range 3 {
		if n := m.counts[f]; n != nil {
			return n
		}
		switch {
		case len(m.counts) >= errorsPerMinute && (f.table != api.ErrorsOther || f.user != api.ErrorsOther):
			f.table, f.user = api.ErrorsOther, api.ErrorsOther
			continue
		case m.users[f.user] >= errorsPerUser && f.table != "" && f.table != api.ErrorsOther:
			f.table = api.ErrorsOther
			continue
		}
		break
	}
	n := &api.ErrorCount{Method: f.method, Code: f.code, Table: f.table, User: f.user}
	m.counts[f] = n
	m.users[f.user]++
	return n
}

// counts returns the failures of the last minutes, the most frequent first.
func (x *failures) counts(now time.Time) []api.ErrorCount {
	sums := map[failure]*api.ErrorCount{}
	x.mu.Lock()
	for i := range x.mu.minutes {
		m := &x.mu.minutes[i]
		if now.Unix()/60-m.minute >= api.ErrorMinutes {
			continue
		}
		for f, n := range m.counts {
			sum := sums[f]
			if sum == nil {
				sum = &api.ErrorCount{Method: n.Method, Code: n.Code, Table: n.Table, User: n.User}
				sums[f] = sum
			}
			if sum.N += n.N; n.LastMS >= sum.LastMS {
				sum.LastMS, sum.Message = n.LastMS, n.Message
			}
		}
	}
	x.mu.Unlock()
	all := []api.ErrorCount{}
	for _, n := range sums {
		n.Message = strings.ToValidUTF8(n.Message, "")
		all = append(all, *n)
	}
	slices.SortFunc(all, func(a, b api.ErrorCount) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Method+a.Code, b.Method+b.Code), cmp.Compare(a.Table, b.Table), cmp.Compare(a.User, b.User))
	})
	return all[:min(len(all), api.ErrorsMax)]
}
