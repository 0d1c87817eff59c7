package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

func (n *Node) handleAdmin() {
	n.handle(api.MethodCreateTable, rpc.Spawned, n.createTable)
	n.handle(api.MethodSetFamily, rpc.Spawned, n.setFamily)
	// On the connection's reader: a client asks it whether the node lives, however busy it is.
	inline := func(method string, _ rpc.Mode, h func(*rpc.Call)) { n.rpc.Handle(method, rpc.Inline, h) }
	n.answerNames(inline, api.MethodPing, 0, n.ping)
	n.answerNames(n.rpc.Handle, api.MethodStatus, 0, n.status)
	n.handleNames(api.MethodListTables, 0, n.listTables)
	n.handleNames(api.MethodDescribeTable, 1, n.describeTable)
	n.handleNames(api.MethodDropTable, 1, n.dropTable)
	n.handleNames(api.MethodDropFamily, 2, n.dropFamily)
	n.handleNames(api.MethodCompactTable, 1, n.compactTable)
	n.handle(api.MethodSampleRowKeys, rpc.Spawned, n.sampleRowKeys)
	n.handleNames(api.MethodRoot, 1, n.root)
}

// handleNames registers a method whose parameters are names.
func (n *Node) handleNames(method string, names int, h func(ctx context.Context, r *api.NamesRequest) (answer, error)) {
	n.answerNames(n.handle, method, names, h)
}

// answerNames is handleNames with its own function for registering.
func (n *Node) answerNames(register func(string, rpc.Mode, func(*rpc.Call)), method string, names int,
	h func(ctx context.Context, r *api.NamesRequest) (answer, error)) {
	register(method, rpc.Spawned, func(c *rpc.Call) {
		c.Keep() // a change may outlive the call
		var r api.NamesRequest
		if err := r.Decode(&c.Params, c.NumParams, method, names); err != nil {
			fail(c, err)
			return
		}
		if !begin(c, &r.Options) {
			return
		}
		var result answer
		by := asked{who: subjectOf(c), method: method}
		if names > 0 {
			by.name = r.Names[0]
		}
		ctx := withAsked(withSubject(c.Context(), by.who), by)
		do := func(ctx context.Context) (err error) {
			result, err = h(ctx, &r)
			return err
		}
		var err error
		if givenUpUnled[method] {
			err = n.whileLed(ctx, do)
		} else {
			err = do(ctx)
		}
		if err != nil {
			fail(c, err)
			return
		}
		c.Reply(result)
	})
}

func schemaAnswer(s *table.Schema) answer {
	return func(e *wire.Encoder) { table.AppendSchema(e, s) }
}

func (n *Node) ping(context.Context, *api.NamesRequest) (answer, error) {
	p := api.Pong{Server: "stele", Version: Version(), Protocol: api.ProtocolVersion, Node: n.cfg.Name, Cluster: *n.self.clusterID.Load()}
	return p.Append, nil
}

func (n *Node) createTable(c *rpc.Call) {
	c.Keep() // the change may outlive the call
	var r api.CreateTableRequest
	if err := r.Decode(&c.Params, c.NumParams); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	var s *table.Schema
	var served <-chan struct{}
	creator := subjectOf(c).owner()
	err := n.changes.do(c.Context(), asked{subjectOf(c), api.MethodCreateTable, r.Name}, func(ctx context.Context) (err error) {
		s, served, err = n.create(ctx, &r, creator)
		return err
	})
	if err != nil {
		fail(c, err)
		return
	}
	awaitTable(c.Context(), served) // other changes of schemas need not wait for that
	c.Reply(schemaAnswer(s))
}

// create creates a table, within a change. The table exists once its schema is written. The master then creates the rows of its
// tablets and has them served: served is closed when they are, or when that takes too long. The creator, if any, becomes the
// table's administrator.
func (n *Node) create(ctx context.Context, r *api.CreateTableRequest, creator string) (s *table.Schema, served <-chan struct{}, err error) {
	if err := n.limits.CheckTableName(r.Name); err != nil {
		return nil, nil, err
	}
	if r.Name == metadata.Name {
		return nil, nil, fmt.Errorf("table %q: %w: the name is reserved", r.Name, api.ErrTableExists)
	}
	switch _, _, err := n.catalog.schema(ctx, r.Name); {
	case err == nil:
		return nil, nil, fmt.Errorf("table %q: %w", r.Name, api.ErrTableExists)
	case !errors.Is(err, api.ErrNoTable):
		return nil, nil, err
	}
	if _, err := r.Schema(metadata.FirstID); err != nil {
		return nil, nil, err
	}
	ends, err := checkCuts(r.SplitAt, &n.limits)
	if err != nil {
		return nil, nil, err
	}
	id, err := n.catalog.nextIDs(ctx, uint64(len(ends))+2) // for the table and its tablets
	if err != nil {
		return nil, nil, err
	}
	s, err = r.Schema(id)
	if err != nil {
		return nil, nil, err
	}
	var cut *cuts
	if len(ends) > 0 {
		cut = &cuts{first: id + 1, ends: ends}
	}
	if err = n.prepareTable(ctx, creator, id); err == nil { // before the table exists, so that its creator sees it at once
		err = n.catalog.saveTable(ctx, s, cut, 0)
	}
	if err != nil {
		if !errors.Is(err, metaapi.ErrOutcomeUnknown) { // else the next master checks whether the table exists: leftovers.go
			n.accounts.forgetGrants(ctx, id)
			n.quotas.forgetQuota(ctx, id)
		}
		return nil, nil, err
	}
	n.log.Info("table created", "table", s.Name, "families", len(s.Families), "tablets", cut.tablets())
	return s, n.press(s, cut.tablets()), nil
}

// prepareTable writes the grant and the ownership of the creator, if any, before the table exists.
func (n *Node) prepareTable(ctx context.Context, creator string, tableID uint64) error {
	if creator == "" {
		return nil
	}
	if err := n.accounts.grantCreator(ctx, creator, tableID); err != nil {
		return err
	}
	return n.quotas.ownCreator(ctx, creator, tableID)
}

// servedTimeout is how long the creation of a table waits until the table is served. The table exists in any case.
const (
	servedTimeout       = 10 * time.Second
	servedTimeoutTablet = 20 * time.Millisecond // for each tablet, in addition
	// servedAnswer is the time reserved for the answer, out of what the caller's deadline leaves.
	servedAnswer = time.Second
)

// awaitTable waits until a new table is served, or until the caller's deadline is near.
func awaitTable(ctx context.Context, served <-chan struct{}) {
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left-min(servedAnswer, left/4))
		defer cancel()
	}
	select {
	case <-served:
	case <-ctx.Done():
	}
}

// press nudges the master until all of a new table is served, or it is dropped. The caller may leave meanwhile, and the master
// looks for new tables only from time to time.
func (n *Node) press(s *table.Schema, tablets int) <-chan struct{} {
	served := make(chan struct{})
	n.background.Go(func() {
		defer close(served)
		n.pressTable(s, tablets)
	})
	return served
}

func (n *Node) pressTable(s *table.Schema, tablets int) {
	ctx, cancel := context.WithTimeout(n.ctx, servedTimeout+time.Duration(tablets)*servedTimeoutTablet)
	defer cancel()
	assigned := false
	for wait := 5 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 200*time.Millisecond) {
		n.nudgeMaster(ctx)
		if assigned = assigned || n.assignedWhole(ctx, s.ID, tablets); assigned {
			infos, err := n.tabletInfos(ctx, s)
			if err == nil && whole(infos, s.ID) {
				return
			}
		}
		if now, _, err := n.catalog.schema(ctx, s.Name); errors.Is(err, api.ErrNoTable) || err == nil && now.ID != s.ID {
			return
		}
		pause(ctx, wait)
	}
	n.log.Warn("new table not served yet", "table", s.Name)
}

// whole reports whether tablets, in row order, cover all rows. METADATA names a server before that server has loaded the tablet,
// so the servers are asked. Tablets of an earlier table of the same name have lower ids.
func whole(tablets []api.TabletInfo, tableID uint64) bool {
	end := []byte(nil)
	for i := range tablets {
		if tablets[i].ID <= tableID || !bytes.Equal(tablets[i].Start, end) || i > 0 && len(end) == 0 {
			return false
		}
		end = tablets[i].End
	}
	return len(tablets) > 0 && len(end) == 0
}

// assignedWhole reports whether METADATA has all tablets of a new table assigned to servers.
func (n *Node) assignedWhole(ctx context.Context, tableID uint64, tablets int) bool {
	from, to := metadata.TableRange(tableID)
	whole, served := false, true
	err := n.rows.scan(ctx, string(from), string(to), metadata.Places(), func(r *metadata.Row) {
		tablets--
		whole = whole || len(r.End) == 0
		served = served && r.Server != ""
	})
	return err == nil && whole && served && tablets <= 0
}

// alter changes a table's schema. When it returns, no server uses the old schema: see schemas (I15).
func (n *Node) alter(ctx context.Context, a asked, edit func(*table.Schema) (*table.Schema, error)) (*table.Schema, error) {
	var s *table.Schema
	err := n.changes.do(ctx, a, func(ctx context.Context) (err error) {
		s, err = n.alterNow(ctx, a.name, edit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (n *Node) alterNow(ctx context.Context, name string, edit func(*table.Schema) (*table.Schema, error)) (*table.Schema, error) {
	if isSystem(name) {
		return nil, api.ErrSystemTable
	}
	old, cut, gen, err := readTable(ctx, n.catalog.meta, name)
	if err != nil {
		return nil, err
	}
	s, err := edit(old)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(&n.limits); err != nil {
		return nil, err
	}
	if err := n.catalog.saveTable(ctx, s, cut, gen); err != nil {
		return nil, err
	}
	return s, nil
}

func (n *Node) setFamily(c *rpc.Call) {
	c.Keep() // the change may outlive the call
	var r api.SetFamilyRequest
	if err := r.Decode(&c.Params, c.NumParams); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	s, err := n.alter(c.Context(), asked{subjectOf(c), api.MethodSetFamily, r.Table}, func(old *table.Schema) (*table.Schema, error) {
		return old.Apply(r.Family)
	})
	if err != nil {
		fail(c, err)
		return
	}
	c.Reply(schemaAnswer(s))
}

func (n *Node) dropFamily(ctx context.Context, r *api.NamesRequest) (answer, error) {
	var s *table.Schema
	err := n.changes.do(ctx, askedIn(ctx), func(ctx context.Context) (err error) {
		s, err = n.alterNow(ctx, r.Names[0], func(old *table.Schema) (*table.Schema, error) { return old.DropFamily(r.Names[1]) })
		if err == nil {
			n.accounts.pruneGrants(ctx, s)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	n.log.Info("family dropped", "table", r.Names[0], "family", r.Names[1])
	return schemaAnswer(s), nil
}

func (n *Node) listTables(ctx context.Context, _ *api.NamesRequest) (answer, error) {
	names, err := n.catalog.names(ctx)
	if err != nil {
		return nil, err
	}
	var schemas []*table.Schema
	for _, name := range names {
		s, _, err := n.catalog.schema(ctx, name)
		if err != nil { // dropped meanwhile
			continue
		}
		if s, err = n.visible(ctx, s); err != nil {
			return nil, err
		}
		if s != nil {
			schemas = append(schemas, s)
		}
	}
	return func(e *wire.Encoder) { api.AppendSchemas(e, schemas) }, nil
}

func (n *Node) describeTable(ctx context.Context, r *api.NamesRequest) (answer, error) {
	s, err := n.catalog.schemaOf(ctx, r.Names[0])
	if err != nil {
		return nil, err
	}
	info := api.TableInfo{Schema: s}
	if info.Tablets, err = n.tabletInfos(ctx, s); err != nil {
		return nil, err
	}
	if err := n.hideSizes(ctx, &info); err != nil {
		return nil, err
	}
	return info.Append, nil
}

// visible returns a table as the subject of ctx may see it, or nil if it may not see the table.
func (n *Node) visible(ctx context.Context, s *table.Schema) (*table.Schema, error) {
	who := subjectIn(ctx)
	if who == nil {
		return s, nil
	}
	v, _, err := n.authz.rights.view(ctx, who, s)
	if err != nil || v.CheckSeen() != nil {
		return nil, err
	}
	return v.Visible(), nil
}

// hideSizes removes from a table's description what the subject of ctx may not see: families without rights, and the sizes of
// tablets unless the subject administers the table.
func (n *Node) hideSizes(ctx context.Context, info *api.TableInfo) error {
	who := subjectIn(ctx)
	if who == nil {
		return nil
	}
	var err error
	if info.Schema.ID == metadata.TableID {
		_, err = n.authz.rights.check(ctx, who, acl.Read)
	} else {
		var v *acl.View
		if v, _, err = n.authz.rights.view(ctx, who, info.Schema); err != nil {
			return err
		}
		if v.CheckSeen() != nil { // rights have changed
			return noSuchTable(info.Schema.Name)
		}
		info.Schema, err = v.Visible(), toldElement(v.CheckTable(acl.Admin))
	}
	if errors.Is(err, api.ErrPermission) {
		info.SizesHidden = true
		for i := range info.Tablets {
			t := &info.Tablets[i]
			*t = api.TabletInfo{ID: t.ID, Node: t.Node, Start: t.Start, End: t.End}
		}
		return nil
	}
	return err
}

// tabletInfos collects the descriptions of a table's tablets from their servers.
func (n *Node) tabletInfos(ctx context.Context, s *table.Schema) (tablets []api.TabletInfo, err error) {
	err = n.askServers(ctx, s, methodTablets, func(e *wire.Encoder) { e.Nil() }, func(d *wire.Decoder) error {
		var part api.TableInfo
		if err := part.Decode(d); err != nil {
			return err
		}
		tablets = append(tablets, part.Tablets...)
		return nil
	})
	slices.SortFunc(tablets, func(a, b api.TabletInfo) int { return bytes.Compare(a.Start, b.Start) })
	return tablets, err
}

func (n *Node) dropTable(ctx context.Context, r *api.NamesRequest) (answer, error) {
	return nil, n.changes.do(ctx, askedIn(ctx), func(ctx context.Context) error { return n.drop(ctx, r.Names[0]) })
}

// drop removes a table, within a change. The table is gone once its schema is deleted. No server acts on it from then on: see
// schemas (I15). The master removes the rows of its tablets.
func (n *Node) drop(ctx context.Context, name string) error {
	if isSystem(name) {
		return api.ErrSystemTable
	}
	s, gen, err := n.catalog.schema(ctx, name)
	if err != nil {
		return err
	}
	if err := n.catalog.remove(ctx, tablePath(name), gen); err != nil {
		return err
	}
	n.accounts.forgetGrants(ctx, s.ID)
	n.quotas.forgetQuota(ctx, s.ID)
	n.log.Info("table dropped", "table", name)
	n.nudgeMaster(ctx)
	return nil
}

func (n *Node) compactTable(ctx context.Context, r *api.NamesRequest) (answer, error) {
	s, err := n.catalog.schemaOf(ctx, r.Names[0])
	if err != nil {
		return nil, err
	}
	return nil, n.askServers(ctx, s, methodCompact, func(e *wire.Encoder) { e.Bool(r.Major) }, nil)
}
