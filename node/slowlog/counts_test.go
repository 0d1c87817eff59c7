package slowlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// failing returns a call of a user that failed.
func failing(user, method string, code rpc.Code, params ...string) *rpc.TracedCall {
	c := call(method, params...)
	c.Identity = &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: user}, From: "10.0.0.1:5"}
	c.Err = rpc.Errorf(code, "message of %s", user)
	return c
}

// TestErrors: failed requests are counted by method, code, table and user; those of nodes are not.
func TestErrors(t *testing.T) {
	l := New(Config{Node: "n1"})
	for range 3 {
		l.CountError(failing("ann", api.MethodRead, rpc.CodeOverloaded, "web", "r"))
	}
	l.CountError(failing("bob", api.MethodRead, rpc.CodeOverloaded, "web", "r"))
	l.CountError(failing("bob", api.MethodAddUser, rpc.CodeBadRequest, "eve"))
	fromNode := failing("n2", api.MethodRead, rpc.CodeOverloaded, "METADATA", "r")
	fromNode.Identity = &authz.Subject{Peer: pki.Peer{Kind: pki.Node}}
	l.CountError(fromNode)
	l.CountError(failing("ann", "meta.keep_alive", rpc.CodeOverloaded)) // nodes are not known by name on an open cluster
	got := l.Requests().Errors
	if len(got) != 3 || got[0].N != 3 || got[0].User != "ann" || got[0].Table != "web" || got[0].Code != "overloaded" || got[0].Method != api.MethodRead || got[0].Message != "message of ann" {
		t.Errorf("%+v", got)
	}
	if e := got[1]; e.Method != api.MethodAddUser || e.Table != "" || e.User != "bob" {
		t.Errorf("the parameter of a method about no table is taken for one: %+v", e)
	}
}

// TestErrorsBounded: neither tables nor users of failed requests use up memory, all failures are counted, and old ones are forgotten.
func TestErrorsBounded(t *testing.T) {
	x := New(Config{})
	now := time.Unix(60_000, 0)
	for i := range 1000 {
		x.errors.add(kind{"read", "table_not_found", fmt.Sprint(i), "eve"}, &tally{n: 1}, now)
	}
	if got := x.errorCounts(now); len(got) != countsPerUser+1 || got[0].Table != api.ErrorsOther || got[0].N != 1000-countsPerUser || got[0].User != "eve" {
		t.Errorf("one user: %d counts, the first %+v", len(got), got[0])
	}
	for i := range 5000 {
		x.errors.add(kind{"read", "table_not_found", "t", fmt.Sprint("user", i)}, &tally{n: 1}, now)
	}
	total := int64(0)
	got := x.errorCounts(now)
	for _, e := range got {
		total += e.N
	}
	if len(got) > countsPerMinute+1 || total != 6000 {
		t.Errorf("many users: %d counts, of %d failures", len(got), total)
	}
	for i := range 2 * api.ErrorMinutes {
		x.errors.add(kind{"read", "overloaded", "t", "ann"}, &tally{n: 1}, now.Add(time.Duration(1+i)*time.Minute))
	}
	if got := x.errorCounts(now.Add(2 * api.ErrorMinutes * time.Minute)); len(got) != 1 || got[0].N != api.ErrorMinutes {
		t.Errorf("later: %+v", got)
	}
	if got := x.errorCounts(now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("after an hour: %+v", got)
	}
}

// TestSlowCounts: slow requests are counted by method, table and user, with the longest, however many others there are meanwhile.
func TestSlowCounts(t *testing.T) {
	l := New(Config{Node: "n1", Threshold: time.Millisecond})
	slow := func(user, method string, took time.Duration, params ...string) {
		c := call(method, params...)
		c.Identity, c.Took, c.Slow = &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: user}, From: "10.0.0.1:5"}, took, true
		l.Add(c)
	}
	slow("ann", api.MethodRead, 3*time.Second, "web", "long")
	slow("ann", api.MethodRead, time.Second, "web", "r")
	for range 2 * api.SlowRequestsMax {
		slow("bob", api.MethodMutate, 2*time.Millisecond, "web", "hot")
	}
	got := l.Requests().Slow
	if len(got) != 2 || got[0].N != 2 || got[0].User != "ann" || got[0].Method != api.MethodRead || got[0].Table != "web" || got[0].Took != 4*time.Second ||
		got[0].Longest != 3*time.Second || string(got[0].Row) != "long" || got[0].LastMS == 0 || got[1].N != 2*api.SlowRequestsMax {
		t.Errorf("%+v", got)
	}
}
