package authz

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// TestAuditFiles: actions are in the file for the rights of their callers, and those that were refused among the refusals, unless they
// were executed. A record of an error that may contain row keys has no text.
func TestAuditFiles(t *testing.T) {
	g := newGuardedServer(t)
	g.rights.Set(t, map[string]acl.Rights{"root": acl.Admin, "ann": 0})
	root, ann, l := userNamed("root"), userNamed("ann"), g.z.Audit
	const row = "secret-row"
	l.Action(root, "by_root", "table a", nil)
	l.Action(nodeNamed("n2"), "by_node", "table b", nil)
	l.Action(ann, "by_ann", "table c", nil)
	l.Action(ann, "refused", "table d", &api.PermissionError{Text: "no right"})
	l.Action(ann, "executed", "table e", &api.PermissionError{Text: "right lost", Executed: true})
	l.ActionOnRows(root, "on_rows", "table f", errors.New("split at "+row))
	l.Refused(ann, "read", "table g", &api.PermissionError{Text: "no right"})
	l.ConnectionRejected("10.0.0.1:1", &pki.ManyConnsError{Name: "bob", Max: 1})
	l.ConnectionRejected("10.0.0.1:2", net.ErrClosed)
	now := time.Now()
	tok := token.New(token.Join, pki.Fingerprint{}, now, time.Hour)
	l.Join(&Subject{}, "join", HostJoin{Node: "n7", Token: tok.Reveal(), From: "10.0.0.7:1"}, nil)
	l.Join(&Subject{}, "join", HostJoin{Node: "n8", Token: "nonsense", From: "10.0.0.8:1"}, &api.IdentityError{Reason: api.IdentityBadToken})
	l.Join(&Subject{}, "join", HostJoin{Node: "n9", Token: tok.Reveal(), From: "10.0.0.9:1"}, api.ErrUnavailable)
	for file, want := range map[string][]string{
		"audit.log": {
			`"name":"root"`, `"action":"by_root","on":"table a","outcome":"done"`, `"action":"by_node","on":"table b","outcome":"done"`,
			`"action":"on_rows","on":"table f","outcome":"failed"`, `"from":"10.0.0.7:1","action":"join","on":"node n7 by token ` + tok.ID().String() + `","outcome":"done"`,
		},
		"table-admins.log": {`"action":"by_ann","on":"table c","outcome":"done"`, `"action":"executed","on":"table e","outcome":"failed"`},
		"refusals.log": {
			`"action":"refused","on":"table d"`, `"action":"read","on":"table g"`, `"name":"bob","from":"10.0.0.1:1","action":"connect"`, `"code":"many_connections"`,
			`"from":"10.0.0.8:1","action":"join"`,
		},
	} {
		log := g.logged(t, file)
		for _, w := range want {
			if !strings.Contains(log, w) {
				t.Errorf("%s has no %s:\n%s", file, w, log)
			}
		}
		for _, not := range []string{row, tok.Reveal(), "10.0.0.9", "10.0.0.1:2"} {
			if strings.Contains(log, not) {
				t.Errorf("%s has %s:\n%s", file, not, log)
			}
		}
	}
}

// TestAuditRecordNotWritten: a record that cannot be written is reported in the node's log.
func TestAuditRecordNotWritten(t *testing.T) {
	g := newGuardedServer(t)
	var log strings.Builder
	g.z.Audit.Log = slog.New(slog.NewTextHandler(&log, nil))
	g.z.Audit.Action(nodeNamed("n2"), "written", "table t", nil)
	if log.Len() > 0 {
		t.Errorf("a record that was written: %s", log.String())
	}
	if err := g.z.Audit.To.Close(); err != nil {
		t.Fatal(err)
	}
	g.z.Audit.Action(nodeNamed("n2"), "lost", "table t", nil)
	if !strings.Contains(log.String(), `msg="audit record not written" principal="node n2" action=lost object="table t"`) {
		t.Errorf("a record that was not: %s", log.String())
	}
}

// TestNoAuditLog: an open node has no audit log, and bounds no actions.
func TestNoAuditLog(t *testing.T) {
	var l *AuditLog
	caller := userNamed("ann")
	l.Action(caller, "a", "b", nil)
	l.ActionOnRows(caller, "a", "b", nil)
	l.Refused(caller, "a", "b", rpc.CodePermissionDenied)
	l.Join(caller, "a", HostJoin{}, nil)
	l.ConnectionRejected("", errors.New("tls"))
	for range 2 * tableActionsBurst {
		if err := l.Admit(caller); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
