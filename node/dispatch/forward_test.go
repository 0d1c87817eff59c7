package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session/sessiontest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// forward returns the parameters of a request that is forwarded for a user, with these parameters of its own.
func forward(method, user string, generation uint64, tokenID string, params ...any) func(*wire.Encoder) {
	return authztest.Values(method, user, generation, tokenID, "10.0.0.9:1", params, "")
}

// TestForwarded: a request to a node that is not the master is executed once, by the master's node, for its caller, and its answer is that
// node's.
func TestForwarded(t *testing.T) {
	c := newCluster(t, nil, "n1", "n2")
	c.become("n2")
	n1, n2 := c.nodes["n1"], c.nodes["n2"]
	ann := userNamed("ann")
	ann.Peer.Serial, ann.From = "5e", "10.0.0.7:99"
	n2.during = func(call *rpc.Call) {
		s := authz.SubjectOf(call)
		name, _, _ := s.Principal()
		if !s.Forwarded || name != "ann" || s.From != ann.From || s.Peer.Serial != ann.Peer.Serial || s.Peer.Kind != pki.Principal || call.NumParams != 1 {
			t.Errorf("the master's node executes it with %d parameters for %+v", call.NumParams, s)
		}
	}
	if got, err := n1.ask(t, ann, methodChange, "a"); got != "a" || err != nil || n1.ran.Load() != 0 || n2.ran.Load() != 1 {
		t.Errorf("the answer is %q, %v; %d and %d handlers ran", got, err, n1.ran.Load(), n2.ran.Load())
	}
	n2.names = func(context.Context, *api.NamesRequest) error { return api.ErrNoTable }
	if _, err := n1.ask(t, ann, methodRemove, "a"); !errors.Is(err, api.CodeTableNotFound) || n2.ran.Load() != 2 {
		t.Errorf("a request that the master's node rejects: %v", err)
	}
	if _, err := n1.ask(t, nodeNamed("n3"), methodChange, "a"); !errors.Is(err, rpc.CodeUnavailable) || n2.ran.Load() != 2 {
		t.Errorf("a node's request, which is not forwarded: %v", err)
	}
	if got, err := n1.ask(t, ann, methodRead, "b"); got != "b" || err != nil || n1.ran.Load() != 1 || n2.ran.Load() != 2 {
		t.Errorf("a method for every node: %q, %v", got, err)
	}
}

// newViews returns two nodes that each have a view of users' rights of their own: ann administers the cluster in both.
func newViews(t *testing.T) (*cluster, map[string]*authztest.Rights) {
	t.Helper()
	views := map[string]*authztest.Rights{"n1": {}, "n2": {}}
	for _, r := range views {
		r.Set(t, map[string]acl.Rights{"ann": acl.Admin, "bob": 0})
	}
	return newCluster(t, func(id string, checkLeader func() error) *authz.Rights {
		return &authz.Rights{Cache: acl.NewCache(views[id]), CheckLeader: checkLeader}
	}, "n1", "n2"), views
}

// TestAuthorizedOnBothNodes (D2): a request is rejected by the node that gets it, and by the master's node if only that one knows of the
// loss of a right.
func TestAuthorizedOnBothNodes(t *testing.T) {
	c, views := newViews(t)
	c.become("n2")
	n1, n2 := c.nodes["n1"], c.nodes["n2"]
	if _, err := n1.ask(t, userNamed("bob"), methodChange, "a"); !errors.Is(err, rpc.CodePermissionDenied) || n1.dialed.Load() != 0 {
		t.Errorf("without the right: %v, forwarded %d times", err, n1.dialed.Load())
	}
	views["n2"].Set(t, map[string]acl.Rights{"ann": 0})
	if _, err := n1.ask(t, userNamed("ann"), methodChange, "a"); !errors.Is(err, rpc.CodePermissionDenied) || n1.dialed.Load() != 1 {
		t.Errorf("with a right that the master's node does not have: %v, forwarded %d times", err, n1.dialed.Load())
	}
	views["n2"].Set(t, nil)
	if _, err := n1.ask(t, userNamed("ann"), methodChange, "a"); !errors.Is(err, rpc.CodeUnauthenticated) {
		t.Errorf("a user that was removed: %v", err)
	}
	views["n2"].Put(acl.PrincipalFile("ann"), (&acl.Principal{Name: "ann", Generation: 5, Created: time.Now()}).Encode())
	if _, err := n1.ask(t, userNamed("ann"), methodChange, "a"); !errors.Is(err, rpc.CodeUnauthenticated) {
		t.Errorf("a certificate of an earlier generation: %v", err)
	}
	if n2.ran.Load() != 0 {
		t.Errorf("%d handlers ran", n2.ran.Load())
	}
}

// TestRightLostMeanwhile (I12): a right that is lost while a forwarded request is executed is checked again before the answer, by the
// master's node alone.
func TestRightLostMeanwhile(t *testing.T) {
	c, views := newViews(t)
	c.become("n2")
	n1, n2 := c.nodes["n1"], c.nodes["n2"]
	lost := map[string]acl.Rights{"ann": 0}
	n2.during = func(*rpc.Call) { views["n1"].Set(t, lost) }
	if _, err := n1.ask(t, userNamed("ann"), methodChange, "a"); err != nil {
		t.Errorf("a right that the master's node has: %v", err)
	}
	views["n1"].Set(t, map[string]acl.Rights{"ann": acl.Admin})
	n2.during = func(*rpc.Call) { views["n2"].Set(t, lost) }
	_, err := n1.ask(t, userNamed("ann"), methodChange, "a")
	var denied *api.PermissionError
	if !errors.As(api.FromRPC(err), &denied) || !denied.Executed {
		t.Errorf("the answer is %v, want a denial of an executed change", err)
	}
}

// TestOnBehalfIsForNodes: only nodes forward requests, and only requests that the master's node executes.
func TestOnBehalfIsForNodes(t *testing.T) {
	c := newCluster(t, nil, "n1")
	c.become("n1")
	n := c.nodes["n1"]
	for _, caller := range []*authz.Subject{userNamed("ann"), {}, nil} {
		if err := n.Call(t, anyOf(caller), MethodOnBehalf, forward(methodChange, "ann", 0, "", "a")); err == nil {
			t.Errorf("%+v forwards a request", caller)
		}
	}
	for _, method := range []string{methodRead, methodEarly, methodFirst, MethodOnBehalf, "x.unknown", ""} {
		if err := n.Call(t, nodeNamed("n2"), MethodOnBehalf, forward(method, "ann", 0, "", "a")); !errors.Is(err, rpc.CodeUnknownMethod) {
			t.Errorf("%q is forwarded: %v", method, err)
		}
	}
	good := wiretest.Encode(forward(methodChange, "ann", 0, "", "a"))
	for name, params := range map[string]func(*wire.Encoder){
		"nothing": authztest.Values(), "no user": authztest.Values(methodChange), "no parameters": authztest.Values(methodChange, "ann", 0, "", ""),
		"a user without a name": authztest.Values(methodChange, 7, 0, "", "", []any{}, ""), "parameters of no array": authztest.Values(methodChange, "ann", 0, "", "", 7, ""),
		"a bad token": forward(methodChange, "ann", 0, "zz", "a"),
	} {
		if err := n.Call(t, nodeNamed("n2"), MethodOnBehalf, params); err == nil {
			t.Errorf("%s is forwarded", name)
		}
	}
	if n.ran.Load() != 0 {
		t.Errorf("%d handlers ran", n.ran.Load())
	}
	if err := n.Call(t, nodeNamed("n2"), MethodOnBehalf, func(e *wire.Encoder) { e.Raw(good) }); err != nil || n.ran.Load() != 1 {
		t.Errorf("a good request: %v", err)
	}
	if err := n.Call(t, nodeNamed("n2"), MethodOnBehalf, authztest.Values(methodChange, "ann", 0, "", "", []any{"a"})); err != nil || n.ran.Load() != 2 {
		t.Errorf("a request without a serial, from an earlier version: %v", err)
	}
}

// anyOf returns a subject as an identity; none for nil.
func anyOf(s *authz.Subject) any {
	if s == nil {
		return nil
	}
	return s
}

// tokens is access tokens in a lock service.
type tokens struct {
	t    *testing.T
	meta *namespace.Access
}

// put writes a file, and starts another epoch of rights.
func (x tokens) put(path string, data []byte) {
	x.t.Helper()
	_, err := x.meta.Set(x.t.Context(), path, data, metaapi.AnyGeneration)
	if err == nil {
		_, err = x.meta.Set(x.t.Context(), acl.EpochFile, []byte(path), metaapi.AnyGeneration)
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// add adds a token of a user and returns its record.
func (x tokens) add(user string, generation uint64, life time.Duration) *token.AccessRecord {
	x.t.Helper()
	now := time.Now()
	r, err := token.NewAccessRecord(token.New(token.Access, pki.Fingerprint{}, now, life), now, user, generation, "")
	if err != nil {
		x.t.Fatal(err)
	}
	x.put(authz.TokenPath(r.ID), r.Encode())
	return r
}

// newTokenCluster returns nodes of a cluster whose rights are files of a lock service: ann and bob administer it.
func newTokenCluster(t *testing.T, ids ...string) (*cluster, tokens) {
	t.Helper()
	meta := &namespace.Access{Client: sessiontest.NewClient(t)}
	if err := meta.Open(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { meta.Close(context.Background(), slog.New(slog.DiscardHandler)) })
	x := tokens{t, meta}
	policy := &acl.Policy{Table: acl.Cluster}
	for _, name := range []string{"ann", "bob"} {
		x.put(acl.PrincipalFile(name), (&acl.Principal{Name: name, Generation: 3, Created: time.Now()}).Encode())
		var err error
		if policy, err = policy.Grant(acl.Grant{Principal: name, Rights: acl.Admin}); err != nil {
			t.Fatal(err)
		}
	}
	x.put(acl.ClusterFile, policy.Encode())
	return newCluster(t, func(_ string, checkLeader func() error) *authz.Rights { return authz.NewRights(meta, checkLeader) }, ids...), x
}

// TestForwardedToken (D2): a request by an access token is executed by the master's node for the token's user, as long as the token
// is valid.
func TestForwardedToken(t *testing.T) {
	c, x := newTokenCluster(t, "n1", "n2")
	c.become("n2")
	n1, n2 := c.nodes["n1"], c.nodes["n2"]
	r := x.add("ann", 3, time.Hour)
	caller := &authz.Subject{Peer: pki.Peer{Kind: pki.Anonymous}, From: "10.0.0.7:99"}
	caller.CredentialToken.Store(&authz.CredentialToken{Record: r})
	n2.during = func(call *rpc.Call) {
		if name, generation, s := authz.SubjectOf(call).Principal(); name != "ann" || generation != 3 || s == nil || s.Record.ID != r.ID {
			t.Errorf("executed for %q of generation %d with %+v", name, generation, s)
		}
	}
	if got, err := n1.ask(t, caller, methodChange, "a"); got != "a" || err != nil || n2.ran.Load() != 1 {
		t.Fatalf("the answer is %q, %v", got, err)
	}
	if err := x.meta.Delete(t.Context(), authz.TokenPath(r.ID), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	// The first node has the token's record in the cache of this epoch; the other one reads it again.
	if _, err := n1.ask(t, caller, methodChange, "a"); !errors.Is(err, rpc.CodeUnauthenticated) || n2.ran.Load() != 1 {
		t.Errorf("a revoked token: %v", err)
	}
}

// TestTokenIsReadAgain (D2): the master's node rejects a forwarded request whose token is revoked, expired, damaged, or another
// user's.
func TestTokenIsReadAgain(t *testing.T) {
	c, x := newTokenCluster(t, "n1")
	c.become("n1")
	n := c.nodes["n1"]
	good, bobs, old, short := x.add("ann", 3, time.Hour), x.add("bob", 3, time.Hour), x.add("ann", 2, time.Hour), x.add("ann", 3, time.Millisecond)
	damaged := x.add("ann", 3, time.Hour)
	x.put(authz.TokenPath(damaged.ID), []byte("x"))
	for !time.Now().After(short.Ends) {
		time.Sleep(time.Millisecond)
	}
	never := token.New(token.Access, pki.Fingerprint{}, time.Now(), time.Hour).ID()
	for name, s := range map[string]struct {
		id         token.ID
		generation uint64
		want       error
	}{
		"a valid token":            {good.ID, 3, nil},
		"no token":                 {never, 3, rpc.CodeUnauthenticated},
		"another user's":           {bobs.ID, 3, rpc.CodeUnauthenticated},
		"of another generation":    {good.ID, 2, rpc.CodeUnauthenticated},
		"of an earlier generation": {old.ID, 2, rpc.CodeUnauthenticated},
		"expired":                  {short.ID, 3, rpc.CodeUnauthenticated},
	} {
		before := n.ran.Load()
		err := n.Call(t, nodeNamed("n2"), MethodOnBehalf, forward(methodChange, "ann", s.generation, s.id.String(), "a"))
		if !errors.Is(err, s.want) || (err == nil) != (s.want == nil) || (n.ran.Load() > before) != (s.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, s.want)
		}
	}
	before := n.ran.Load()
	if err := n.Call(t, nodeNamed("n2"), MethodOnBehalf, forward(methodChange, "ann", 3, damaged.ID.String(), "a")); err == nil || n.ran.Load() != before {
		t.Errorf("a damaged record: %v", err)
	}
}

// TestForwardedOnlyOnce: a node that is not the master does not forward a forwarded request again, so two nodes that each take the other
// for the master do not send a request to and fro.
func TestForwardedOnlyOnce(t *testing.T) {
	c := newCluster(t, nil, "n1", "n2")
	one, two := "n1", "n2"
	c.nodes[one].master.Store(&two)
	c.nodes[two].master.Store(&one)
	if err := c.nodes[two].Call(t, nodeNamed(one), MethodOnBehalf, forward(methodChange, "ann", 0, "", "a")); !errors.Is(err, rpc.CodeUnavailable) {
		t.Errorf("a request that was forwarded to a node that is not the master: %v", err)
	}
	if n := c.nodes[two].dialed.Load(); n != 0 {
		t.Errorf("it is forwarded again, %d times", n)
	}
}

// TestMasterChanges: a request is forwarded again while its node is not answered by a master, and finds the new one.
func TestMasterChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *cluster
		gone := "n9"
		for name, change := range map[string]struct {
			before, after func(n1 *testNode)
			executes      string
		}{
			"none is known at first":       {func(n *testNode) { n.master.Store(nil) }, func(*testNode) { c.become("n2") }, "n2"},
			"it is another":                {func(*testNode) { c.become("n2"); c.nodes["n2"].epoch.Store(0) }, func(*testNode) { c.become("n3") }, "n3"},
			"its address is unknown":       {func(n *testNode) { n.master.Store(&gone) }, func(*testNode) { c.become("n3") }, "n3"},
			"it is this node":              {func(*testNode) { c.become("n2"); c.nodes["n2"].epoch.Store(0) }, func(*testNode) { c.become("n1") }, "n1"},
			"it does not serve data first": {func(*testNode) { c.become("n2"); c.nodes["n2"].failing.Store(errNotServing) }, func(*testNode) { c.nodes["n2"].failing.Store(nil) }, "n2"},
			"it is not reached first":      {func(n *testNode) { c.become("n3"); n.unreachable.Store(true) }, func(n *testNode) { n.unreachable.Store(false) }, "n3"},
		} {
			c = newCluster(t, nil, "n1", "n2", "n3")
			n1 := c.nodes["n1"]
			change.before(n1)
			time.AfterFunc(10*time.Second, func() { change.after(n1) })
			if got, err := n1.ask(t, userNamed("ann"), methodChange, "a"); got != "a" || err != nil {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			for id, n := range c.nodes {
				if ran := n.ran.Load(); (ran == 1) != (id == change.executes) || ran > 1 {
					t.Errorf("%s: %s executed it %d times", name, id, ran)
				}
			}
		}
	})
}

// TestBecomesMasterWithoutRight (D2): a node that becomes the master while it forwards a request checks the caller's rights again before
// it executes the request itself.
func TestBecomesMasterWithoutRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "n1")
		time.AfterFunc(time.Second, func() {
			c.rights.Set(t, map[string]acl.Rights{"ann": 0})
			c.become("n1")
		})
		if _, err := c.nodes["n1"].ask(t, userNamed("ann"), methodChange, "a"); !errors.Is(err, rpc.CodePermissionDenied) || c.nodes["n1"].ran.Load() != 0 {
			t.Errorf("a user that has lost the right: %v", err)
		}
	})
}

// TestNoMaster: a request ends with its caller's deadline, or after masterTime if that is earlier, when there is no master, and reports
// that it was not executed.
func TestNoMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newCluster(t, nil, "n1").nodes["n1"]
		began := time.Now()
		_, err := n.ask(t, userNamed("ann"), methodChange, "a")
		if took := time.Since(began); !errors.Is(err, rpc.CodeUnavailable) || took < masterTime || took > masterTime+2*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		n.names = func(context.Context, *api.NamesRequest) error { t.Error("executed without a master"); return nil }
		conn, err := n.Dial(t.Context(), userNamed("ann"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := conn.Call(ctx, methodRemove, authztest.Values("a"), nil); err == nil || errors.Is(err, api.CodeOutcomeUnknown) {
			t.Errorf("after the deadline: %v", err)
		}
	})
}

// TestBrokenConnection (D3): the outcome of a request that was sent to the master's node is unknown when the connection ends before the
// answer. It is not forwarded again.
func TestBrokenConnection(t *testing.T) {
	c := newCluster(t, nil, "n1", "n2")
	c.become("n2")
	n1, n2 := c.nodes["n1"], c.nodes["n2"]
	var last *rpc.Conn
	n1.onDial = func(conn *rpc.Conn) { last = conn }
	n2.during = func(*rpc.Call) { _ = last.Close() }
	_, err := n1.ask(t, userNamed("ann"), methodChange, "a")
	if !errors.Is(err, api.CodeOutcomeUnknown) || !strings.Contains(err.Error(), "node n2") || n2.ran.Load() != 1 {
		t.Errorf("the connection ends: %v, executed %d times", err, n2.ran.Load())
	}
	n2.during = nil
	if got, err := n1.ask(t, userNamed("ann"), methodChange, "a"); got != "a" || err != nil || n1.dialed.Load() != 2 {
		t.Errorf("the next request: %q, %v", got, err)
	}
}
