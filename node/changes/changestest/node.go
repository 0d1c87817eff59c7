package changestest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/dispatch"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/raftmeta/session/sessiontest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// ID is the node's id. Cluster is the cluster's.
const (
	ID      = "n1"
	Cluster = "c1"
)

// Node is a node of a new cluster.
type Node struct {
	*changes.Changes
	Catalog *namespace.Catalog
	Master  *master.Master
	Limits  *table.Limits
	// EndMastership ends the node's mastership, and returns when it has ended.
	EndMastership func()
	t             testing.TB
}

// New returns a node with certificates that is the master. The first user of the cluster, Admin, has all rights. The node has no audit log.
func New(t testing.TB) *Node {
	t.Helper()
	n := start(t, false)
	if err := n.Catalog.FoundRights(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	n.runMaster()
	return n
}

// NewOpen returns a node without certificates. It is not the master.
func NewOpen(t testing.TB) *Node {
	t.Helper()
	return start(t, true)
}

func start(t testing.TB, open bool) *Node {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	meta := &namespace.Access{Client: sessiontest.NewClient(t)}
	if err := meta.Open(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { meta.Close(context.Background(), log) })
	limits := table.DefaultLimits()
	serves := func() error { return nil }
	z := &authz.Authorizer{Open: open, Ctx: t.Context(), Limits: &limits, Meta: meta, CheckLeader: serves, Serving: serves}
	if !open {
		z.Rights = authz.NewRights(meta, serves)
	}
	var background sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		background.Wait()
	})
	n := &Node{Catalog: &namespace.Catalog{Meta: meta}, Limits: &limits, EndMastership: func() {}, t: t}
	n.Changes = changes.New(changes.Config{
		Log: log, Ctx: ctx, Cancel: cancel, Background: &background, Meta: meta, Authz: z, Master: func() *master.Master { return n.Master },
	})
	return n
}

// group is a Raft group whose leader is this node. It implements master.Group.
type group struct{ master.Group }

func (group) Leads() (bool, <-chan struct{}) { return true, nil }
func (group) Voters() []master.Voter         { return nil }

// runMaster makes the node the master.
func (n *Node) runMaster() {
	n.t.Helper()
	if _, err := n.Meta.Set(n.t.Context(), master.LockPath, nil, 0); err != nil {
		n.t.Fatal(err)
	}
	n.Master = master.New(master.Config{
		ID: ID, Group: group{}, Pause: time.Minute, Logger: n.Log,
		Servers: func(context.Context) ([]master.Server, error) { return nil, errors.New("no servers") },
		Acquire: func(ctx context.Context) (master.Lock, error) {
			return n.Meta.Current().Acquire(ctx, master.LockPath, api.Exclusive, session.LockOptions{})
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Master.Run(ctx)
	}()
	n.EndMastership = func() {
		cancel()
		<-ended
	}
	n.t.Cleanup(func() { n.EndMastership() })
	for n.Master.Epoch() == 0 {
		if n.t.Context().Err() != nil {
			n.t.Fatal("the node does not become the master")
		}
		time.Sleep(time.Millisecond)
	}
}

// Epoch returns the epoch of the node's mastership, 0 if it is not the master.
func (n *Node) Epoch() uint64 {
	if n.Master == nil {
		return 0
	}
	return n.Master.Epoch()
}

// Serve serves methods at a port of the node.
func (n *Node) Serve(register ...func(method.Registrar)) *authztest.Server {
	n.t.Helper()
	return authztest.Start(n.t, rpc.ServerConfig{Admit: n.Authz.Admitter}, func(srv *rpc.Server) {
		d := dispatch.New(dispatch.Config{
			ID: func() string { return ID }, Authz: n.Authz, Serving: n.Authz.Serving, CheckLeader: n.Authz.CheckLeader, MasterEpoch: n.Epoch,
			LastMaster: func() (string, uint64) { return ID, n.Epoch() },
		}, srv)
		for _, f := range register {
			f(d)
		}
	})
}

// Put writes a file of the namespace, without regard for its generation. It starts no epoch of rights.
func (n *Node) Put(path string, data []byte) {
	n.t.Helper()
	if _, err := n.Meta.Set(n.t.Context(), path, data, api.AnyGeneration); err != nil {
		n.t.Fatal(err)
	}
}

// Generation returns the generation of a file, 0 if there is none.
func (n *Node) Generation(path string) uint64 {
	n.t.Helper()
	f, err := n.Meta.Get(n.t.Context(), path)
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		n.t.Fatal(err)
	}
	return f.Generation
}

// Admin returns the first user of the cluster, with a certificate.
func Admin() *authz.Subject { return User(keydir.FirstPrincipal, 0) }

// User returns a user with a certificate of that generation.
func User(name string, generation uint64) *authz.Subject {
	return &authz.Subject{
		Peer: pki.Peer{Kind: pki.Principal, Name: name, Generation: generation, Cluster: Cluster, Ends: time.Now().Add(time.Hour)}, From: "127.0.0.1:1",
	}
}

// AsNode returns the node itself as a caller.
func AsNode() *authz.Subject {
	return &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: ID, Cluster: Cluster}}
}
