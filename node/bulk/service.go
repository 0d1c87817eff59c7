package bulk

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/metric"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Service serves bulk imports.
type Service struct {
	Config
	parts parts
}

// Config has what the service needs of the node.
type Config struct {
	Ctx     context.Context // ends when the node closes
	Limits  *table.Limits
	Authz   *authz.Authorizer
	Tablets Tablets
	Quotas  Meter
	// ReadSSTables returns nil if all nodes of the cluster read a version of SSTables; otherwise the error names one that does not, and what to do. known is
	// false as long as the nodes are unknown.
	ReadSSTables func(version int) (known bool, err error)
	// CompactionBytes is the memory for compactions of the tablet server. It decides how many parts may be open.
	CompactionBytes int64
}

// Tablets has this node's tablet servers, and locates rows that it does not serve.
type Tablets interface {
	// TabletsOf returns this node's tablet server for a table.
	TabletsOf(table string) *tablet.Server
	// Misrouted returns the error for a row that is not served here.
	Misrouted(a *authz.Access, err error, table string, id uint64, row []byte) error
}

// Meter returns the quotas that requests count for.
type Meter interface {
	Meter(c *rpc.Call, table string, write bool) quotas.Metered
}

// partBytes is the memory for compactions, in bytes, that the node has for each part that may be open: an index of 16 MiB, and for each of its locality groups a
// block, its compressed form, a value and what is sent to replicas. A part usually needs less: see package tablet.
const partBytes = 32 << 20

// New returns the service. Its parts end with Close.
func New(cfg Config) *Service {
	s := &Service{Config: cfg}
	s.parts.most = int(min(max(2, cfg.CompactionBytes/partBytes), api.BulkPartsMax))
	return s
}

// Start returns a function that aborts expired parts until Close is called.
func (s *Service) Start() (abortExpired func()) {
	stop := s.parts.start()
	return func() { s.parts.sweep(stop) }
}

// Close aborts all parts. It waits for calls in progress until ctx ends.
func (s *Service) Close(ctx context.Context) { s.parts.close(ctx) }

// Register registers the methods.
func (s *Service) Register(r method.Registrar) {
	r.Handle(api.MethodBulkWrite, rpc.Spawned, authz.Guard{To: authz.Own}, s.write)
	r.Handle(api.MethodBulkCommit, rpc.Spawned, authz.Guard{To: authz.Own}, s.commit)
	r.Handle(api.MethodBulkAbort, rpc.Spawned, authz.Guard{To: authz.Own}, s.abort)
}

// checkNodes returns nil if all nodes of the cluster read the files of bulk imports: any of them may get the tablet. Errors: api.ErrBulkRefused,
// api.ErrUnavailable.
func (s *Service) checkNodes() error {
	known, err := s.ReadSSTables(tablet.BulkFileVersion)
	switch {
	case err != nil:
		return fmt.Errorf("%w; until then: %w", err, api.ErrBulkRefused)
	case !known:
		return fmt.Errorf("the nodes of the cluster are not known yet: %w", api.ErrUnavailable)
	}
	return nil
}

// errView rejects requests that are confined to a view.
var errView = rpc.Errorf(rpc.CodeBadRequest, "a bulk import is not confined to a view: write the rows in batches, by mutate_rows")

// checkTable rejects tables and views that have no bulk imports.
func checkTable(name string, o *api.TableOptions) error {
	switch {
	case metadata.IsSystem(name):
		return api.ErrSystemTable
	case o.View != "":
		return errView
	}
	return nil
}

// as returns the tablet server as the caller of a request sees it.
func (s *Service) as(c *rpc.Call, a *authz.Access, name string, id uint64) tablet.For {
	return s.Tablets.TabletsOf(name).For(a.Of(true)).Table(id).Traced(c.Trace())
}

func (s *Service) write(c *rpc.Call) {
	var r api.BulkWriteRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, s.Limits), &r.Options) {
		return
	}
	err := checkTable(r.Table, &r.TableOptions)
	if err == nil && len(r.Rows) == 0 {
		err = table.ErrNoMutations
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	a := s.Authz.Access(c, r.Table, "")
	defer a.Release()
	if err := s.add(c, a, &r); err != nil {
		reply.Fail(c, s.Tablets.Misrouted(a, err, r.Table, r.TableID, r.Rows[0].Row))
		return
	}
	c.Reply(nil)
}

// add adds the rows of a request to its part. A request that was executed before changes nothing.
func (s *Service) add(c *rpc.Call, a *authz.Access, r *api.BulkWriteRequest) error {
	ctx, as := c.Context(), s.as(c, a, r.Table, r.TableID)
	if err := as.MayBulk(ctx, r.Table, &r.Rows[0]); err != nil {
		return err
	}
	p, err := s.partOf(c, as, r)
	if errors.Is(err, tablet.ErrPartCommitted) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.parts.release(p)
	switch {
	case r.Number < p.requests:
		return nil
	case r.Number > p.requests:
		return rpc.Errorf(rpc.CodeBadRequest, "request %d of the part follows request %d", r.Number, p.requests-1)
	}
	if err := p.part.Admit(); err != nil {
		return err
	}
	m := s.Quotas.Meter(c, r.Table, true)
	if err := take(m, r.Rows); err != nil {
		return err
	}
	bytes := sizeOf(r.Rows)
	if err := p.part.Add(ctx, as, r.Rows...); err != nil {
		m.Refund(err, quota.WriteOps, int64(len(r.Rows)), bytes)
		return err
	}
	p.requests++
	s.parts.progress(p, bytes, false)
	return nil
}

// partOf reserves the part of a request, and opens it at the first one. Errors: those of parts.use and parts.open; tablet.ErrPartCommitted.
func (s *Service) partOf(c *rpc.Call, as tablet.For, r *api.BulkWriteRequest) (*part, error) {
	ctx, k := c.Context(), keyOf(c, r.Table, r.Part)
	p, err := s.parts.use(ctx, k)
	if !errors.Is(err, api.ErrBulkExpired) {
		return p, err
	}
	if r.Number == 0 {
		if err := s.checkNodes(); err != nil {
			return nil, err
		}
		return s.parts.open(ctx, k, func() (*tablet.BulkPart, error) { return as.BeginBulk(ctx, r.Table, &r.Rows[0], r.Part) })
	}
	made, committedErr := as.CommittedBulk(ctx, r.Table, r.Rows[0].Row, r.Part)
	switch {
	case committedErr != nil:
		return nil, committedErr
	case made:
		return nil, tablet.ErrPartCommitted
	}
	return nil, err
}

// keyOf returns the key of a part of the caller.
func keyOf(c *rpc.Call, table string, id tablet.PartID) key {
	return key{id, table, authz.SubjectOf(c).Owner()}
}

// take charges the rows of a request. The error is an *api.QuotaError.
func take(m quotas.Metered, rows []table.RowMutation) (over error) {
	err := m.TakeRows(rows, func(_ int, err error) { over = err })
	if err == nil {
		err = over // no row is charged then: all of them add data
	}
	return err
}

func sizeOf(rows []table.RowMutation) (bytes int64) {
	for i := range rows {
		bytes += rows[i].Size()
	}
	return bytes
}

func (s *Service) commit(c *rpc.Call) {
	var r api.BulkRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, s.Limits), &r.Options) {
		return
	}
	if err := checkTable(r.Table, &r.TableOptions); err != nil {
		reply.Fail(c, err)
		return
	}
	a := s.Authz.Access(c, r.Table, "")
	defer a.Release()
	err := s.commitPart(c, a, &r)
	if err == nil {
		err = a.Settle(s.Ctx)
	}
	if err != nil {
		reply.Fail(c, s.Tablets.Misrouted(a, err, r.Table, r.TableID, r.Row))
		return
	}
	c.Reply(nil)
}

// commitPart commits an open part, or finds that it was committed (BI2).
func (s *Service) commitPart(c *rpc.Call, a *authz.Access, r *api.BulkRequest) error {
	ctx, as := c.Context(), s.as(c, a, r.Table, r.TableID)
	made, err := as.CommittedBulk(ctx, r.Table, r.Row, r.Part)
	if err != nil || made {
		if errors.Is(err, api.ErrPermission) || errors.Is(err, api.ErrNoTable) { // the rights are lost, and the caller's part with them
			if p, err := s.parts.use(ctx, keyOf(c, r.Table, r.Part)); err == nil {
				s.parts.end(p)
			}
		}
		return err
	}
	p, err := s.parts.use(ctx, keyOf(c, r.Table, r.Part))
	if errors.Is(err, api.ErrBulkExpired) { // it may have been committed since
		if made, again := as.CommittedBulk(ctx, r.Table, r.Row, r.Part); again != nil || made {
			return again
		}
	}
	if err != nil {
		return err
	}
	defer s.parts.release(p)
	if r.Requests != p.requests {
		return rpc.Errorf(rpc.CodeBadRequest, "the part has %d requests, not %d", p.requests, r.Requests)
	}
	if err := s.checkNodes(); err != nil {
		return err
	}
	if !p.committed { // repetitions do not keep it open
		p.committed = true
		s.parts.progress(p, 0, true)
	}
	return p.part.Commit(ctx, as)
}

func (s *Service) abort(c *rpc.Call) {
	var r api.BulkRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, s.Limits), &r.Options) {
		return
	}
	if err := checkTable(r.Table, &r.TableOptions); err != nil {
		reply.Fail(c, err)
		return
	}
	a := s.Authz.Access(c, r.Table, "")
	defer a.Release()
	if err := s.abortPart(c, a, &r); err != nil {
		reply.Fail(c, s.Tablets.Misrouted(a, err, r.Table, r.TableID, r.Row))
		return
	}
	c.Reply(nil)
}

// abortPart discards a part that is open. That of another part changes nothing, and has the same errors as its commit.
func (s *Service) abortPart(c *rpc.Call, a *authz.Access, r *api.BulkRequest) error {
	if _, err := s.as(c, a, r.Table, r.TableID).CommittedBulk(c.Context(), r.Table, r.Row, r.Part); err != nil {
		return err
	}
	p, err := s.parts.use(c.Context(), keyOf(c, r.Table, r.Part))
	switch {
	case errors.Is(err, api.ErrBulkExpired):
		return nil
	case err == nil:
		s.parts.end(p)
	}
	return err
}

// Collect sends the service's metrics.
func (s *Service) Collect(m metric.Sender) {
	open, refused := s.parts.stats()
	m.Gauge("bulk_parts", "Open parts of bulk imports.", float64(open))
	m.Gauge("bulk_parts_max", "Largest number of open parts of bulk imports; one user may have half of them.", float64(s.parts.most))
	m.Counter("bulk_parts_refused_total", "Parts of bulk imports rejected because too many were open.", float64(refused))
}
