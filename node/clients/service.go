package clients

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/metric"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

const (
	// keepFor is how long a process is kept after its last report.
	keepFor = 5 * time.Minute
	// userMax is the number of processes of a user that a node keeps; on an open cluster all have the same user.
	userMax = 256
)

// Service keeps the reports of client processes.
type Service struct {
	name string // of the node

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		processes map[key]*api.ClientProcess
		users     map[string]int // processes of each
		rejected  int64
		sums      api.ClientReport // of all reports since the start
	}
}

// key identifies a process. Processes of two users are never the same, whatever ids they report.
type key struct{ user, id string }

// New returns a service without reports. The name is the node's.
func New(name string) *Service {
	s := &Service{name: name}
	s.mu.processes, s.mu.users = map[key]*api.ClientProcess{}, map[string]int{}
	return s
}

// Register registers the methods of the service.
func (s *Service) Register(r method.Registrar) {
	r.Handle(api.MethodReportClient, rpc.Spawned, authz.Guard{To: authz.Known}, s.report)
	r.HandleNames(api.MethodListClients, 0, authz.Guard{To: authz.Right, Right: acl.Read}, func(context.Context, *api.NamesRequest) (reply.Result, error) {
		return s.List(time.Now()).Append, nil
	})
}

func (s *Service) report(c *rpc.Call) {
	var r api.ReportClientRequest
	if err := r.Decode(&c.Params, c.NumParams); !reply.Begin(c, err, &r.Options) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.rejected++
		return
	}
	user, from := "", c.Peer().Addr.String()
	if caller := authz.SubjectOf(c); caller != nil {
		user, from = caller.Owner(), cmp.Or(caller.From, from)
	}
	if err := s.keep(user, from, &r.Report, time.Now()); err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(nil)
}

// keep keeps a report in place of the last one of its process. The error is a *table.LimitError if the user has too many processes.
func (s *Service) keep(user, from string, r *api.ClientReport, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{user, r.ID}
	if s.mu.processes[k] == nil {
		if err := s.admitLocked(user, now); err != nil {
			s.mu.rejected++
			return err
		}
		s.mu.users[user]++
	}
	s.mu.processes[k] = &api.ClientProcess{ClientReport: *r, User: user, From: from, AtMS: now.UnixMilli()}
	t := &s.mu.sums
	t.Calls, t.Errors, t.Retries, t.Lookups = t.Calls+r.Calls, t.Errors+r.Errors, t.Retries+r.Retries, t.Lookups+r.Lookups
	return nil
}

// admitLocked makes place for another process of a user.
func (s *Service) admitLocked(user string, now time.Time) error {
	s.expireLocked(now)
	if n := s.mu.users[user]; n >= userMax {
		return &table.LimitError{What: "client processes of a user that report to a node", Limit: userMax, Got: int64(n) + 1}
	}
	if len(s.mu.processes) < api.ClientsMax {
		return nil
	}
	most := ""
	for name, n := range s.mu.users {
		if n > s.mu.users[most] || n == s.mu.users[most] && name < most {
			most = name
		}
	}
	var oldest *key
	for k, p := range s.mu.processes {
		if k.user == most && (oldest == nil || p.AtMS < s.mu.processes[*oldest].AtMS) {
			oldest = &k
		}
	}
	s.removeLocked(*oldest)
	return nil
}

// expireLocked forgets processes that no longer report.
func (s *Service) expireLocked(now time.Time) {
	for k, p := range s.mu.processes {
		if now.Sub(time.UnixMilli(p.AtMS)) > keepFor {
			s.removeLocked(k)
		}
	}
}

func (s *Service) removeLocked(k key) {
	delete(s.mu.processes, k)
	if s.mu.users[k.user]--; s.mu.users[k.user] == 0 {
		delete(s.mu.users, k.user)
	}
}

// List returns the processes that reported in the last minutes, in the order of users and names.
func (s *Service) List(now time.Time) *api.ClientProcesses {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked(now)
	l := &api.ClientProcesses{Node: s.name, Rejected: s.mu.rejected, Processes: []api.ClientProcess{}}
	for _, p := range s.mu.processes {
		l.Processes = append(l.Processes, *p)
	}
	slices.SortFunc(l.Processes, func(a, b api.ClientProcess) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return l
}

// Collect sends metrics.
func (s *Service) Collect(m metric.Sender) {
	l := s.List(time.Now())
	slowest := int64(0)
	for i := range l.Processes {
		slowest = max(slowest, l.Processes[i].P99US)
	}
	s.mu.Lock()
	sums := s.mu.sums
	s.mu.Unlock()
	m.Gauge("client_processes", "Client processes that reported to this node in the last 5 minutes.", float64(len(l.Processes)))
	m.Gauge("client_p99_seconds_max", "Highest 99th percentile of the times of reads and writes that a client process reported to this node in the last 5 minutes.", float64(slowest)/1e6)
	m.Counter("client_calls_total", "Calls that client processes reported to this node.", float64(sums.Calls))
	m.Counter("client_errors_total", "Failed calls that client processes reported to this node.", float64(sums.Errors))
	m.Counter("client_retries_total", "Retries of calls that client processes reported to this node.", float64(sums.Retries))
	m.Counter("client_location_lookups_total", "Lookups of tablet locations that client processes reported to this node.", float64(sums.Lookups))
	m.Counter("client_reports_rejected_total", "Reports of client processes that this node rejected.", float64(l.Rejected))
}
