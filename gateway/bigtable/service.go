package bigtable

import (
	"context"
	"slices"
	"sync/atomic"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/buffers"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
	"github.com/steledb/stele/table"
)

// Table is a table as the caller of a request may use it. *client.Table implements it; see there for
// the errors.
type Table interface {
	Get(ctx context.Context, row string, opts ...client.ReadOption) (*table.Row, error)
	Scan(ctx context.Context, opts ...client.ScanOption) *client.Scanner
	Apply(ctx context.Context, m *client.RowMutation, opts ...client.ApplyOption) error
	ApplyAll(ctx context.Context, ms []*client.RowMutation, opts ...client.ApplyOption) error
	CheckAndMutate(ctx context.Context, row string, predicate table.Filter, then, otherwise *client.RowMutation) (bool, error)
	ReadModifyWriteWithin(ctx context.Context, row string, bytesMax int64, rules ...table.Rule) (*table.Row, error)
	SampleRowKeys(ctx context.Context) ([]client.RowSample, error)
	Changes(from client.ChangesFrom) (*client.Changes, error)
	ChangePositions(ctx context.Context) ([]client.ChangePosition, error)
	Families(ctx context.Context) ([]string, error)
}

var _ Table = (*client.Table)(nil)

// Config is what a Service needs.
type Config struct {
	// Open returns a table of the cluster, bound to the caller in the context of a request, and confined to a view of the table unless its name is
	// empty. It does not check that they exist. Its errors become statuses by package errcode.
	Open func(ctx context.Context, table, view string) (Table, error)
	// Profiles, unless it is nil, returns the app profiles of the cluster. It is called at most five times in a second. Nil means that there is only the
	// default one.
	Profiles func(ctx context.Context) ([]client.AppProfile, error)
	// Reserve, unless it is nil, reserves memory for a read of many rows, before it begins, and for large
	// rows, before they are read. Errors become statuses.
	Reserve func(ctx context.Context, bytes int64) (release func(), err error)
	// DecodedBytesMax bounds the memory of a request, with what was charged when it was received. Zero means no bound.
	DecodedBytesMax int64
	// GroupBytes bounds the memory of the entries of a MutateRows that are decoded at a time, unless a single one takes more. Zero means 4 MiB.
	GroupBytes int64
	// RowBytesMax bounds the rows of answers, as client.RowBytesMax has them. Zero means 32 MiB.
	RowBytesMax int64
	// StrictLimits rejects requests beyond the limits of Google's service, even if they are within those of the cluster.
	StrictLimits bool
	// Sessions makes clients that can use sessions for point reads and row mutations.
	Sessions bool
	// AdmitSession, unless it is nil, reserves memory for a session. It returns false if there is none.
	AdmitSession func(ctx context.Context) (release func(), ok bool)
	// Peer describes the node to clients.
	Peer Peer
	// Pool has the buffers of answers. Nil means buffers.Pool.
	Pool mem.BufferPool
}

// Service serves google.bigtable.v2.Bigtable.
type Service struct {
	bigtablepb.UnimplementedBigtableServer
	cfg      Config
	peer     *peer
	sessions sessions
	profiles profiles
	// streams ends when change streams are to end, by endStreams.
	streams    context.Context
	endStreams context.CancelFunc
	// configurations counts those that were returned to clients.
	configurations atomic.Int64
}

// New returns a Service.
func New(cfg Config) *Service {
	if cfg.Pool == nil {
		cfg.Pool = buffers.Pool
	}
	if cfg.GroupBytes == 0 {
		cfg.GroupBytes = groupBytesDefault
	}
	s := &Service{cfg: cfg.withRowBytesMax(), peer: describePeer(cfg.Peer)}
	s.profiles.init(cfg.Profiles)
	s.sessions.mu.open = map[*session]bool{}
	s.streams, s.endStreams = context.WithCancel(context.Background())
	return s
}

// Register registers the service. The server must use Codec.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	d := bigtablepb.Bigtable_ServiceDesc
	d.Streams = slices.Clone(d.Streams)
	for i := range d.Streams {
		if to := &d.Streams[i]; to.StreamName == mutateRowsMethod {
			to.Handler = s.receiveMutateRows
		}
	}
	r.RegisterService(&d, s)
}

// mutateRowsMethod is the name of the method whose requests are not decoded as a whole.
const mutateRowsMethod = "MutateRows"

// Grouped reports whether a request of a method, by its full name, is charged as GroupedCharge has it.
func Grouped(fullMethod string) bool {
	return fullMethod == bigtablepb.Bigtable_MutateRows_FullMethodName
}

// target names what a request is about, and its app profile. One of the first fields is set in a valid request, or the first names the table of the second.
type target struct {
	table, authorizedView, materializedView string
	profile                                 string
	use                                     use // of the app profile
}

// name returns the name of the view of a request, or that of a table as one of a view with an empty id. Its errors are statuses.
func (of target) name() (v names.View, err error) {
	switch {
	case of.materializedView != "":
		return v, errNoMaterializedViews
	case of.authorizedView == "":
		v.Table, err = names.ParseTable(of.table)
	default:
		v, err = names.ParseView(of.authorizedView)
	}
	if err == nil && of.table != "" && of.table != v.Table.String() {
		err = errcode.Invalid("table_name %.200q is not the table of authorized_view_name: set one of them", of.table)
	}
	return v, errcode.Convert(err, errcode.Repeatable)
}

// open returns the table of a request, or a view of it, if the request's app profile allows that. Its errors are statuses.
func (s *Service) open(ctx context.Context, of target) (Table, error) {
	v, err := of.name()
	if err == nil {
		err = s.profile(ctx, of.profile, of.use)
	}
	if err != nil {
		return nil, err
	}
	return s.openView(ctx, v)
}

// openView is open for a name.
func (s *Service) openView(ctx context.Context, v names.View) (Table, error) {
	t, err := s.cfg.Open(ctx, v.Table.ID, v.ID)
	return t, errcode.Convert(err, errcode.Repeatable)
}
