package node

import (
	"context"
	"path/filepath"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/appprofiles"
	"github.com/steledb/stele/node/assign"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/backups"
	"github.com/steledb/stele/node/blobs"
	"github.com/steledb/stele/node/blockstore"
	"github.com/steledb/stele/node/bulk"
	"github.com/steledb/stele/node/candidate"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/clients"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/dataapi"
	"github.com/steledb/stele/node/dialer"
	"github.com/steledb/stele/node/disks"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/keyheat"
	"github.com/steledb/stele/node/locate"
	"github.com/steledb/stele/node/lockclient"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/quorum"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/registry"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/replication"
	"github.com/steledb/stele/node/roots"
	"github.com/steledb/stele/node/schemabundles"
	"github.com/steledb/stele/node/tables"
	"github.com/steledb/stele/node/tabletadmin"
	"github.com/steledb/stele/node/tabletserver"
	"github.com/steledb/stele/node/usage"
	"github.com/steledb/stele/node/users"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// newServices creates the services of the node and connects them. What the start opens later they get by functions.
func (n *Node) newServices() {
	n.candidate = candidate.New(candidate.Config{Ctx: n.ctx, Background: &n.background, Log: n.log, ID: n.self.ID, Meta: &n.meta, Stable: n.cfg.VoterStable})
	theMaster, rows := n.candidate.Master, func() *metarows.Table { return n.rows }
	masterEpoch := n.candidate.Epoch
	n.dialer = dialer.New(dialer.Config{ID: n.self.ID, Cluster: n.self.Cluster, AddressOf: func(id string) (string, bool) { return n.members.AddressOf(id) }, Connect: connector{n}.toNode})
	n.quorum = quorum.Config{ID: n.self.ID, Leased: func() bool { return n.tabletServer.Leased() },
		Members: func() []gossip.Member { return n.members.Gossiped() }, Group: func() quorum.Group {
			if group := n.raftGroup(); group != nil { // not a nil pointer in an interface
				return group
			}
			return nil
		}}
	n.authz = &authz.Authorizer{Open: true, Ctx: n.ctx, Limits: &n.limits, Meta: &n.meta, CheckLeader: n.quorum.Check, Serving: n.checkServing}
	n.removed = removal.New(removal.Config{Ctx: n.ctx, Log: n.log, FS: n.cfg.FS, File: filepath.Join(n.cfg.DataDirs[0], removal.FileName), ID: n.self.ID, Cluster: n.self.Cluster,
		Meta: &n.meta, Catalog: &n.catalog, MayRemove: func(ctx context.Context, id string) error { return n.nodeAdmin.CheckQuorumWithout(ctx, id) }, Fail: n.life.fail, Forget: func(gone map[string]bool) {
			n.members.ForgetRemoved(gone)
			if n.security != nil {
				n.background.Go(func() { n.security.DisconnectRemoved(n.ctx, gone) })
			}
		}})
	n.disks = disks.New(disks.Config{Ctx: n.ctx, Background: &n.background, FS: n.cfg.FS, Dirs: n.cfg.DataDirs, ReserveBytes: n.cfg.ReserveBytes, Fail: n.life.fail,
		Retired: func() map[string]error { return n.blockStore.Retired() }, Report: func(folder string, err error) { n.blockStore.Report(folder, err) }})
	n.members = members.New(members.Config{Ctx: n.ctx, Background: &n.background, Log: n.log, Began: n.started, Self: &n.self, Name: n.cfg.Name, Zone: n.cfg.Zone,
		Version: Version(), HTTP: n.HTTPAddr, DiskSpace: n.disks.Space, DiskGrowth: n.disks.Growth, LogDiskFull: func() (full, votes bool) { return n.voter.DiskFull() }, Meta: &n.meta, Catalog: &n.catalog, Removed: n.removed.Has,
		Look: func(all []gossip.Member) { n.voter.CheckEpochs(all) }, DialNode: n.dialer.Dial})
	n.blobMembers = members.NewBlobs(n.members)
	n.changes = changes.New(changes.Config{Log: n.log, Ctx: n.ctx, Cancel: n.cancel, Background: &n.background, Meta: &n.meta, Authz: n.authz,
		Master: theMaster})
	n.locks = lockclient.New(lockclient.Config{Ctx: n.ctx, Log: n.log, Name: n.cfg.Name, Self: &n.self, Meta: &n.meta, Catalog: &n.catalog,
		Group: func() lockclient.Group {
			if group := n.raftGroup(); group != nil {
				return group
			}
			return nil
		}, Members: n.members.Gossiped, Addresses: n.members.Addresses, Connect: func(ctx context.Context, addr string) (*rpc.Conn, error) {
			return rpc.Dial(ctx, addr, rpc.ConnConfig{MessageTimeout: lockMessageTimeout, Dialer: connector{n}.toAny})
		}})
	n.blockStore = blockstore.New(blockstore.Config{Background: &n.background, Log: n.log, FS: n.cfg.FS, DataDirs: n.cfg.DataDirs, ExtentBytes: n.cfg.ExtentBytes, Reserve: n.disks.Reserve,
		Repair: n.cfg.Tuning.Repair, GC: n.cfg.Tuning.GC,
		Budget: n.cfg.budget(), Locks: n.locks, Meta: &n.meta, Catalog: &n.catalog, Members: n.blobMembers, Unready: n.unready})
	n.lockServer = lockserver.New(lockserver.Config{Ctx: n.ctx, Background: &n.background, Log: n.log, MemoryBytes: n.cfg.MemoryBytes, SystemPaths: systemPaths,
		Authz: n.authz, Group: func() lockserver.Group {
			if group := n.raftGroup(); group != nil {
				return group
			}
			return nil
		}, Elsewhere: n.locks.NotVoting, Confirmed: n.confirmed.Load, Master: func() string { id, _ := n.epochs.Last(); return id }})
	n.users = users.New(users.Config{Log: n.log, Catalog: &n.catalog, Meta: &n.meta, Authz: n.authz, Changes: n.changes,
		ForgetQuota: func(ctx context.Context, name string) (bool, error) { return n.quotas.ForgetUser(ctx, name) },
		Transport:   func() *certs.Transport { return n.security }, Signer: func(ctx context.Context) (*pki.Authority, error) { return n.authority.UserSigner(ctx) }, Cluster: n.ClusterID})
	n.newCertificates()
	n.commands = command.New(command.Config{Log: n.log, ID: n.self.ID, RaftEpoch: n.self.RaftEpoch, Peers: &n.peers, Master: theMaster, Meta: &n.meta, Gate: &n.epochs,
		Serving: n.checkServing, Promote: n.authority.Promote,
		BecomeVoter: func(ctx context.Context, h command.Header, i master.Invitation) error {
			return n.voter.StartVoting(ctx, h, i)
		}})
	n.roots = &roots.Reader{Catalog: &n.catalog, Meta: &n.meta, Rows: rows, Store: n.blockStore.Store}
	n.tabletServer = tabletserver.New(tabletserver.Config{Ctx: n.ctx, Background: &n.background, Log: n.log, ID: n.self.ID, Addr: n.RPCAddr, Locks: n.locks, Catalog: &n.catalog,
		Table: rows, Roots: n.roots, Store: n.blockStore.Store, Members: n.blobMembers, MetadataNodes: func() []string { return n.client.MetadataNodes() }, Commands: n.commands,
		Fail: n.life.fail, Budget: n.cfg.budget(), Reservation: &n.reservation, Sizes: n.cfg.Tuning.Tablets})
	n.quotas = quotas.New(quotas.Config{Ctx: n.ctx, Began: n.started, Log: n.log, Catalog: &n.catalog, Meta: &n.meta, Authz: n.authz, Changes: n.changes,
		Peers: &n.peers, Epochs: &n.epochs, ID: n.self.ID, MasterEpoch: masterEpoch, CheckUser: n.users.Check,
		Members: func() []blobfs.Member { return n.blobMembers.Members() }, Usage: func(ctx context.Context, tableID uint64) (*api.Usage, error) { return n.usage.OfAll(ctx, tableID) },
		Server: func() quotas.Server {
			s := n.tabletServer.Current()
			return quotas.Server{Name: s.Name, Tablets: s.Users, Metadata: s.Metadata}
		}})
	n.usage = usage.New(usage.Config{Log: n.log, Catalog: &n.catalog, Meta: &n.meta, Authz: n.authz, Peers: &n.peers, ID: n.self.ID,
		Members: func() []blobfs.Member { return n.blobMembers.Members() }, Rows: rows, Owners: n.quotas.Owners,
		Users: n.tabletServer.Users, Metadata: n.tabletServer.Metadata})
	n.keyHeat = keyheat.New(keyheat.Config{Log: n.log, FS: n.cfg.FS, Dir: filepath.Join(n.cfg.DataDirs[0], keyheat.DirName), Name: n.cfg.Name, ID: n.self.ID, Catalog: &n.catalog, Peers: &n.peers,
		Members: func() []blobfs.Member { return n.blobMembers.Members() }, Authz: n.authz, Rows: rows, Users: n.tabletServer.Users, Metadata: n.tabletServer.Metadata})
	n.tabletAdmin = tabletadmin.New(tabletadmin.Config{Log: n.log, NodeName: n.cfg.Name, ID: n.self.ID, Limits: &n.limits, TabletsMax: n.cfg.tabletsRequestedMax, Authz: n.authz,
		Catalog: &n.catalog, Peers: &n.peers, Masters: &n.epochs, Rows: rows, Master: theMaster, TabletsOf: n.tabletServer.Of, Find: n.members.Find})
	n.tables = tables.New(tables.Config{Ctx: n.ctx, Background: &n.background, Log: n.log, ID: n.self.ID, Limits: &n.limits, Authz: n.authz, Catalog: &n.catalog, Meta: &n.meta,
		Changes: n.changes, Users: n.users, Quotas: n.quotas, Tablets: n.tabletAdmin, MasterEpoch: masterEpoch, NudgeMaster: n.commands.NudgeMaster,
		DroppedFor: n.cfg.Tuning.DroppedFor})
	n.blobs = blobs.New(blobs.Config{Ctx: n.ctx, Background: &n.background, Log: n.log, FS: n.cfg.FS, NodeName: n.cfg.Name, ID: n.self.ID, Catalog: &n.catalog, Meta: &n.meta,
		Authz: n.authz, Peers: &n.peers, Results: &n.results, Store: n.blockStore.Store, Members: func() *members.Blobs { return n.blobMembers },
		MasterEpoch: masterEpoch, Roots: n.roots, SweepDelay: n.cfg.Tuning.SweepDelay, LogTimes: func() []api.ReplicaTimes { return n.activity.LogReplicas() },
		Pauses: func() (int64, time.Duration) { return n.activity.Pauses() }})
	n.backups = backups.New(backups.Config{Ctx: n.ctx, Log: n.log, ID: n.self.ID, Catalog: &n.catalog, Changes: n.changes, Roots: n.roots, Tables: n.tables, Tablets: n.tabletAdmin,
		Store: n.blockStore.Store, Results: &n.results, MasterEpoch: masterEpoch, StagedFor: n.cfg.Tuning.StagedFor})
	n.replication = replication.New(replication.Config{Ctx: n.ctx, Log: n.log, ID: n.self.ID, Limits: &n.limits, Catalog: &n.catalog, Changes: n.changes, Tables: n.tables,
		Client: func() *client.Client { return n.client }, MasterEpoch: masterEpoch, Dial: n.cfg.Network.Dial, MessageBytesMax: int(n.cfg.budget().Message)})
	n.appProfiles = appprofiles.New(appprofiles.Config{Log: n.log, Limits: &n.limits, Catalog: &n.catalog, Changes: n.changes,
		Directory: func(path string) *session.Directory { return n.meta.Client.Directory(path) }})
	n.bundles = schemabundles.New(schemabundles.Config{Log: n.log, Limits: &n.limits, Catalog: &n.catalog, Changes: n.changes})
	n.clients = clients.New(n.cfg.Name)
	n.registry = registry.New(registry.Config{Log: n.log, Limits: &n.limits, Catalog: &n.catalog, Changes: n.changes, ClusterID: n.ClusterID, Dial: n.cfg.Network.Dial})
	n.locator = func() locate.Locator { return n.client }
	n.locate = locate.New(locate.Config{Ctx: n.ctx, ID: n.self.ID, Limits: &n.limits, Authz: n.authz, Meta: &n.meta, ServerOf: n.tabletServer.Of, Locator: func() locate.Locator { return n.locator() }})
	n.newOperations()
	n.data = dataapi.New(dataapi.Config{Ctx: n.ctx, Limits: &n.limits, Authz: n.authz, Results: &n.results, Tablets: n.locate, Quotas: n.quotas, CursorBytes: n.cfg.budget().Cursors})
	n.bulk = bulk.New(bulk.Config{Ctx: n.ctx, Limits: &n.limits, Authz: n.authz, Tablets: n.locate, Quotas: n.quotas, CompactionBytes: n.cfg.budget().Compaction,
		ReadSSTables: n.blobMembers.ReadSSTables})
}

// tabletsForMaster returns what a master's access to tablets needs.
func (n *Node) tabletsForMaster() assign.Config {
	return assign.Config{Ctx: n.ctx, Background: &n.background, Log: n.log, Catalog: &n.catalog, Meta: &n.meta, Metadata: n.rows, Commands: n.commands, Store: n.blockStore.Store,
		Members: n.blobMembers.Members, AddressOf: n.members.AddressOf}
}

// A node whose machine has failed answers neither a call nor a dial. Its tablets are on other nodes once its lease has passed, 2 s. Calls of
// this node's own client, to METADATA above all, do not wait for it any longer.
const (
	peerSilenceMax  = 2 * time.Second
	peerDialTimeout = time.Second
)
