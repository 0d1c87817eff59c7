package authz

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// Authorizer decides what callers may do: it admits or rejects calls by the guards of methods and the rights of subjects.
type Authorizer struct {
	Open        bool // without certificates: all callers may do everything
	Ctx         context.Context
	Limits      *table.Limits
	Guards      map[string]Guard // by method; set by Guard
	Rights      *Rights          // nil on an open node
	Audit       *AuditLog        // nil on an open node
	Meta        *namespace.Access
	CheckLeader func() error // returns an error while the lock service has no leader
	Serving     func() error // returns an error until the node serves
}

// Guard sets the guard of methods, before they are registered at a port.
func (z *Authorizer) Guard(g Guard, methods ...string) {
	if z.Guards == nil {
		z.Guards = map[string]Guard{}
	}
	for _, m := range methods {
		z.Guards[m] = g
	}
}

// Admitter returns the function that admits calls of a method; nil on an open node, which admits all.
func (z *Authorizer) Admitter(method string) func(*rpc.Call) error {
	g, ok := z.Guards[method]
	if !ok {
		panic(fmt.Sprintf("BUG: method %q has no guard", method))
	}
	if z.Open || g.To == Strangers {
		return nil
	}
	return func(c *rpc.Call) error { return z.AdmitCall(c, method, &g) }
}

// AdmitCall admits a call or returns the error that rejects it. If the rights behind the decision change before the answer, they are
// checked again.
func (z *Authorizer) AdmitCall(c *rpc.Call, method string, g *Guard) error {
	caller := SubjectOf(c)
	switch {
	case caller == nil: // the connection came from an unknown listener
		return api.ToRPC(ErrStranger)
	case caller.Peer.Kind == pki.Node:
		return nil
	case caller.Identity().Kind != pki.Principal:
		return z.Refuse(method, caller, ErrStranger)
	}
	switch g.To {
	case Nodes:
		return z.Refuse(method, caller, &api.PermissionError{Method: method, Text: method + " is for nodes of the cluster alone"})
	case Own:
		return nil
	}
	if err := z.Serving(); err != nil {
		return err
	}
	name := ""
	if g.To == OfTable || g.To == RightOfTable {
		d := c.Params
		if name = d.Str(); d.Err() != nil {
			return api.ToRPC(d.Err())
		}
	}
	t, err := z.may(caller, g, name)
	if err == nil && g.To == RightOfTable && g.change() {
		err = z.Audit.Admit(caller)
	}
	if err != nil {
		return z.Refuse(method, caller, err)
	}
	subject := g.auditSubject(c)
	c.OnAnswer(func(err error) error {
		if err == nil && !z.Rights.Holds(caller, t) {
			if lost := z.stillMay(caller, g, method, name); lost != nil {
				err = reply.ToAPI(lost)
			}
		}
		if g.change() && !g.SelfAudited {
			z.Audit.Action(caller, method, subject, err)
		}
		return err
	})
	return nil
}

// MaySeeSizes returns nil if a principal may see the sizes of a table: its administrators may, and readers of the cluster. Errors: those of
// View.CheckTable, in the API's form, and of Rights.Check.
func (z *Authorizer) MaySeeSizes(ctx context.Context, caller *Subject, v *acl.View) error {
	denied := ElementPermission(v.CheckTable(acl.Admin))
	if !errors.Is(denied, api.ErrPermission) {
		return denied
	}
	if _, err := z.Rights.Check(ctx, caller, acl.Read); !errors.Is(err, api.ErrPermission) {
		return err
	}
	return denied
}

// may reports whether a principal may call a method with that guard. Errors: those of Rights.View, api.ErrNoTable.
func (z *Authorizer) may(caller *Subject, g *Guard, name string) (acl.Ticket, error) {
	if z.CheckLeader() != nil { // a caller that waited would only learn that its deadline passed
		return acl.Ticket{}, z.CheckLeader()
	}
	switch {
	case g.To == Known, name == metadata.Name && g.To == OfTable:
		return z.Rights.Known(z.Ctx, caller)
	case g.To == Right, name == metadata.Name:
		return z.Rights.Check(z.Ctx, caller, g.Right)
	}
	v, t, err := z.SeeTable(z.Ctx, caller, name)
	if err == nil && g.To == RightOfTable {
		err = ElementPermission(v.CheckTable(g.Right))
	}
	return t, err
}

// SeeTable returns a table other than METADATA as a principal sees it. Errors: those of Rights.View, api.ErrNoTable.
func (z *Authorizer) SeeTable(ctx context.Context, caller *Subject, name string) (*acl.View, acl.Ticket, error) {
	s, err := z.SchemaFor(ctx, name)
	if err != nil {
		return nil, acl.Ticket{}, err
	}
	v, t, err := z.Rights.View(ctx, caller, s)
	if err == nil && v.CheckSeen() != nil {
		err = namespace.NoSuchTable(name)
	}
	return v, t, err
}

// SchemaFor reads a table's schema for a check of rights.
func (z *Authorizer) SchemaFor(ctx context.Context, name string) (*table.Schema, error) {
	ctx, cancel := context.WithTimeout(ctx, RightsTimeout)
	defer cancel()
	s, _, err := namespace.ReadSchema(ctx, z.Meta.Current(), name)
	if err != nil && !errors.Is(err, api.ErrNoTable) {
		err = z.Rights.Recode(err)
	}
	return s, err
}

// stillMay returns nil if the result of a call may be returned although rights have changed since the call was admitted.
func (z *Authorizer) stillMay(caller *Subject, g *Guard, method, name string) error {
	switch method {
	case api.MethodDropTable: // its grants are dropped with it
		return nil
	case api.MethodGrant, api.MethodRevoke, api.MethodSetGrants, api.MethodRevokeUser, api.MethodRemoveUser, api.MethodDisableUser: // the caller may have changed its own rights
		return nil
	}
	_, err := z.may(caller, g, name)
	var denied *api.PermissionError
	switch {
	case err == nil && (g.To == Known || g.To == OfTable):
		return ErrRightsMoved // the result depends on them
	case err == nil || !g.writes():
		return err
	case errors.As(err, &denied):
		lost := *denied
		lost.Executed = true
		return &lost
	case errors.Is(err, api.ErrUnauthenticated), errors.Is(err, api.ErrNoTable):
		return &api.PermissionError{Table: name, Right: g.Right.String(), Executed: true, Text: err.Error()}
	}
	return reply.Recode(api.ErrOutcomeUnknown, err)
}

// ErrRightsMoved means that an answer depends on rights that have changed meanwhile. It is an api.ErrUnavailable.
var ErrRightsMoved = fmt.Errorf("%w: rights have changed meanwhile; retry", api.ErrUnavailable)

// Refuse returns err in its API form. If access was denied, or the caller is unknown, it is logged in the audit log.
func (z *Authorizer) Refuse(method string, caller *Subject, err error) error {
	if reply.IsRefusal(err) {
		z.Audit.Refused(caller, method, "", err)
	}
	return reply.ToAPI(err)
}

// Administers returns nil if a principal administers a table, or the cluster if tableName is empty, and the table's schema.
func (z *Authorizer) Administers(ctx context.Context, caller *Subject, tableName string) (s *table.Schema, t acl.Ticket, err error) {
	if z.Open {
		return nil, t, api.ErrOpenCluster
	}
	if tableName == metadata.Name {
		return nil, t, fmt.Errorf("rights on %s are those on the cluster: %w", metadata.Name, api.ErrSystemTable)
	}
	if !caller.Restricted() {
		if tableName != "" {
			s, err = z.SchemaFor(ctx, tableName)
		}
		return s, t, err
	}
	if tableName == "" {
		t, err = z.Rights.Check(ctx, caller, acl.Admin)
		return nil, t, err
	}
	v, t, err := z.SeeTable(ctx, caller, tableName)
	if err != nil {
		return nil, t, err
	}
	return v.Schema(), t, ElementPermission(v.CheckTable(acl.Admin))
}

// Reauthorize returns nil if the subject is still authorized to make the change. It is the only change that runs (package changes), so no right is
// revoked before the change has been made.
func (z *Authorizer) Reauthorize(ctx context.Context, a ChangeRequest) error {
	if a.Caller == nil {
		return errNoSubject
	}
	if !a.Caller.Restricted() {
		return nil
	}
	var err error
	switch g := z.Guards[a.Method]; g.To {
	case Right, RightOfTable:
		_, err = z.may(a.Caller, &g, a.Name)
	default: // methods that check rights themselves
		_, _, err = z.Administers(ctx, a.Caller, a.Name)
	}
	return err
}

// AdministersCluster reports whether the subject is a node or known to be an administrator of the cluster.
func (z *Authorizer) AdministersCluster(caller *Subject) bool {
	if !caller.Restricted() {
		return true
	}
	_, err := z.Rights.Check(z.Ctx, caller, acl.Admin)
	return err == nil
}
