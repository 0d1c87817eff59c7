package node

// admitter returns the function that admits calls of a method; nil on an open node, which admits all.
func (n *Node) admitter(method string) func(*rpc.Call) error {
	g, ok := guards[method]
	if !ok {
		panic(fmt.Sprintf("BUG: method %q has no guard", method))
	}
	if n.security == nil || g.to == strangers {
		return nil
	}
	return func(c *rpc.Call) error { return n.letIn(c, method, &g) }
}

// letIn admits a call or returns the error that rejects it. If the rights behind the decision change before the answer, they are
// checked again.
func (n *Node) letIn(c *rpc.Call, method string, g *guard) error {
	who := subjectOf(c)
	switch {
	case who == nil: // the connection came from an unknown listener
		return api.ToRPC(errStranger)
	case who.peer.Kind == pki.Node:
		return nil
	case who.who().Kind != pki.Principal:
		return n.refuse(method, who, errStranger)
	}
	switch g.to {
	case nodes:
		return n.refuse(method, who, &api.PermissionError{Method: method, Text: method + " is for nodes of the cluster alone"})
	case own:
		return nil
	}
	if !n.serving.Load() {
		return n.notServing()
	}
	name := ""
	if g.to == ofTable || g.to == rightOfTable {
		d := c.Params
		if name = d.Str(); d.Err() != nil {
			return api.ToRPC(d.Err())
		}
	}
	t, err := n.may(who, g, name)
	if err == nil && g.to == rightOfTable && g.change() {
		err = n.audit.admit(who)
	}
	if err != nil {
		return n.refuse(method, who, err)
	}
	subject := g.matter(c)
	c.OnAnswer(func(err error) error {
		if err == nil && !n.rights.holds(who, t) {
			if lost := n.stillMay(who, g, method, name); lost != nil {
				err = toAPI(lost)
			}
		}
		if g.change() && !g.tells {
			n.audit.action(who, method, subject, err)
		}
		return err
	})
	return nil
}

// may reports whether a principal may call a method with that guard. Errors: those of rights.ask, api.ErrNoTable.
func (n *Node) may(who *subject, g *guard, name string) (acl.Ticket, error) {
	if n.unled() != nil { // a caller that waited would only learn that its deadline passed
		return acl.Ticket{}, n.unled()
	}
	switch {
	case g.to == known, name == metadata.Name && g.to == ofTable:
		return n.rights.known(n.ctx, who)
	case g.to == right, name == metadata.Name:
		return n.rights.check(n.ctx, who, g.right)
	}
	v, t, err := n.seeTable(n.ctx, who, name)
	if err == nil && g.to == rightOfTable {
		err = toldElement(v.CheckTable(g.right))
	}
	return t, err
}

// seeTable returns a table other than METADATA as a principal sees it. Errors: those of rights.ask, api.ErrNoTable.
func (n *Node) seeTable(ctx context.Context, who *subject, name string) (*acl.View, acl.Ticket, error) {
	s, err := n.schemaFor(ctx, name)
	if err != nil {
		return nil, acl.Ticket{}, err
	}
	v, t, err := n.rights.view(ctx, who, s)
	if err == nil && v.CheckSeen() != nil {
		err = noSuchTable(name)
	}
	return v, t, err
}

// schemaFor reads a table's schema for a check of rights.
func (n *Node) schemaFor(ctx context.Context, name string) (*table.Schema, error) {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	s, _, err := readSchema(ctx, n.meta.current(), name)
	if err != nil && !errors.Is(err, api.ErrNoTable) {
		err = n.rights.told(err)
	}
	return s, err
}

// stillMay returns nil if the result of a call may be returned although rights have changed since the call was admitted.
func (n *Node) stillMay(who *subject, g *guard, method, name string) error {
	switch method {
	case api.MethodDropTable: // its grants are dropped with it
		return nil
	case api.MethodGrant, api.MethodRevoke, api.MethodRevokeUser, api.MethodRemoveUser, api.MethodDisableUser: // the caller may have changed its own rights
		return nil
	}
	_, err := n.may(who, g, name)
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
	return told(api.ErrUnsure, err)
}

var errRightsMoved = fmt.Errorf("%w: rights have changed meanwhile; retry", api.ErrUnavailable)

// refuse returns err in its API form. If access was denied, or the caller is unknown, it is logged in the audit log.
func (n *Node) refuse(method string, who *subject, err error) error {
	if isRefusal(err) {
		n.audit.refused(who, method, "", err)
	}
	return toAPI(err)
}

// administers returns nil if a principal administers a table, or the cluster if tableName is empty, and the table's schema.
func (n *Node) administers(ctx context.Context, who *subject, tableName string) (s *table.Schema, t acl.Ticket, err error) {
	if n.security == nil {
		return nil, t, api.ErrOpenCluster
	}
	if tableName == metadata.Name {
		return nil, t, fmt.Errorf("rights on %s are those on the cluster: %w", metadata.Name, api.ErrSystemTable)
	}
	if !who.restricted() {
		if tableName != "" {
			s, err = n.schemaFor(ctx, tableName)
		}
		return s, t, err
	}
	if tableName == "" {
		t, err = n.rights.check(ctx, who, acl.Admin)
		return nil, t, err
	}
	v, t, err := n.seeTable(ctx, who, tableName)
	if err != nil {
		return nil, t, err
	}
	return v.Schema(), t, toldElement(v.CheckTable(acl.Admin))
}

// stillAsked returns nil if the subject is still authorized to make the change. The caller holds n.changing, so no right is
// revoked before the change has been made.
func (n *Node) stillAsked(ctx context.Context, a asked) error {
	if a.who == nil {
		return errNobodyAsked
	}
	if !a.who.restricted() {
		return nil
	}
	var err error
	switch g := guards[a.method]; g.to {
	case right, rightOfTable:
		_, err = n.may(a.who, &g, a.name)
	default: // methods that check rights themselves
		_, _, err = n.administers(ctx, a.who, a.name)
	}
	return err
}

// administersCluster reports whether the subject is a node or known to be an administrator of the cluster.
func (n *Node) administersCluster(who *subject) bool {
	if !who.restricted() {
		return true
	}
	_, err := n.rights.check(n.ctx, who, acl.Admin)
	return err == nil
}
