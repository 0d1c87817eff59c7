package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/fair"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Node is a running node.
type Node struct {
	cfg     Config
	log     *slog.Logger
	started time.Time

	// self is what the data folders say of the node.
	self selfIdentity
	// unlock lets another process have the folders; nil while this one has them not.
	unlock func()
	// serving is set while the node serves data.
	serving atomic.Bool
	// confirmed is set once the node's part in the lock service may serve others.
	confirmed atomic.Bool
	// stage says what a start waits for.
	stage atomic.Pointer[string]
	signs lifeSigns

	rpc     *rpc.Server
	lent    lent
	rpcAddr net.Addr
	http    *http.Server
	// profiles is nil without a socket for them.
	profiles *http.Server
	// passphrase encrypts the keys of authorities; empty for none.
	passphrase string
	// masterKeys encrypt the block store; none if it is in the clear.
	masterKeys []blobfs.MasterKey
	webAddr    net.Addr

	security *security // nil for a node that is open
	rights   *rights   // the same
	audit    *auditLog // the same
	// passable are the handlers of methods that other nodes may pass on.
	passable map[string]func(*rpc.Call)

	former  *formation.Former
	ring    *gossip.Ring // nil if gossip is off
	known   addresses
	removed removals
	peers   peers
	refused refusals // of files that say nothing
	epochs  epochGate
	voter   *voter
	meta    metaAccess
	// lock makes this process the node, through the session lockOf, which is of the
	// start, then of keepSession.
	lock    atomic.Pointer[session.Lock]
	lockOf  *session.Session
	catalog catalog
	fleetOf *blobFleet
	store   atomic.Pointer[blobfs.Store] // nil until it is open
	// client finds tablets wherever they are, as any client does; rows are METADATA's.
	client *client.Client
	rows   *metaRows
	// sorting has a value for each piece of a dead server's log that is sorted here.
	sorting chan struct{}
	server  atomic.Pointer[tabletServer] // the last one; nil until there is one
	// elsewhere knows where rows are that are not here; nil if nothing does.
	elsewhere *guide
	master    *master.Master

	limits  table.Limits
	filters filterCache
	costly  *fair.Gate // turns for work that filters make
	cursors cursors
	uploads uploads
	results resultMemory
	quotas  quotas

	// changing holds a value while the catalog is changed. Changes run under ctx,
	// which cancel ends in Close; see change.
	changing chan struct{}
	// swept is the epoch of the last reign in which leftovers of tables were taken away.
	swept  atomic.Uint64
	ctx    context.Context
	cancel context.CancelFunc
	// reign ends the node's candidacy for master.
	reign context.CancelFunc

	done    chan struct{}
	failure struct {
		sync.Once
		err error
	}
	background sync.WaitGroup
}

// Start brings a node up. It returns when the node serves, which for a node that
// waits for others may be long after. The error says which part did not come up and
// why; nothing runs then.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	n, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if err := n.run(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// prepare makes a node of which nothing runs.
func prepare(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Logger, started: time.Now(), done: make(chan struct{}), limits: table.DefaultLimits()}
	n.results = newResultMemory(cfg.budget().results)
	n.costly = fair.New(costlyTurns(), turnsWaitMax)
	n.cursors.bytesMax = cfg.budget().cursors
	n.quotas.began, n.quotas.changed = n.started, make(chan chan struct{})
	n.changing = make(chan struct{}, 1)
	n.sorting = make(chan struct{}, cfg.budget().sorts)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.peers.resolve, n.peers.dial = n.addressOf, n.dialNode
	n.known.removed = n.removed.has
	return n, nil
}

// run brings all of it up; after an error nothing runs.
func (n *Node) run(ctx context.Context) error {
	n.enter("the data folders")
	debug.SetMemoryLimit(n.cfg.runtimeBytes())
	listener, err := n.listen()
	if err != nil {
		n.cancel()
		return err
	}
	if err := n.start(ctx, listener); err != nil {
		listener.Close()
		return errors.Join(err, n.stopParts(context.Background()))
	}
	n.serving.Store(true)
	n.log.Info("node serves", "name", n.cfg.Name, "id", n.id(), "cluster", n.cluster(), "rpc", n.RPCAddr(), "http", n.HTTPAddr(),
		"server", n.server.Load().name, "started in", time.Since(n.started).Round(time.Millisecond))
	return nil
}

// enter says what the start waits for now.
func (n *Node) enter(stage string) {
	n.stage.Store(&stage)
	if n.cfg.Waiting != nil {
		n.cfg.Waiting(stage)
	}
}

// listen takes the port of the node first: a second node on the same port must
// not touch any data.
func (n *Node) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", n.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	n.rpcAddr = l.Addr()
	return l, nil
}

// start opens the parts, each when those are there that it needs. The port is open
// from early on: nodes find each other, and voters elect, before any data is served.
func (n *Node) start(ctx context.Context, listener net.Listener) error {
	dirs, err := n.takeFolders()
	if err != nil {
		return err
	}
	if err := n.openEncryption(ctx); err != nil {
		return err
	}
	if n.passphrase, err = ReadPassphrase(n.cfg.PassphraseFile); err != nil {
		return err
	}
	if err := n.enrol(ctx, dirs); err != nil {
		return err
	}
	if err := n.openSecurity(dirs); err != nil {
		return err
	}
	n.loadRemoved(dirs.Cluster)
	if err := n.openAudit(dirs.Node); err != nil {
		return err
	}
	early := n.security != nil && n.security.issuer.Load() != nil
	if early { // nobody may know the node before it has renewed its certificate
		n.background.Go(n.keepCertificate)
	}
	if err := dirs.Begin(); err != nil {
		return err
	}
	n.self.open(dirs)
	if err := n.serve(listener); err != nil {
		return err
	}
	if err := n.joinCluster(ctx); err != nil {
		return err
	}
	if err := n.openLockService(ctx); err != nil {
		return err
	}
	if err := n.openData(ctx); err != nil {
		return err
	}
	n.startMaster()
	n.watchDisks()
	n.background.Go(n.keepSession)
	n.background.Go(n.watchRemoval)
	n.background.Go(n.followRemoved)
	n.background.Go(n.keepAuthority)
	n.background.Go(n.followRollover)
	n.background.Go(n.followGossipKey)
	n.background.Go(n.severRefused)
	n.background.Go(n.followQuotas)
	n.background.Go(n.sweepLeftovers)
	if !early { // others renew it
		n.background.Go(n.keepCertificate)
	}
	n.background.Go(n.sweepStore)
	return nil
}

// takeFolders looks at the data folders and locks them: before anybody hears of the node, since
// another process may be it. What is wrong with them is told before any is made.
func (n *Node) takeFolders() (*identity.Folders, error) {
	if _, err := identity.Inspect(n.cfg.DataDirs); err != nil {
		return nil, err
	}
	var err error
	if n.unlock, err = identity.Lock(n.cfg.DataDirs); err != nil {
		return nil, err
	}
	return identity.Inspect(n.cfg.DataDirs) // another process may have ended meanwhile
}

// openData opens the block store, and makes the node a tablet server.
func (n *Node) openData(ctx context.Context) (err error) {
	n.enter("the block store")
	if err := n.openStore(ctx); err != nil {
		return fmt.Errorf("open the block store: %w", err)
	}
	n.enter("its tablet server")
	if n.client, err = client.Open(ctx, n.RPCAddr(), n.security.client(client.Config{Logger: n.log.With("part", "client")})); err != nil {
		return fmt.Errorf("connect to this node itself: %w", err)
	}
	n.elsewhere = newGuide(n.client)
	n.rows = &metaRows{meta: &n.meta, guard: n.guard, rows: n.client.Table(metadata.Name)}
	return n.becomeTabletServer(ctx)
}

// fail ends the node: it can acknowledge nothing any more.
func (n *Node) fail(err error) {
	n.failure.Do(func() {
		n.serving.Store(false)
		n.failure.err = err
		close(n.done)
	})
}

// Done is closed when the node has failed or was closed.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why the node failed, after Done is closed; nil if it was closed.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.failure.err
	default:
		return nil
	}
}

// RPCAddr returns the address that clients and other nodes connect to.
func (n *Node) RPCAddr() string { return n.self.address }

// HTTPAddr returns the address of metrics and health, or "" if there is none.
func (n *Node) HTTPAddr() string {
	if n.webAddr == nil {
		return ""
	}
	return n.webAddr.String()
}

// ID returns the node's id.
func (n *Node) ID() string { return n.id() }

// ClusterID returns the cluster's id.
func (n *Node) ClusterID() string { return n.cluster() }

// Close drains the node and stops it: no new work is taken, what was accepted is
// finished or, when ctx ends first, given up. Nothing that was acknowledged is
// lost either way.
func (n *Node) Close(ctx context.Context) error {
	n.serving.Store(false)
	err := n.stopParts(ctx)
	n.fail(nil)
	return err
}

// lastCommits is how long commits that were accepted get to become durable once ctx of Close has ended. They
// never do if too few nodes are left for the log to go on.
const lastCommits = 2 * time.Second

// abandonment is a context that ends so long after ctx. Then the tablet servers give up what still waits for their
// logs, so that the requests which wait for that end too: their rows' latches and the port's end wait for them.
func (n *Node) abandonment(ctx context.Context) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(lastCommits, cancel) })
	stop := context.AfterFunc(within, func() {
		if s := n.server.Load(); s != nil {
			s.abandon()
		}
	})
	return within, func() { stop(); cancel() }
}

// stopParts ends the parts in an order in which each still finds what it needs: the
// tablets write to the namespace as they close, so session and group come later.
func (n *Node) stopParts(ctx context.Context) error {
	var errs []error
	within, cancel := n.abandonment(ctx)
	defer cancel()
	n.stopMaster(ctx)
	// What is under way here and waits for METADATA ends: it may be this node that no longer serves it.
	if n.client != nil {
		errs = append(errs, n.client.Close())
	}
	if n.rpc != nil {
		errs = append(errs, n.rpc.Shutdown(ctx))
	}
	for _, s := range []*http.Server{n.http, n.profiles} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	n.endChanges(ctx)
	n.cursors.close()
	n.uploads.close()
	if s := n.server.Load(); s != nil {
		errs = append(errs, s.closeWithin(within))
	}
	errs = append(errs, n.closeStore())
	errs = append(errs, n.closeLockService(ctx), n.leaveCluster())
	n.peers.close()
	n.background.Wait()
	errs = append(errs, n.audit.close())
	if n.unlock != nil {
		n.unlock()
	}
	return errors.Join(errs...)
}
