package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/node/activity"
	"github.com/steledb/stele/node/appprofiles"
	"github.com/steledb/stele/node/authority"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/backups"
	"github.com/steledb/stele/node/bigtableport"
	"github.com/steledb/stele/node/blobs"
	"github.com/steledb/stele/node/blockstore"
	"github.com/steledb/stele/node/budget"
	"github.com/steledb/stele/node/bulk"
	"github.com/steledb/stele/node/candidate"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/clients"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/dataapi"
	"github.com/steledb/stele/node/dialer"
	"github.com/steledb/stele/node/disks"
	"github.com/steledb/stele/node/dispatch"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossipkey"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/keyheat"
	"github.com/steledb/stele/node/locate"
	"github.com/steledb/stele/node/lockclient"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/monitor"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/nodeadmin"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/quorum"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/recentlog"
	"github.com/steledb/stele/node/registry"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/replication"
	"github.com/steledb/stele/node/results"
	"github.com/steledb/stele/node/roots"
	"github.com/steledb/stele/node/schemabundles"
	"github.com/steledb/stele/node/signin"
	"github.com/steledb/stele/node/slowlog"
	"github.com/steledb/stele/node/status"
	"github.com/steledb/stele/node/tables"
	"github.com/steledb/stele/node/tabletadmin"
	"github.com/steledb/stele/node/tabletserver"
	"github.com/steledb/stele/node/tokenauth"
	"github.com/steledb/stele/node/usage"
	"github.com/steledb/stele/node/users"
	"github.com/steledb/stele/node/voter"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Node is a running node.
type Node struct {
	cfg     Config
	log     *slog.Logger
	logs    *recentlog.Service // keeps what log gets
	started time.Time

	// self is the node's identity, from its data directories.
	self identity.Self
	// unlock releases the data directory lock; nil if it is not held.
	unlock func()
	life   lifecycle
	// confirmed is set once the node may serve its part of the lock service to others.
	confirmed atomic.Bool

	rpc         *rpc.Server
	reservation budget.Reservation
	rpcAddr     net.Addr
	monitor     *monitor.Service
	// passphrase encrypts the authorities' keys; empty for none.
	passphrase string
	// masterKeys encrypt the block store; empty if it is not encrypted.
	masterKeys []blobfs.MasterKey

	security  *certs.Transport // nil on an open node
	authority *authority.Service
	gossipKey *gossipkey.Service
	enrolment *enrol.Service
	tokenAuth *tokenauth.Service
	authz     *authz.Authorizer
	dispatch  *dispatch.Dispatcher
	dialer    *dialer.Dialer
	quorum    quorum.Config

	formation   *formation.Service
	members     *members.Service
	removed     *removal.Service
	peers       peers.Set
	refused     loglimit.ByReason // connections, requests to join, and damaged files
	epochs      command.Gate
	commands    *command.Service
	voter       *voter.Voter
	lockServer  *lockserver.Service
	meta        namespace.Access
	locks       *lockclient.Client
	catalog     namespace.Catalog
	blobMembers *members.Blobs
	roots       *roots.Reader
	disks       *disks.Service
	blockStore  *blockstore.Service
	// client is the node's client of the cluster; rows accesses METADATA through it.
	client       *client.Client
	rows         *metarows.Table
	tabletServer *tabletserver.Service
	// locator locates rows that this node does not serve.
	locator   func() locate.Locator
	locate    *locate.Service
	candidate *candidate.Candidate

	limits      table.Limits
	data        *dataapi.Service
	bulk        *bulk.Service
	blobs       *blobs.Service
	backups     *backups.Service
	replication *replication.Service
	registry    *registry.Service
	appProfiles *appprofiles.Service
	bundles     *schemabundles.Service
	clients     *clients.Service
	results     results.Memory
	quotas      *quotas.Service
	usage       *usage.Service
	keyHeat     *keyheat.Service
	changes     *changes.Changes
	users       *users.Service
	nodeAdmin   *nodeadmin.Service
	status      *status.Service
	activity    *activity.Service
	slow        *slowlog.Log
	tabletAdmin *tabletadmin.Service
	tables      *tables.Service
	bigtable    *bigtableport.Port // nil if there is none
	// consoleUsers has the clients of the console's users; nil without an HTTP port.
	consoleUsers *signin.Users

	ctx    context.Context
	cancel context.CancelFunc

	background sync.WaitGroup
}

// Start starts a node. It returns when the node serves, which may take long for a node that waits for others. The error names the
// part that failed; nothing runs then.
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

// prepare creates a node without starting anything.
func prepare(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	logs := recentlog.New(cfg.Name)
	cfg.Logger = slog.New(logs.Handler(cfg.Logger.Handler()))
	n := &Node{cfg: cfg, log: cfg.Logger, logs: logs, started: time.Now(), life: lifecycle{waiting: cfg.Waiting, done: make(chan struct{})}, limits: table.DefaultLimits()}
	n.results = results.New(cfg.budget().Results)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.newServices()
	n.life.failed = func(err error) {
		if disks.Stalled(err) { // such a process ends without Close
			n.members.Announce(err.Error())
		}
	}
	n.peers.Resolve, n.peers.Dial = n.members.AddressOf, n.dialer.Dial
	return n, nil
}

// run starts everything. After an error nothing runs.
func (n *Node) run(ctx context.Context) error {
	n.life.enter("the data folders")
	listener, err := n.listen()
	if err != nil {
		n.cancel()
		return err
	}
	ctx, cancel := n.life.whileRunning(ctx)
	defer cancel()
	if err := n.start(ctx, listener); err != nil {
		if failure := n.life.failure(); failure != nil { // the start waited for what cannot come
			err = failure
		}
		listener.Close()
		return errors.Join(err, n.stopParts(context.Background()))
	}
	n.life.serving.Store(true)
	n.log.Info("node serves", "name", n.cfg.Name, "id", n.self.ID(), "cluster", n.self.Cluster(), "rpc", n.RPCAddr(), "http", n.HTTPAddr(),
		"server", n.tabletServer.Current().Name, "took", time.Since(n.started).Round(time.Millisecond))
	return nil
}

// listen opens the node's port first: a second process on the same port must not touch any data.
func (n *Node) listen() (net.Listener, error) {
	l, err := n.cfg.Network.Listen(n.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	n.rpcAddr = l.Addr()
	return l, nil
}

// start starts the parts in the order of their dependencies. The port is open early: nodes find each other, and voters elect a
// leader, before data is served.
func (n *Node) start(ctx context.Context, listener net.Listener) error {
	dirs, err := n.takeFolders()
	if err != nil {
		return err
	}
	if err := n.openEncryption(ctx); err != nil {
		return err
	}
	if n.passphrase, err = certs.ReadPassphrase(n.cfg.PassphraseFile); err != nil {
		return err
	}
	if err := n.enrol(ctx, dirs); err != nil {
		return err
	}
	if err := n.openSecurity(dirs); err != nil {
		return err
	}
	n.removed.Load(dirs.Cluster)
	if err := n.authz.OpenAudit(n.cfg.FS, n.cfg.Security, dirs.Node, n.cfg.AuditTo, n.log); err != nil {
		return err
	}
	early := n.authority.Holds()
	if early { // peers may reject the node until its certificate is renewed
		n.background.Go(func() { n.security.KeepRenewed(n.ctx) })
	}
	if err := dirs.Begin(); err != nil {
		return err
	}
	n.self.Open(dirs)
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
	if n.bigtable, err = openBigtable(n); err != nil {
		return err
	}
	n.candidate.Start(n.voter.ForMaster(), n.members, n.tabletsForMaster())
	n.disks.Watch()
	n.disks.Observe()
	n.background.Go(n.keepSession)
	n.background.Go(n.removed.Watch)
	n.background.Go(n.removed.Follow)
	n.background.Go(func() { n.voter.RemoveOldLogs(n.tabletServer.Leased) })
	n.background.Go(n.authority.Keep)
	n.background.Go(n.authority.Follow)
	if !n.cfg.keysByHand {
		n.background.Go(n.gossipKey.Follow)
	}
	n.background.Go(func() { n.security.DisconnectRejected(n.ctx, rejections{n}) })
	n.background.Go(n.quotas.Follow)
	n.background.Go(n.tables.RemoveOrphans)
	n.background.Go(n.tables.PurgeExpired)
	if !early { // other nodes sign the renewal
		n.background.Go(func() { n.security.KeepRenewed(n.ctx) })
	}
	n.background.Go(n.blobs.CollectGarbage)
	n.background.Go(n.backups.Run)
	n.background.Go(n.backups.RunReplays)
	n.background.Go(n.replication.Run)
	return nil
}

// takeFolders inspects and locks the data directories before the node is visible to others, because another process may be the
// node. Errors are found before any directory is created.
func (n *Node) takeFolders() (*identity.Folders, error) {
	if _, err := identity.InspectFS(n.cfg.FS, n.cfg.DataDirs); err != nil {
		return nil, err
	}
	var err error
	if n.unlock, err = identity.LockFS(n.cfg.FS, n.cfg.DataDirs); err != nil {
		return nil, err
	}
	return identity.InspectFS(n.cfg.FS, n.cfg.DataDirs) // another process may have changed them before it ended
}

// openEncryption reads the master keys and checks the data directories against them, before anything is written.
func (n *Node) openEncryption(ctx context.Context) (err error) {
	if n.masterKeys, err = n.cfg.Encryption.Await(ctx, n.log, func() { n.life.enter("the command that prints the master keys") }); err != nil {
		return err
	}
	return blobfs.CheckEncryption(blobfs.Config{FS: n.cfg.FS, Folders: identity.BlobFolders(n.cfg.DataDirs), MasterKeys: n.masterKeys})
}

// openData opens the block store and the tablet server.
func (n *Node) openData(ctx context.Context) (err error) {
	n.life.enter("the block store")
	if err := n.blockStore.Open(ctx, n.masterKeys); err != nil {
		return fmt.Errorf("open the block store: %w", err)
	}
	n.life.enter("its tablet server")
	if n.client, err = client.Open(ctx, n.RPCAddr(), client.Config{Dial: connector{n}.toAny, Logger: n.log.With("part", "client"), SilenceMax: peerSilenceMax, DialTimeout: peerDialTimeout}); err != nil {
		return fmt.Errorf("connect to this node itself: %w", err)
	}
	n.rows = metarows.NewTable(&n.meta, n.locks.Guard, n.client.Table(metadata.Name))
	if err := n.tabletServer.Start(ctx); err != nil {
		return err
	}
	n.background.Go(func() { n.keyHeat.Run(n.ctx, n.masterKeys) }) // it needs the tablet servers
	return nil
}

// Done is closed when the node has failed or was closed.
func (n *Node) Done() <-chan struct{} { return n.life.done }

// Err returns why the node failed, after Done is closed; nil if it was closed.
func (n *Node) Err() error { return n.life.failure() }

// RPCAddr returns the address that clients and other nodes connect to.
func (n *Node) RPCAddr() string { return n.self.Address }

// HTTPAddr returns the address of metrics and health, or "" if there is none.
func (n *Node) HTTPAddr() string { return n.monitor.Addr() }

// ID returns the node's id.
func (n *Node) ID() string { return n.self.ID() }

// ClusterID returns the cluster's id.
func (n *Node) ClusterID() string { return n.self.Cluster() }

// Close drains and stops the node: it accepts no new work, and finishes what was accepted, or gives it up when ctx ends. No
// acknowledged write is lost either way.
func (n *Node) Close(ctx context.Context) error {
	n.life.serving.Store(false)
	err := n.stopParts(ctx)
	n.life.fail(nil)
	return err
}

// lastCommits is how long accepted commits may take to become durable after ctx of Close has ended. They never do if too few nodes
// are left for the log.
const lastCommits = 2 * time.Second

// abandonment returns a context that ends lastCommits after ctx. Then giveUp makes the tablet servers give up what waits for their logs:
// row latches and the shutdown of the port wait for those requests.
func abandonment(ctx context.Context, giveUp func()) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(lastCommits, cancel) })
	stop := context.AfterFunc(within, giveUp)
	return within, func() { stop(); cancel() }
}

// stopParts stops the parts so that each still finds what it needs: tablets write to the namespace while they close, so session and
// Raft group come later.
func (n *Node) stopParts(ctx context.Context) error {
	var errs []error
	within, cancel := abandonment(ctx, n.tabletServer.CancelWaits)
	defer cancel()
	n.candidate.Stop()
	if n.voter != nil { // so that the others need not detect that this node is gone
		n.voter.TransferLeadership(ctx)
	}
	n.bigtable.Close(ctx)
	// Cancel what waits for METADATA: it may be this node that no longer serves it.
	if n.client != nil {
		errs = append(errs, n.client.Close())
	}
	if n.rpc != nil {
		errs = append(errs, n.rpc.Shutdown(ctx))
	}
	errs = append(errs, n.monitor.Close())
	n.consoleUsers.Close()
	n.changes.End(ctx)
	n.data.Close()
	n.bulk.Close(within)
	n.blobs.Close()
	errs = append(errs, n.tabletServer.Close(within))
	errs = append(errs, n.blockStore.Close())
	errs = append(errs, n.closeLockService(ctx), n.leaveCluster())
	n.peers.Close()
	n.background.Wait()
	errs = append(errs, n.authz.Audit.Close())
	if n.unlock != nil {
		n.unlock()
	}
	return errors.Join(errs...)
}
