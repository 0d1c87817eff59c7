package slowlog

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// textMax bounds names and addresses that are kept.
const textMax = 128

// Config is the configuration of a Log.
type Config struct {
	Node      string        // its name
	Threshold time.Duration // requests that take so long are slow
	// Every is how many requests have one whose trace is kept. 0: requests are not recorded, and only slow ones are kept, without what they did.
	Every int
	// Export, unless nil, is called for each trace that is kept. It must be quick, and not keep the trace.
	Export func(*api.Trace)
}

// Log keeps slow and sampled requests. It is safe for concurrent use.
type Log struct {
	Config
	errors, slow counts

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		slow, sampled, requested ring
	}
}

// ring has the last requests that were kept for one reason.
type ring struct {
	total int64
	last  []api.Trace // the oldest is at total modulo its length, once it is full
}

func (x *ring) add(t *api.Trace) {
	if len(x.last) < api.TracesMax {
		x.last = append(x.last, *t)
	} else {
		x.last[x.total%api.TracesMax] = *t
	}
	x.total++
}

// each calls f for each request, the newest first.
func (x *ring) each(f func(t *api.Trace)) {
	for i := range len(x.last) {
		f(&x.last[(x.total-1-int64(i))%api.TracesMax])
	}
}

// New returns a log of the requests of a node.
func New(cfg Config) *Log { return &Log{Config: cfg} }

// Register registers the methods of the log. Their results have row keys.
func (l *Log) Register(r method.Registrar) {
	guard := authz.Guard{To: authz.Right, Right: acl.Read}
	r.HandleNames(api.MethodSlowRequests, 0, guard, func(context.Context, *api.NamesRequest) (reply.Result, error) {
		return l.Requests().Append, nil
	})
	r.HandleNames(api.MethodTraces, 1, guard, func(_ context.Context, q *api.NamesRequest) (reply.Result, error) {
		id := q.Names[0]
		if _, ok := trace.ParseID(id); !ok && id != "" {
			return nil, rpc.Errorf(rpc.CodeBadRequest, "a trace's id has 32 hexadecimal digits in lower case")
		}
		return l.Traces(id).Append, nil
	})
}

// Add is for rpc.ServerConfig.Traced.
func (l *Log) Add(s *rpc.TracedCall) {
	shape, kept := shapes[s.Method]
	caller := subject(s.Identity)
	if !kept || caller != nil && !caller.Restricted() { // a node's
		return
	}
	now := time.Now()
	t := api.Trace{SlowRequest: api.SlowRequest{
		EndMS: now.UnixMilli(), Method: s.Method, From: short(s.Peer.Addr.String()), Took: s.Took, Waited: s.Waited, Bytes: int64(s.Bytes),
	}, BeganUS: now.Add(-s.Took).UnixMicro()}
	if caller != nil {
		t.User, t.From = short(caller.Owner()), short(caller.From)
	}
	if s.Err != nil {
		t.Error = s.Err.Code.String()
	}
	t.Table, t.Row = shape.names(s)
	if shape == ofCursor {
		t.Table = short(s.Trace.Table())
	}
	if s.Trace != nil {
		addTrace(&t, s.Trace)
	}
	l.keep(&t, s)
	if s.Slow {
		l.countSlow(&t, now)
	}
	if l.Export != nil && t.Trace != "" {
		l.Export(&t)
	}
}

// addTrace adds what a request did, and its place in a trace: its caller's, or a new one.
func addTrace(t *api.Trace, r *trace.Record) {
	id := r.Parent.ID
	if id == (trace.ID{}) {
		id = trace.NewID()
	} else {
		t.Parent = r.Parent.Span.String()
	}
	t.Trace, t.Span, t.Tablet = id.String(), trace.NewSpanID().String(), r.FirstTablet()
	r.Stages(func(s trace.Stage, first, took time.Duration, times int64) {
		x := api.TraceStage{Name: s.String(), After: first, Took: took, Times: times}
		if s == trace.Replicas {
			x.Node = r.SlowestReplica()
		}
		t.Stages = append(t.Stages, x)
	})
	slices.SortStableFunc(t.Stages, func(a, b api.TraceStage) int { return cmp.Compare(a.After, b.After) })
	r.Counters(func(c trace.Counter, n int64) { t.Counts = append(t.Counts, api.TraceCount{Name: c.String(), N: n}) })
}

func (l *Log) keep(t *api.Trace, s *rpc.TracedCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.Slow:
		t.Kept = api.TraceSlow
		l.mu.slow.add(t)
	case s.Trace.Sampled:
		t.Kept = api.TraceSampled
		l.mu.sampled.add(t)
	default:
		t.Kept = api.TraceRequested
		l.mu.requested.add(t)
	}
}

// Requests returns the slow requests that are kept, the newest first.
func (l *Log) Requests() *api.SlowRequests {
	l.mu.Lock()
	s := &api.SlowRequests{Node: l.Node, Threshold: l.Threshold, Total: l.mu.slow.total}
	l.mu.slow.each(func(t *api.Trace) { s.Requests = append(s.Requests, t.SlowRequest) })
	l.mu.Unlock()
	now := time.Now()
	s.Slow, s.Errors = l.slowCounts(now), l.errorCounts(now)
	return s
}

// Traces returns the requests that are kept of a trace, or all if id is empty, the newest first.
func (l *Log) Traces(id string) *api.Traces {
	s := &api.Traces{Node: l.Node, Every: int64(l.Every)}
	l.mu.Lock()
	for _, x := range []*ring{&l.mu.slow, &l.mu.sampled, &l.mu.requested} {
		x.each(func(t *api.Trace) {
			if t.Trace != "" && (id == "" || t.Trace == id) {
				s.Traces = append(s.Traces, *t)
			}
		})
	}
	l.mu.Unlock()
	slices.SortStableFunc(s.Traces, func(a, b api.Trace) int { return int(b.EndMS - a.EndMS) })
	return s
}

func subject(identity any) *authz.Subject { return authz.Acting(identity) }

// short returns the start of a text, without a part of a character at its end.
func short(s string) string { return strings.ToValidUTF8(s[:min(len(s), textMax)], "") }

// shape is what the first parameters of a method are.
type shape int

const (
	others   shape = iota // neither a table nor a row
	ofTable               // table
	ofRow                 // table, row
	ofCursor              // a cursor
)

// shapes has the methods whose requests are kept.
var shapes = map[string]shape{
	api.MethodRead: ofRow, api.MethodMutate: ofRow, api.MethodCheckAndMutate: ofRow, api.MethodReadModifyWrite: ofRow,
	api.MethodReadRows: ofTable, api.MethodMutateRows: ofTable, api.MethodBulkWrite: ofTable, api.MethodBulkCommit: ofTable, api.MethodScanOpen: ofTable, api.MethodScanNext: ofCursor, api.MethodSampleRowKeys: ofTable,
	api.MethodCreateTable: ofTable, api.MethodRenameTable: ofTable, api.MethodDropTable: ofTable, api.MethodAlterTable: ofTable, api.MethodSetFamily: ofTable, api.MethodDropFamily: ofTable,
	api.MethodClearRows: ofTable, api.MethodDescribeTable: ofTable, api.MethodListTables: others,
	api.MethodSplitTablet: ofRow, api.MethodMoveTablet: ofRow, api.MethodMergeTablets: ofRow,
	api.MethodBlobRead: others, api.MethodBlobWrite: others, api.MethodBlobSeal: others,
}

// names returns the table and the row of a request.
func (x shape) names(s *rpc.TracedCall) (table string, row []byte) {
	if s.NumParams > 0 && (x == ofTable || x == ofRow) && isText(s.Params.Peek()) {
		table = short(string(s.Params.Bytes()))
		if s.NumParams > 1 && x == ofRow && isText(s.Params.Peek()) {
			b := s.Params.Bytes()
			row = bytes.Clone(b[:min(len(b), api.SlowRowBytesMax)])
		}
	}
	return table, row
}

func isText(k wire.Kind) bool { return k == wire.KindStr || k == wire.KindBytes }
