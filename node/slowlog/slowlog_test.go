package slowlog

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// call returns a slow call of a user, with strings as parameters.
func call(method string, params ...string) *rpc.TracedCall {
	var e wire.Encoder
	for _, p := range params {
		e.Bin([]byte(p))
	}
	return &rpc.TracedCall{
		Method: method, Peer: &rpc.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}}, Identity: &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: "ann"}, From: "10.0.0.1:5"},
		Params: wire.NewDecoder(bytes.Clone(e.Bytes())), NumParams: len(params), Bytes: len(e.Bytes()), Took: time.Second, Waited: time.Millisecond, Slow: true,
	}
}

// TestRequests (TRC1): the newest requests are kept, with what they were about, however large it is.
func TestRequests(t *testing.T) {
	l := New(Config{Node: "n1", Threshold: time.Second / 2})
	long := strings.Repeat("x", 1<<16)
	failed := call(api.MethodMutate, "web", long, "not a mutation")
	failed.Err = rpc.Errorf(rpc.CodeOverloaded, "memory")
	l.Add(failed)
	next := call(api.MethodScanNext, "cursor")
	next.Trace = &trace.Record{}
	next.Trace.About("scanned")
	l.Add(next)
	l.Add(call(api.MethodListTables))
	l.Add(call(api.MethodRead, long, "r"))
	l.Add(call("lock.get", "x"))          // of the lock service
	l.Add(call(api.MethodAddUser, "bob")) // the first parameter is no table
	fromNode := call(api.MethodRead, "METADATA", "r")
	fromNode.Identity = &authz.Subject{Peer: pki.Peer{Kind: pki.Node}}
	l.Add(fromNode)
	s := l.Requests()
	if s.Total != 4 || len(s.Requests) != 4 || s.Threshold != time.Second/2 {
		t.Fatalf("%+v", s)
	}
	if r := s.Requests[0]; r.Method != api.MethodRead || len(r.Table) != textMax || string(r.Row) != "r" || r.User != "ann" || r.From != "10.0.0.1:5" || r.Took != time.Second || r.Waited != time.Millisecond {
		t.Errorf("%+v", r)
	}
	if r := s.Requests[2]; r.Table != "scanned" || r.Row != nil {
		t.Errorf("the next batch of a scan: %+v", r)
	}
	if r := s.Requests[3]; r.Table != "web" || len(r.Row) != api.SlowRowBytesMax || r.Error != "overloaded" {
		t.Errorf("%+v", r)
	}
	for i := range 2 * api.SlowRequestsMax {
		l.Add(call(api.MethodRead, "t", string(rune('a'+i%26))))
	}
	s = l.Requests()
	if len(s.Requests) != api.SlowRequestsMax || s.Total != 4+2*api.SlowRequestsMax || string(s.Requests[0].Row) != string(rune('a'+(2*api.SlowRequestsMax-1)%26)) {
		t.Errorf("%d requests, the newest %+v", len(s.Requests), s.Requests[0])
	}
	var e wire.Encoder
	s.Append(&e)
	var got api.SlowRequests
	d := wire.NewDecoder(e.Bytes())
	if err := got.Decode(&d); err != nil || len(got.Requests) != len(s.Requests) || got.Requests[7].Took != time.Second {
		t.Error(errors.Join(err, errors.New("decoded otherwise")))
	}
}
