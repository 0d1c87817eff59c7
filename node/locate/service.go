package locate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Config is what the service needs.
type Config struct {
	Ctx      context.Context // of the node
	ID       func() string   // of the node
	Limits   *table.Limits
	Authz    *authz.Authorizer
	Meta     *namespace.Access
	ServerOf func(table string) *tablet.Server // of this node
	Locator  func() Locator                    // locates tablets by METADATA
}

// Service locates rows. It implements dataapi.Tablets.
type Service struct {
	Config
	elsewhere *guide
}

// New creates a service.
func New(cfg Config) *Service { return &Service{cfg, newGuide(cfg.Locator)} }

// Register registers the methods of the service.
func (s *Service) Register(r method.Registrar) {
	r.Handle(api.MethodSampleRowKeys, rpc.Spawned, authz.Guard{To: authz.OfTable}, s.sampleRowKeys)
	r.HandleNames(api.MethodRoot, 1, authz.Guard{To: authz.OfTable, Leader: authz.LeaderThroughout}, s.root)
}

// TabletsOf implements dataapi.Tablets.
func (s *Service) TabletsOf(table string) *tablet.Server { return s.ServerOf(table) }

// misrouted reports whether err means that this node does not serve the row.
func misrouted(err error) bool { return errors.Is(err, api.ErrNotServing) }

// misroutedError returns the error of a request for a row that this node does not serve: the table does not exist, it has another id than
// the one in the request (0: none), or the tablet is not served here, with the node that serves it if known.
func (s *Service) misroutedError(err error, table string, id uint64, row []byte) error {
	if !misrouted(err) {
		return err
	}
	current, gone := s.noTable(table, id)
	if gone != nil {
		return gone
	}
	if addr, node, ok := s.elsewhere.find(s.Ctx, table, current, row, s.ID()); ok {
		return &api.NotServingError{Addr: addr, Node: node}
	}
	return err
}

// Misrouted is misroutedError for a call with that access, which may be nil. To a caller that may not see the table, it does not exist. It
// implements dataapi.Tablets.
func (s *Service) Misrouted(a *authz.Access, err error, name string, id uint64, row []byte) error {
	if a != nil && misrouted(err) && name != metadata.Name {
		ctx, cancel := context.WithTimeout(s.Ctx, noTableTimeout)
		defer cancel()
		if hidden := a.CheckTable(ctx); hidden != nil {
			return hidden
		}
	}
	return s.misroutedError(err, name, id, row)
}

// noTableTimeout bounds the check that a table exists.
const noTableTimeout = time.Second

// noTable returns the id of a table, 0 if it is unknown. Errors: api.ErrNoTable if it certainly does not exist, and *api.TableReplacedError if
// its id certainly differs from the one in the request (0: none).
func (s *Service) noTable(table string, id uint64) (current uint64, err error) {
	if table == metadata.Name {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(s.Ctx, noTableTimeout)
	defer cancel()
	schema, _, err := namespace.ReadSchema(ctx, s.Meta.Current(), table)
	switch {
	case errors.Is(err, api.ErrNoTable):
		return 0, err
	case err != nil:
		return 0, nil
	case id != 0 && id != schema.ID:
		return 0, &api.TableReplacedError{Table: table, ID: schema.ID}
	}
	return schema.ID, nil
}

// root returns the location of the root tablet, the first of the three levels (paper §5.1). The files that it reads are mostly in
// the session's cache, which is never stale.
func (s *Service) root(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	session := s.Meta.Current()
	f, err := session.Get(ctx, metadata.RootPath)
	if errors.Is(err, metaapi.ErrNotFound) {
		return (&api.RootInfo{}).Append, nil
	}
	if err != nil {
		return nil, err
	}
	row, err := metadata.DecodeRoot(f.Data, f.Generation)
	if err != nil {
		return nil, err
	}
	info := api.RootInfo{Metadata: true, Table: metadata.TableID, Server: row.Server, Addr: row.Addr}
	if name := r.Names[0]; name != metadata.Name {
		schema, _, err := namespace.ReadSchema(ctx, session, name)
		if err != nil {
			return nil, err
		}
		info.Table = schema.ID
	}
	return info.Append, nil
}

// sampleRowKeys returns the end rows of the tablets from a row on, as far as this node serves them without a gap, and the bytes
// before each.
func (s *Service) sampleRowKeys(c *rpc.Call) {
	var r api.SampleRowKeysRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, s.Limits), &r.Options) {
		return
	}
	sizes, err := s.seesSizes(c, r.Table, r.View)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	server := s.ServerOf(r.Table)
	var tablets []tablet.TabletStats
	if err = server.For(nil).Table(r.TableID).Serves(c.Context(), r.Table, r.Start); err == nil {
		tablets, err = server.TabletStats(r.Table)
	}
	if err != nil {
		reply.Fail(c, s.misroutedError(err, r.Table, r.TableID, r.Start))
		return
	}
	samples := samplesOf(tablets, r.Start)
	for i := range samples {
		if !sizes {
			samples[i].Offset = 0
		}
	}
	if len(samples) == 0 {
		reply.Fail(c, s.misroutedError(fmt.Errorf("table %q, row %.64q: %w", r.Table, r.Start, api.ErrNotServing), r.Table, r.TableID, r.Start))
		return
	}
	c.Reply(func(e *wire.Encoder) { api.AppendSamples(e, samples) })
}

// seesSizes reports whether the caller, which must have the right to read the table, may see the sizes of its tablets. Without the right to
// read all of the table, they would reveal the size of what it may not read.
func (s *Service) seesSizes(c *rpc.Call, name, view string) (bool, error) {
	caller := authz.SubjectOf(c)
	switch {
	case view != "":
		return false, s.mayReadView(c, name, view)
	case !caller.Restricted():
		return true, nil
	case name == metadata.Name:
		_, err := s.Authz.Rights.Check(c.Context(), caller, acl.Read)
		return true, err
	}
	v, _, err := s.Authz.SeeTable(c.Context(), caller, name)
	if err != nil {
		return false, err
	}
	return v.ReadsAll(), authz.ElementPermission(v.CheckRead())
}

// mayReadView returns nil if the table has the view and the caller may read it. Errors: api.ErrNoTable, table.ErrNoView, *api.PermissionError, those of Rights.View.
func (s *Service) mayReadView(c *rpc.Call, name, view string) error {
	schema, err := s.Authz.SchemaFor(c.Context(), name)
	if err != nil {
		return err
	}
	v := acl.Unrestricted(schema)
	if caller := authz.SubjectOf(c); caller.Restricted() {
		if v, _, err = s.Authz.SeeTable(c.Context(), caller, name); err != nil {
			return err
		}
	}
	if v, err = v.In(view); err != nil {
		return err
	}
	return authz.ElementPermission(v.CheckRead())
}

// samplesOf returns a sample for each tablet, from the one with the row start to the one before a gap.
func samplesOf(tablets []tablet.TabletStats, start []byte) (samples []api.RowSample) {
	offset := int64(0)
	var from []byte // the end of the tablet before
	for _, t := range tablets {
		if len(samples) == 0 {
			if len(t.End) > 0 && bytes.Compare(t.End, start) < 0 {
				continue
			}
			if len(t.Start) > 0 && bytes.Compare(start, t.Start) <= 0 {
				return nil
			}
		} else if !bytes.Equal(t.Start, from) {
			break
		}
		for _, f := range t.Files {
			offset += f.Bytes
		}
		samples = append(samples, api.RowSample{Key: t.End, Offset: offset})
		from = t.End
	}
	return samples
}
