package node

import (
	"errors"
	"fmt"
	"net"

	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/node/actfor"
	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/auditlog"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/budget"
	"github.com/steledb/stele/node/dispatch"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/raftstreams"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// serve opens the node's ports. Until the node serves, the methods for data return an error.
func (n *Node) serve(listener net.Listener) error {
	b := n.cfg.budget()
	cfg := n.security.Limit(rpc.ServerConfig{
		MessageBytesMax: int(b.Message), MemoryBytesMax: b.RPC, SpawnedMax: spawnedMax, ConnsMax: budget.ConnsMax(n.cfg.MemoryBytes), OnConns: func(change int) { n.reservation.Change(int64(change) * budget.ConnBytes) },
		Logger: n.log.With("part", "rpc"), Traced: n.slow.Add, Failed: n.slow.CountError, SlowAfter: n.cfg.SlowRequest, TraceEvery: max(0, n.cfg.TraceSample),
	})
	if cfg.Admit = n.authz.Admitter; n.security != nil {
		n.authz.Rights = authz.NewRights(&n.meta, n.quorum.Check)
		cfg.MessageBytesOf = n.authz.Rights.RequestBytes(cfg.MessageBytesMax)
	}
	server, err := rpc.NewServer(cfg)
	if err != nil {
		return err
	}
	n.rpc, n.results.Crowded = server, server.MemoryPressure
	if n.self.Address, err = advertise.Address(n.rpcAddr.String(), n.cfg.Advertise); err != nil {
		return err
	}
	if err := n.newFormation(); err != nil {
		return err
	}
	n.voter = n.newVoter(server.Claim(raftstreams.FirstByte))
	n.register(server)
	n.background.Go(n.data.Start())
	n.background.Go(n.bulk.Start())
	n.blobs.Start()
	n.background.Go(func() { n.activity.Run(n.ctx) })
	n.background.Go(func() { n.activity.WatchPauses(n.ctx, n.log) })
	addConsole(n)
	if err := n.monitor.Serve(); err != nil {
		return err
	}
	n.background.Go(n.voter.Accept)
	listener = n.security.Guard(listener, 0, n.refuseConn)
	n.background.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, rpc.ErrServerClosed) {
			n.life.fail(fmt.Errorf("serve clients: %w", err))
		}
	})
	return nil
}

// register registers all methods at the node's port.
func (n *Node) register(server *rpc.Server) {
	n.dispatch = dispatch.New(dispatch.Config{ID: n.self.ID, Authz: n.authz, Peers: &n.peers, Serving: n.checkServing, CheckLeader: n.quorum.Check,
		MasterEpoch: n.candidate.Epoch, LastMaster: n.epochs.Last}, server)
	n.authz.Guard(authz.Guard{}, formation.MethodHello, formation.MethodPromise, formation.MethodJoin)
	n.formation.Handle(server)
	n.authz.Guard(authz.Guard{}, blobapi.Methods()...)
	blobapi.Serve(server, n.blockStore.Peer)
	for _, m := range metaapi.Methods() {
		n.authz.Guard(lockserver.Guard(m), m)
	}
	metaapi.ServeCurrent(server, n.lockServer.ForCall)
	for _, s := range []interface{ Register(r method.Registrar) }{n.dialer, n.tokenAuth, actfor.Service{Authz: n.authz}, n.commands, n.tabletServer, n.status, n.activity, n.slow, n.logs, auditlog.Service{Name: n.cfg.Name, Authz: n.authz}} {
		s.Register(n.dispatch.Early())
	}
	for _, s := range []interface{ Register(r method.Registrar) }{
		n.data, n.bulk, n.locate, n.tables, n.tabletAdmin, n.users, n.usage, n.keyHeat, n.quotas, n.nodeAdmin, n.blobs, n.backups, n.replication, n.registry, n.appProfiles, n.bundles, n.clients,
	} {
		s.Register(n.dispatch)
	}
	for _, s := range []interface{ Register(r method.Registrar) }{n.enrolment, n.authority, n.gossipKey} {
		s.Register(n.dispatch.Secured())
	}
}

// spawnedMax bounds the calls that wait for the disk or for each other: as many as clients have in flight under heavy load.
const spawnedMax = 1024
