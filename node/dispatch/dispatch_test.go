package dispatch

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The methods that test nodes serve, each with its guard in register.
const (
	methodRead   = "x.read"   // served by every node
	methodList   = "x.list"   // served by every node, of no names
	methodChange = "x.change" // executed by the master's node
	methodRemove = "x.remove" // executed by the master's node, of one name
	methodFirst  = "x.first"  // needs a leader first
	methodWatch  = "x.watch"  // needs a leader throughout, of no names
	methodEarly  = "x.early"  // served before the node serves data
	methodCerts  = "x.certs"  // needs certificates
	methodCert   = "x.cert"   // needs certificates, of one name
)

// cluster is the nodes of a test.
type cluster struct {
	t      *testing.T
	rights *authztest.Rights
	nodes  map[string]*testNode
}

// testNode is a node with a dispatcher, a port and connections to the other nodes, and nothing else.
type testNode struct {
	*Dispatcher
	*authztest.Server
	epoch    atomic.Uint64
	master   atomic.Pointer[string] // the last master that the node knows
	failing  atomic.Pointer[rpc.Error]
	leadless atomic.Pointer[rpc.Error]
	ran      atomic.Int64 // handlers that ran
	during   func(*rpc.Call)
	names    func(ctx context.Context, r *api.NamesRequest) error
	dialed   atomic.Int64 // connections to other nodes
	onDial   func(*rpc.Conn)
	// unreachable is set while this node reaches no other one.
	unreachable atomic.Bool
	z           *authz.Authorizer
}

var (
	errNotServing = &rpc.Error{Code: rpc.CodeUnavailable, Message: "the node does not serve data", Retryable: true}
	errNoLeader   = &rpc.Error{Code: rpc.CodeUnavailable, Message: "the lock service has no leader", Retryable: true}
)

// newCluster returns nodes of a cluster with certificates, of which none is the master. If view is not nil, it has the nodes' rights.
func newCluster(t *testing.T, view func(id string, checkLeader func() error) *authz.Rights, ids ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, rights: &authztest.Rights{}, nodes: map[string]*testNode{}}
	c.rights.Set(t, map[string]acl.Rights{"ann": acl.Admin, "bob": 0})
	for _, id := range ids {
		n := &testNode{}
		limits := table.DefaultLimits()
		n.z = &authz.Authorizer{Ctx: t.Context(), Limits: &limits, Meta: &namespace.Access{}, CheckLeader: n.checkLeader, Serving: n.serving}
		if view != nil {
			n.z.Rights = view(id, n.checkLeader)
		} else {
			n.z.Rights = &authz.Rights{Cache: acl.NewCache(c.rights), CheckLeader: n.checkLeader}
		}
		c.nodes[id] = n
		c.start(id, n)
	}
	return c
}

// start serves a node's methods until the test ends.
func (c *cluster) start(id string, n *testNode) {
	set := &peers.Set{
		Resolve: func(to string) (string, bool) { return to, c.nodes[to] != nil },
		Dial: func(ctx context.Context, to string) (*rpc.Conn, error) {
			n.dialed.Add(1)
			if n.unreachable.Load() {
				return nil, errors.New("connection refused")
			}
			conn, err := c.nodes[to].Dial(ctx, nodeNamed(id))
			if err == nil && n.onDial != nil {
				n.onDial(conn)
			}
			return conn, err
		},
	}
	c.t.Cleanup(set.Close)
	n.Server = authztest.Start(c.t, rpc.ServerConfig{Admit: n.z.Admitter}, func(srv *rpc.Server) {
		n.Dispatcher = New(Config{
			ID: func() string { return id }, Authz: n.z, Peers: set, Serving: n.serving, CheckLeader: n.checkLeader, MasterEpoch: n.epoch.Load,
			LastMaster: func() (string, uint64) {
				if m := n.master.Load(); m != nil {
					return *m, 1
				}
				return "", 0
			},
		}, srv)
		n.register()
	})
}

// openNode returns a node without certificates.
func openNode(t *testing.T) *testNode {
	t.Helper()
	c := &cluster{t: t, nodes: map[string]*testNode{}}
	n := &testNode{}
	n.z = &authz.Authorizer{Open: true, Ctx: t.Context(), CheckLeader: n.checkLeader, Serving: n.serving}
	c.start("n1", n)
	return n
}

func (n *testNode) register() {
	var all method.Registrar = n.Dispatcher
	all.Handle(methodRead, rpc.Spawned, authz.Guard{To: authz.Known}, n.handle)
	all.HandleNames(methodList, 0, authz.Guard{To: authz.Known}, n.handleNames)
	all.Handle(methodChange, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true}, n.handle)
	all.HandleNames(methodRemove, 1, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("x")}, n.handleNames)
	all.Handle(methodFirst, rpc.Spawned, authz.Guard{To: authz.Own, Leader: authz.LeaderFirst}, n.handle)
	all.HandleNames(methodWatch, 0, authz.Guard{To: authz.Own, Leader: authz.LeaderThroughout}, n.handleNames)
	n.Early().Handle(methodEarly, rpc.Spawned, authz.Guard{}, n.handle)
	n.Secured().Handle(methodCerts, rpc.Spawned, authz.Guard{To: authz.Known}, n.handle)
	n.Secured().HandleNames(methodCert, 1, authz.Guard{To: authz.Known}, n.handleNames)
}

// handle answers with its node's number of calls and the call's first parameter.
func (n *testNode) handle(c *rpc.Call) {
	n.ran.Add(1)
	if n.during != nil {
		n.during(c)
	}
	param := c.Params.Str()
	c.Reply(func(e *wire.Encoder) { e.Str(param) })
}

func (n *testNode) handleNames(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	n.ran.Add(1)
	if n.names != nil {
		if err := n.names(ctx, r); err != nil {
			return nil, err
		}
	}
	return func(e *wire.Encoder) { e.Str("done") }, nil
}

func (n *testNode) serving() error {
	if err := n.failing.Load(); err != nil {
		return err
	}
	return nil
}

func (n *testNode) checkLeader() error {
	if err := n.leadless.Load(); err != nil {
		return err
	}
	return nil
}

// become makes a node the master, and reports it to the others.
func (c *cluster) become(id string) {
	for other, n := range c.nodes {
		n.epoch.Store(0)
		if other == id {
			n.epoch.Store(7)
		}
		n.master.Store(&id)
	}
}

// ask calls a method with a parameter and returns its result.
func (n *testNode) ask(t *testing.T, caller any, method, param string) (result string, err error) {
	t.Helper()
	err = n.Ask(t, caller, method, authztest.Values(param), func(d *wire.Decoder) error {
		result = d.Str()
		return d.Err()
	})
	return result, err
}

func userNamed(name string) *authz.Subject {
	return &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: name}, From: "127.0.0.1:1"}
}

func nodeNamed(id string) *authz.Subject {
	return &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: id}}
}

// TestServedFirst: a method is not executed before the node serves data, except those that are registered for that.
func TestServedFirst(t *testing.T) {
	n := newCluster(t, nil, "n1").nodes["n1"]
	n.epoch.Store(1)
	n.failing.Store(errNotServing)
	for _, method := range []string{methodFirst, methodWatch, methodChange, MethodOnBehalf} {
		params := authztest.Values()
		if method == MethodOnBehalf {
			params = forward(methodChange, "ann", 0, "", "a")
		}
		if err := n.Call(t, nodeNamed("n2"), method, params); !errors.Is(err, rpc.CodeUnavailable) || n.ran.Load() != 0 {
			t.Errorf("%s: %v, %d handlers ran", method, err, n.ran.Load())
		}
	}
	if err := n.Call(t, nodeNamed("n2"), methodEarly, authztest.Values()); err != nil {
		t.Errorf("an early method: %v", err)
	}
	n.failing.Store(nil)
	if err := n.Call(t, nodeNamed("n2"), methodFirst, authztest.Values()); err != nil {
		t.Errorf("once the node serves: %v", err)
	}
}

// TestLeaderFirst: without a leader of the lock service a method that needs it fails at once, and others are executed.
func TestLeaderFirst(t *testing.T) {
	n := newCluster(t, nil, "n1").nodes["n1"]
	n.leadless.Store(errNoLeader)
	for method, want := range map[string]bool{methodFirst: false, methodWatch: false, methodRead: true, methodEarly: true} {
		before := n.ran.Load()
		err := n.Call(t, nodeNamed("n2"), method, authztest.Values())
		if ran := n.ran.Load() > before; ran != want || (err == nil) != want || err != nil && !errors.Is(err, rpc.CodeUnavailable) {
			t.Errorf("%s: %v, executed %v", method, err, ran)
		}
	}
}

// TestLeaderThroughout: a call that needs a leader throughout is cancelled when the leader is lost, and fails for that reason. A result
// or an error that comes without the loss is returned as it is.
func TestLeaderThroughout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newCluster(t, nil, "n1").nodes["n1"]
		n.names = func(ctx context.Context, _ *api.NamesRequest) error {
			<-ctx.Done()
			return ctx.Err()
		}
		lost := time.AfterFunc(time.Minute/2, func() { n.leadless.Store(errNoLeader) })
		began := time.Now()
		var e *rpc.Error
		if err := n.Call(t, nodeNamed("n2"), methodWatch, authztest.Values()); !errors.As(err, &e) || e.Message != errNoLeader.Message {
			t.Errorf("a call whose leader is lost: %v", err)
		}
		if took := time.Since(began); took < time.Minute/2 || took > time.Minute/2+leaderPeriod {
			t.Errorf("it is cancelled after %v", took)
		}
		lost.Stop()
		n.leadless.Store(nil)
		for _, want := range []error{nil, api.ErrNoTable} {
			n.names = func(ctx context.Context, _ *api.NamesRequest) error {
				time.Sleep(10 * leaderPeriod)
				return want
			}
			err := n.Call(t, nodeNamed("n2"), methodWatch, authztest.Values())
			if got := api.FromRPC(err); !errors.Is(got, want) {
				t.Errorf("a call with a leader: %v, want %v", err, want)
			}
		}
		n.names = func(ctx context.Context, _ *api.NamesRequest) error { // it was done before the cancellation
			n.leadless.Store(errNoLeader)
			<-ctx.Done()
			return nil
		}
		if err := n.Call(t, nodeNamed("n2"), methodWatch, authztest.Values()); err != nil {
			t.Errorf("a call that succeeds although the leader is lost: %v", err)
		}
	})
}

// TestNamesHandlers: a method of names gets them, its caller and what the caller requests, or does not run.
func TestNamesHandlers(t *testing.T) {
	n := newCluster(t, nil, "n1").nodes["n1"]
	n.epoch.Store(1)
	ann := userNamed("ann")
	n.names = func(ctx context.Context, r *api.NamesRequest) error {
		want := authz.ChangeRequest{Caller: ann, Method: methodRemove, Name: "a"}
		if got := authz.RequestIn(ctx); got != want || authz.SubjectIn(ctx) != ann || r.Names[0] != "a" {
			t.Errorf("the handler gets %+v of %v, names %q", got, authz.SubjectIn(ctx), r.Names)
		}
		if at, ok := ctx.Deadline(); r.Timeout > 0 && (!ok || time.Until(at) > r.Timeout) {
			t.Errorf("the context ends at %v, with a timeout of %v", at, r.Timeout)
		}
		return nil
	}
	for _, params := range []func(*wire.Encoder){authztest.Values("a"), authztest.Values("a", map[string]any{"timeout_ms": 5000})} {
		if err := n.Call(t, ann, methodRemove, params); err != nil {
			t.Error(err)
		}
	}
	for name, params := range map[string]func(*wire.Encoder){
		"too few names": authztest.Values(), "too many": authztest.Values("a", "b"), "no name": authztest.Values(7), "an unknown option": authztest.Values("a", map[string]any{"x": 1}),
	} {
		before := n.ran.Load()
		if err := n.Call(t, ann, methodRemove, params); err == nil || n.ran.Load() != before {
			t.Errorf("%s: %v", name, err)
		}
	}
	n.names = func(ctx context.Context, r *api.NamesRequest) error { return api.ErrNoTable }
	if err := n.Call(t, ann, methodRemove, authztest.Values("a")); !errors.Is(err, api.CodeTableNotFound) {
		t.Errorf("a handler that fails: %v", err)
	}
	n.names = func(ctx context.Context, r *api.NamesRequest) error {
		if authz.SubjectIn(ctx) != nil || authz.RequestIn(ctx).Name != "" {
			t.Errorf("a node is restricted, or a request without names has one")
		}
		return nil
	}
	if err := n.Call(t, nodeNamed("n2"), methodList, authztest.Values()); err != nil {
		t.Error(err)
	}
}

// TestUnguardedMethod (D1): a port that admits by the dispatcher's guards takes no method without one.
func TestUnguardedMethod(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a method without a guard was registered")
		}
	}()
	z := &authz.Authorizer{}
	authztest.Start(t, rpc.ServerConfig{Admit: z.Admitter}, func(srv *rpc.Server) {
		New(Config{Authz: z}, srv).Handle("x.guarded", rpc.Spawned, authz.Guard{}, func(*rpc.Call) {})
		srv.Handle("x.bare", rpc.Spawned, func(*rpc.Call) {})
	})
}

// TestOpenNode: an open node executes the changes itself, although it may not be the master, and rejects methods that need
// certificates.
func TestOpenNode(t *testing.T) {
	n := openNode(t)
	for _, method := range []string{methodRead, methodChange, methodRemove, methodEarly} {
		before := n.ran.Load()
		if _, err := n.ask(t, nil, method, "a"); err != nil || n.ran.Load() != before+1 {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, method := range []string{methodCerts, methodCert} {
		before := n.ran.Load()
		if _, err := n.ask(t, nil, method, "a"); !errors.Is(err, api.CodeOpenCluster) || n.ran.Load() != before {
			t.Errorf("%s: %v", method, err)
		}
	}
	secured := newCluster(t, nil, "n1").nodes["n1"]
	for _, method := range []string{methodCerts, methodCert} {
		if _, err := secured.ask(t, userNamed("bob"), method, "a"); err != nil {
			t.Errorf("%s of a node with certificates: %v", method, err)
		}
	}
}
