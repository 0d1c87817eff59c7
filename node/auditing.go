package node

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/steledb/stele/node/reply"

	"golang.org/x/time/rate"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/audit"
	"github.com/steledb/stele/security/token"
)

// auditLog is the node's audit log; nil, which writes nothing, on an open node.
type auditLog struct {
	to  *audit.Log
	log *slog.Logger
	// isAdmin reports whether a subject is an administrator of the cluster, or a node.
	isAdmin func(*subject) bool
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

// take counts one action of a user, or returns an *api.OverloadedError.
func (r *actionRates) take(user string, now time.Time) error {
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

// admit counts an action against the rate of a user that does not administer the cluster. It is called before the action.
func (l *auditLog) admit(caller *subject) error {
	if l == nil || l.isAdmin(caller) {
		return nil
	}
	return l.rates.take(caller.owner(), time.Now())
}

func (l *auditLog) close() error {
	if l == nil {
		return nil
	}
	return l.to.Close()
}

func auditRecord(caller *subject, action, on string, err error) audit.Record {
	r := audit.Record{Who: caller.identity(), From: caller.from, Action: action, On: on, Outcome: audit.Done}
	if err != nil {
		e := rpc.AsError(reply.ToAPI(err))
		r.Outcome, r.Code, r.Text = audit.Failed, e.Code.String(), e.Message
	}
	return r
}

// hostJoin is a request of a host to join the cluster.
type hostJoin struct {
	node, token string
	from        string // the host's address
}

// join records that a host joined, or was refused.
func (l *auditLog) join(caller *subject, action string, j hostJoin, err error) {
	if l == nil || errors.Is(api.FromRPC(err), api.ErrUnavailable) {
		return
	}
	t, _ := token.Parse(j.token)
	rec := auditRecord(caller, action, fmt.Sprintf("node %.64s by token %s", j.node, t.ID()), err)
	rec.From = j.from
	if err != nil { // any client can cause many of them
		l.to.Refusal(rec)
		return
	}
	l.logged(rec, l.to.Action(rec))
}

// refused records a refusal. It does not wait for the disk.
func (l *auditLog) refused(caller *subject, action, on string, err error) {
	if l != nil {
		l.to.Refusal(auditRecord(caller, action, on, err))
	}
}

// action records an action of an administrator.
func (l *auditLog) action(caller *subject, action, on string, err error) {
	if l != nil {
		l.write(caller, auditRecord(caller, action, on, err), err)
	}
}

// actionOnRows is action for errors that may contain row keys: it records only the code of an error.
func (l *auditLog) actionOnRows(caller *subject, action, on string, err error) {
	if l != nil {
		r := auditRecord(caller, action, on, err)
		r.Text = ""
		l.write(caller, r, err)
	}
}

// write records an action in the file for its subject's rights. A refused action changed nothing and is recorded as a refusal,
// because any user can cause it.
func (l *auditLog) write(caller *subject, r audit.Record, err error) {
	var denied *api.PermissionError
	switch {
	case err != nil && reply.IsRefusal(err) && !(errors.As(api.FromRPC(err), &denied) && denied.Executed):
		l.to.Refusal(r)
	case l.isAdmin(caller):
		l.logged(r, l.to.Action(r))
	default:
		l.logged(r, l.to.TableAction(r))
	}
}

func (l *auditLog) logged(r audit.Record, err error) {
	if err != nil {
		l.log.Error("audit record not written", "principal", r.Who, "action", r.Action, "object", r.On, "err", err)
	}
}
