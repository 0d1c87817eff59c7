package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/node/namespace"

	"github.com/steledb/stele/node/reply"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// authorizer decides what callers may do: it admits or rejects calls by the guards of methods and the rights of subjects.
type authorizer struct {
	open        bool // without certificates: all callers may do everything
	ctx         context.Context
	limits      *table.Limits
	guards      map[string]guard
	rights      *rights   // nil on an open node
	audit       *auditLog // nil on an open node
	meta        *namespace.Access
	checkLeader func() error // returns an error while the lock service has no leader
	serving     func() error // returns an error until the node serves
}

// admitter returns the function that admits calls of a method; nil on an open node, which admits all.
func (z *authorizer) admitter(method string) func(*rpc.Call) error {
	g, ok := z.guards[method]
	if !ok {
		panic(fmt.Sprintf("BUG: method %q has no guard", method))
	}
	if z.open || g.to == strangers {
		return nil
	}
	return func(c *rpc.Call) error { return z.admitCall(c, method, &g) }
}

// admitCall admits a call or returns the error that rejects it. If the rights behind the decision change before the answer, they are
// checked again.
func (z *authorizer) admitCall(c *rpc.Call, method string, g *guard) error {
	caller := subjectOf(c)
	switch {
	case caller == nil: // the connection came from an unknown listener
		return api.ToRPC(errStranger)
	case caller.peer.Kind == pki.Node:
		return nil
	case caller.identity().Kind != pki.Principal:
		return z.refuse(method, caller, errStranger)
	}
	switch g.to {
	case nodes:
		return z.refuse(method, caller, &api.PermissionError{Method: method, Text: method + " is for nodes of the cluster alone"})
	case own:
		return nil
	}
	if err := z.serving(); err != nil {
		return err
	}
	name := ""
	if g.to == ofTable || g.to == rightOfTable {
		d := c.Params
		if name = d.Str(); d.Err() != nil {
			return api.ToRPC(d.Err())
		}
	}
	t, err := z.may(caller, g, name)
	if err == nil && g.to == rightOfTable && g.change() {
		err = z.audit.admit(caller)
	}
	if err != nil {
		return z.refuse(method, caller, err)
	}
	subject := g.auditSubject(c)
	c.OnAnswer(func(err error) error {
		if err == nil && !z.rights.holds(caller, t) {
			if lost := z.stillMay(caller, g, method, name); lost != nil {
				err = reply.ToAPI(lost)
			}
		}
		if g.change() && !g.selfAudited {
			z.audit.action(caller, method, subject, err)
		}
		return err
	})
	return nil
}

// may reports whether a principal may call a method with that guard. Errors: those of rights.ask, api.ErrNoTable.
func (z *authorizer) may(caller *subject, g *guard, name string) (acl.Ticket, error) {
	if z.checkLeader() != nil { // a caller that waited would only learn that its deadline passed
		return acl.Ticket{}, z.checkLeader()
	}
	switch {
	case g.to == known, name == metadata.Name && g.to == ofTable:
		return z.rights.known(z.ctx, caller)
	case g.to == right, name == metadata.Name:
		return z.rights.check(z.ctx, caller, g.right)
	}
	v, t, err := z.seeTable(z.ctx, caller, name)
	if err == nil && g.to == rightOfTable {
		err = elementPermission(v.CheckTable(g.right))
	}
	return t, err
}

// seeTable returns a table other than METADATA as a principal sees it. Errors: those of rights.ask, api.ErrNoTable.
func (z *authorizer) seeTable(ctx context.Context, caller *subject, name string) (*acl.View, acl.Ticket, error) {
	s, err := z.schemaFor(ctx, name)
	if err != nil {
		return nil, acl.Ticket{}, err
	}
	v, t, err := z.rights.view(ctx, caller, s)
	if err == nil && v.CheckSeen() != nil {
		err = namespace.NoSuchTable(name)
	}
	return v, t, err
}

// schemaFor reads a table's schema for a check of rights.
func (z *authorizer) schemaFor(ctx context.Context, name string) (*table.Schema, error) {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	s, _, err := namespace.ReadSchema(ctx, z.meta.Current(), name)
	if err != nil && !errors.Is(err, api.ErrNoTable) {
		err = z.rights.recode(err)
	}
	return s, err
}

// stillMay returns nil if the result of a call may be returned although rights have changed since the call was admitted.
func (z *authorizer) stillMay(caller *subject, g *guard, method, name string) error {
	switch method {
	case api.MethodDropTable: // its grants are dropped with it
		return nil
	case api.MethodGrant, api.MethodRevoke, api.MethodRevokeUser, api.MethodRemoveUser, api.MethodDisableUser: // the caller may have changed its own rights
		return nil
	}
	_, err := z.may(caller, g, name)
	var denied *api.PermissionError
	switch {
	case err == nil && (g.to == known || g.to == ofTable):
		return errRightsMoved // the result depends on them
	case err == nil || !g.change():
		return err
	case errors.As(err, &denied):
		lost := *denied
		lost.Executed = true
		return &lost
	case errors.Is(err, api.ErrUnauthenticated), errors.Is(err, api.ErrNoTable):
		return &api.PermissionError{Table: name, Right: g.right.String(), Executed: true, Text: err.Error()}
	}
	return reply.Recode(api.ErrOutcomeUnknown, err)
}

var errRightsMoved = fmt.Errorf("%w: rights have changed meanwhile; retry", api.ErrUnavailable)

// refuse returns err in its API form. If access was denied, or the caller is unknown, it is logged in the audit log.
func (z *authorizer) refuse(method string, caller *subject, err error) error {
	if reply.IsRefusal(err) {
		z.audit.refused(caller, method, "", err)
	}
	return reply.ToAPI(err)
}

// administers returns nil if a principal administers a table, or the cluster if tableName is empty, and the table's schema.
func (z *authorizer) administers(ctx context.Context, caller *subject, tableName string) (s *table.Schema, t acl.Ticket, err error) {
	if z.open {
		return nil, t, api.ErrOpenCluster
	}
	if tableName == metadata.Name {
		return nil, t, fmt.Errorf("rights on %s are those on the cluster: %w", metadata.Name, api.ErrSystemTable)
	}
	if !caller.restricted() {
		if tableName != "" {
			s, err = z.schemaFor(ctx, tableName)
		}
		return s, t, err
	}
	if tableName == "" {
		t, err = z.rights.check(ctx, caller, acl.Admin)
		return nil, t, err
	}
	v, t, err := z.seeTable(ctx, caller, tableName)
	if err != nil {
		return nil, t, err
	}
	return v.Schema(), t, elementPermission(v.CheckTable(acl.Admin))
}

// reauthorize returns nil if the subject is still authorized to make the change. The caller holds n.changes.running, so no right is
// revoked before the change has been made.
func (z *authorizer) reauthorize(ctx context.Context, a changeRequest) error {
	if a.caller == nil {
		return errNoSubject
	}
	if !a.caller.restricted() {
		return nil
	}
	var err error
	switch g := z.guards[a.method]; g.to {
	case right, rightOfTable:
		_, err = z.may(a.caller, &g, a.name)
	default: // methods that check rights themselves
		_, _, err = z.administers(ctx, a.caller, a.name)
	}
	return err
}

// administersCluster reports whether the subject is a node or known to be an administrator of the cluster.
func (z *authorizer) administersCluster(caller *subject) bool {
	if !caller.restricted() {
		return true
	}
	_, err := z.rights.check(z.ctx, caller, acl.Admin)
	return err == nil
}
