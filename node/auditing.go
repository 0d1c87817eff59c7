package node

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/audit"
	"github.com/steledb/stele/security/token"
)

// auditLog is the node's audit log; nil, which writes nothing, on an open node.
type auditLog struct {
	to  *audit.Log
	log *slog.Logger
}

// auditFolder is below the folder of keys.
const auditFolder = "audit"

// openAudit opens the node's audit log.
func (n *Node) openAudit(node string) error {
	if n.cfg.Security == "" {
		return nil
	}
	log := n.log.With("part", "audit")
	to, err := audit.Open(audit.Config{Dir: filepath.Join(n.cfg.Security, auditFolder), Node: node, Logger: log})
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	n.audit = &auditLog{to, log}
	return nil
}

func (l *auditLog) close() error {
	if l == nil {
		return nil
	}
	return l.to.Close()
}

func auditRecord(who *subject, action, on string, err error) audit.Record {
	r := audit.Record{Who: who.who(), From: who.from, Action: action, On: on, Outcome: audit.Done}
	if err != nil {
		e := rpc.AsError(toAPI(err))
		r.Outcome, r.Code, r.Text = audit.Failed, e.Code.String(), e.Message
	}
	return r
}

// join notes that a host has become a node, or was refused.
func (l *auditLog) join(who *subject, r *joinRequest, err error) {
	if l == nil || errors.Is(api.FromRPC(err), api.ErrUnavailable) {
		return
	}
	t, _ := token.Parse(r.text)
	rec := auditRecord(who, methodJoinToken, fmt.Sprintf("node %.64s by token %s", r.node, t.ID()), err)
	rec.From = r.from
	if err != nil { // anybody can make many of those
		l.to.Refusal(rec)
		return
	}
	l.write(rec)
}

// refused notes that somebody was refused. It waits for nothing.
func (l *auditLog) refused(who *subject, action, on string, err error) {
	if l != nil {
		l.to.Refusal(auditRecord(who, action, on, err))
	}
}

// action writes down what somebody did, or tried to.
func (l *auditLog) action(who *subject, action, on string, err error) {
	if l != nil {
		l.write(auditRecord(who, action, on, err))
	}
}

// actionOnRows is action of what errors may name rows of, which are not written there: of an error there is the code alone.
func (l *auditLog) actionOnRows(who *subject, action, on string, err error) {
	if l != nil {
		r := auditRecord(who, action, on, err)
		r.Text = ""
		l.write(r)
	}
}

func (l *auditLog) write(r audit.Record) {
	if err := l.to.Action(r); err != nil {
		l.log.Error("an action was not written to the audit log", "who", r.Who, "action", r.Action, "on", r.On, "error", err)
	}
}
