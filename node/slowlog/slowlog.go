// Package slowlog keeps the last requests of a node that took long: which method, table and row, from which user, how long it waited and ran, and
// how it ended. The paper's §9 names "detailed traces of a sample of the important actions" as what helped its authors to find problems.
//
// Only requests of users' methods are kept, not those of nodes to nodes, nor those that wait on purpose. A request that does not take long costs two readings of
// the clock. The package starts no goroutine.
//
//	SL1. At most SlowRequestsMax requests are kept, with keys of at most SlowRowBytesMax: 200 KiB a node, whatever users send.
package slowlog

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// textMax bounds names and addresses that are kept.
const textMax = 128

// Log keeps slow requests. It is safe for concurrent use.
type Log struct {
	name      string
	threshold time.Duration

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		total int64
		ring  []api.SlowRequest // the oldest is at total modulo its length, once it is full
	}
}

// New returns a log of the requests of a node that take threshold or more.
func New(node string, threshold time.Duration) *Log { return &Log{name: node, threshold: threshold} }

// Register registers the method of the log. Its result has row keys.
func (l *Log) Register(r method.Registrar) {
	r.HandleNames(api.MethodSlowRequests, 0, authz.Guard{To: authz.Right, Right: acl.Read}, func(context.Context, *api.NamesRequest) (reply.Result, error) {
		return l.Requests().Append, nil
	})
}

// Add is for rpc.ServerConfig.Slow.
func (l *Log) Add(s *rpc.SlowCall) {
	shape, kept := shapes[s.Method]
	caller := subject(s.Identity)
	if !kept || caller != nil && !caller.Restricted() { // a node's
		return
	}
	r := api.SlowRequest{EndMS: time.Now().UnixMilli(), Method: s.Method, From: short(s.Peer.Addr.String()), Took: s.Took, Waited: s.Waited, Bytes: int64(s.Bytes)}
	if caller != nil {
		r.User, r.From = short(caller.Owner()), short(caller.From)
	}
	if s.Err != nil {
		r.Error = s.Err.Code.String()
	}
	r.Table, r.Row = shape.names(s)
	l.keep(&r)
}

func (l *Log) keep(r *api.SlowRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.ring) < api.SlowRequestsMax {
		l.mu.ring = append(l.mu.ring, *r)
	} else {
		l.mu.ring[l.mu.total%api.SlowRequestsMax] = *r
	}
	l.mu.total++
}

// Requests returns what is kept, the newest first.
func (l *Log) Requests() *api.SlowRequests {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &api.SlowRequests{Node: l.name, Threshold: l.threshold, Total: l.mu.total}
	for i := range len(l.mu.ring) {
		s.Requests = append(s.Requests, l.mu.ring[(l.mu.total-1-int64(i))%api.SlowRequestsMax])
	}
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
	api.MethodReadRows: ofTable, api.MethodMutateRows: ofTable, api.MethodScanOpen: ofTable, api.MethodScanNext: ofCursor, api.MethodSampleRowKeys: ofTable,
	api.MethodCreateTable: ofTable, api.MethodDropTable: ofTable, api.MethodAlterTable: ofTable, api.MethodSetFamily: ofTable, api.MethodDropFamily: ofTable,
	api.MethodClearRows: ofTable, api.MethodDescribeTable: ofTable, api.MethodListTables: others,
	api.MethodSplitTablet: ofRow, api.MethodMoveTablet: ofRow, api.MethodMergeTablets: ofRow,
	api.MethodBlobRead: others, api.MethodBlobWrite: others, api.MethodBlobSeal: others,
}

// names returns the table and the row of a request.
func (x shape) names(s *rpc.SlowCall) (table string, row []byte) {
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
