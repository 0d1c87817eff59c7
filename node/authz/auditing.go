package authz

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/audit"
	"github.com/steledb/stele/security/token"
	"golang.org/x/time/rate"
)

// AuditLog is the node's audit log; nil, which writes nothing, on an open node.
type AuditLog struct {
	To  *audit.Log
	Log *slog.Logger
	// IsAdmin reports whether a subject is an administrator of the cluster, or a node.
	IsAdmin func(*Subject) bool
	rates   actionRates
}

const (
	// tableActionsRate and tableActionsBurst bound the actions of a user that administers tables but not the cluster: each is a line of
	// the audit log and an fsync. At this rate a user fills less than 40 MiB a day.
	tableActionsRate  = rate.Limit(1)
	tableActionsBurst = 120
	// tableAdminsMax bounds the number of users with a rate of their own.
	tableAdminsMax = 10_000
)

// actionRates holds the rates of users who administer tables. The zero value is ready.
type actionRates struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		users map[string]*rate.Limiter
	}
}

// Take counts one action of a user, or returns an *api.OverloadedError.
func (r *actionRates) Take(user string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.mu.users[user]
	if l == nil {
		if len(r.mu.users) >= tableAdminsMax || r.mu.users == nil {
			r.mu.users = map[string]*rate.Limiter{}
		}
		l = rate.NewLimiter(tableActionsRate, tableActionsBurst)
		r.mu.users[user] = l
	}
	if l.AllowN(now, 1) {
		return nil
	}
	return &api.OverloadedError{Reason: fmt.Sprintf("user %s changes tables or rights more than once a second", user), RetryAfter: time.Second}
}

// Admit counts an action against the rate of a user that does not administer the cluster. It is called before the action.
func (l *AuditLog) Admit(caller *Subject) error {
	if l == nil || l.IsAdmin(caller) {
		return nil
	}
	return l.rates.Take(caller.Owner(), time.Now())
}

// Close closes the audit log. l may be nil.
func (l *AuditLog) Close() error {
	if l == nil {
		return nil
	}
	return l.To.Close()
}

func auditRecord(caller *Subject, action, on string, err error) audit.Record {
	r := audit.Record{Requester: caller.Identity(), From: caller.From, Action: action, On: on, Outcome: audit.Done}
	if err != nil {
		e := rpc.AsError(reply.ToAPI(err))
		r.Outcome, r.Code, r.Text = audit.Failed, e.Code.String(), e.Message
	}
	return r
}

// HostJoin is a request of a host to join the cluster.
type HostJoin struct {
	Node, Token string
	From        string // the host's address
}

// Join records that a host joined, or was refused.
func (l *AuditLog) Join(caller *Subject, action string, j HostJoin, err error) {
	if l == nil || errors.Is(api.FromRPC(err), api.ErrUnavailable) {
		return
	}
	t, _ := token.Parse(j.Token)
	rec := auditRecord(caller, action, fmt.Sprintf("node %.64s by token %s", j.Node, t.ID()), err)
	rec.From = j.From
	if err != nil { // any client can cause many of them
		l.To.Refusal(rec)
		return
	}
	l.logged(rec, l.To.Action(rec))
}

// Refused records a refusal. It does not wait for the disk.
func (l *AuditLog) Refused(caller *Subject, action, on string, err error) {
	if l != nil {
		l.To.Refusal(auditRecord(caller, action, on, err))
	}
}

// Action records an action of an administrator.
func (l *AuditLog) Action(caller *Subject, action, on string, err error) {
	if l != nil {
		l.write(caller, auditRecord(caller, action, on, err), err)
	}
}

// ActionOnRows is action for errors that may contain row keys: it records only the code of an error.
func (l *AuditLog) ActionOnRows(caller *Subject, action, on string, err error) {
	if l != nil {
		r := auditRecord(caller, action, on, err)
		r.Text = ""
		l.write(caller, r, err)
	}
}

// write records an action in the file for its subject's rights. A refused action changed nothing and is recorded as a refusal,
// because any user can cause it.
func (l *AuditLog) write(caller *Subject, r audit.Record, err error) {
	var denied *api.PermissionError
	switch {
	case err != nil && reply.IsRefusal(err) && !(errors.As(api.FromRPC(err), &denied) && denied.Executed):
		l.To.Refusal(r)
	case l.IsAdmin(caller):
		l.logged(r, l.To.Action(r))
	default:
		l.logged(r, l.To.TableAction(r))
	}
}

func (l *AuditLog) logged(r audit.Record, err error) {
	if err != nil {
		l.Log.Error("audit record not written", "principal", r.Requester, "action", r.Action, "object", r.On, "err", err)
	}
}
