// Package auditlog serves the last lines of the node's audit logs to administrators of the cluster, so that they need no access to its files. The whole logs
// stay in the files, where package security/audit verifies them. The paper has no audit log. The package starts no goroutine.
package auditlog

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// Service serves the node's audit logs.
type Service struct {
	Name  string // the node's
	Authz *authz.Authorizer
}

// Register registers the method of the service.
func (s Service) Register(r method.Registrar) {
	r.HandleNames(api.MethodAuditLog, 1, authz.Guard{To: authz.Right, Right: acl.Admin, About: authz.Always("the audit log")}, s.recent)
}

// recent returns the last lines of a log. An open node has none.
func (s Service) recent(_ context.Context, r *api.NamesRequest) (reply.Result, error) {
	lines := &api.AuditLines{Node: s.Name}
	if s.Authz.Audit != nil {
		var err error
		if lines.Lines, err = s.Authz.Audit.To.Recent(r.Names[0], api.AuditLinesMax); err != nil {
			return nil, rpc.Errorf(rpc.CodeBadRequest, "%s: %v", api.MethodAuditLog, err)
		}
	}
	return lines.Append, nil
}
