package node

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/raftstreams"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// serve opens the node's ports. Until the node serves, the methods for data return an error.
func (n *Node) serve(listener net.Listener) error {
	b := n.cfg.budget()
	cfg := n.security.Limit(rpc.ServerConfig{
		MessageBytesMax: int(b.message), MemoryBytesMax: b.rpc, SpawnedMax: spawnedMax, ConnsMax: n.cfg.connsMax(), OnConns: func(change int) { n.reservation.change(int64(change) * connBytes) },
		Logger: n.log.With("part", "rpc"),
	})
	n.forwardable = map[string]func(*rpc.Call){}
	if cfg.Admit = n.authz.Admitter; n.security != nil {
		n.authz.Rights = authz.NewRights(&n.meta, n.checkLeader)
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
	if err := n.newFormer(); err != nil {
		return err
	}
	n.former.Handle(server)
	n.voter = n.newVoter(server.Claim(raftstreams.FirstByte))
	metaapi.ServeCurrent(server, n.lockServer.ForCall)
	blobapi.Serve(server, n.servePeer)
	n.handleIdentity()
	n.tokenAuth.Register(server.Handle)
	n.handleOnBehalf()
	n.users.Register(registrar{n})
	n.handleCommands()
	n.handleTabletCommands()
	n.tabletOps.register(registrar{n})
	n.tableOps.register(registrar{n})
	n.usage.Register(registrar{n})
	n.quotas.Register(registrar{n})
	n.data.Register(registrar{n})
	n.handleOwn()
	n.handleNodes()
	n.blobs.register(registrar{n})
	n.enrolment.Register(securedRegistrar{n})
	n.authority.Register(securedRegistrar{n})
	n.gossipKey.Register(securedRegistrar{n})
	n.background.Go(n.data.Start())
	stopUploads := n.blobs.uploads.start()
	n.background.Go(func() { n.blobs.uploads.sweep(stopUploads) })
	if err := errors.Join(n.serveHTTP(), n.serveProfiles()); err != nil {
		return err
	}
	n.background.Go(n.voter.Accept)
	listener = n.security.Guard(listener, 0, n.refuseConn)
	n.background.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, rpc.ErrServerClosed) {
			n.fail(fmt.Errorf("serve clients: %w", err))
		}
	})
	return nil
}

// registrar registers the methods of services at the node's port. It implements method.Registrar.
type registrar struct{ n *Node }

// Handle implements method.Registrar.
func (r registrar) Handle(method string, mode rpc.Mode, h func(*rpc.Call)) {
	r.n.handle(method, mode, h)
}

// HandleNames implements method.Registrar.
func (r registrar) HandleNames(name string, names int, h method.NamesHandler) {
	r.n.handleNames(name, names, h)
}

// handle registers a method that is available once the node serves.
func (n *Node) handle(method string, mode rpc.Mode, h func(*rpc.Call)) {
	master := guards[method].Master && n.security != nil
	serve := func(c *rpc.Call) {
		if !n.serving.Load() {
			c.Fail(n.notServing())
			return
		}
		if needsLockService[method] {
			if err := n.checkLeader(); err != nil {
				c.Fail(err)
				return
			}
		}
		if master && !n.isMaster() {
			if caller := authz.SubjectOf(c); caller.Restricted() {
				n.forward(c, method, caller, h)
			} else {
				reply.Fail(c, changes.ErrNotMaster)
			}
			return
		}
		h(c)
	}
	n.forwardable[method] = serve
	n.rpc.Handle(method, mode, serve)
}

// spawnedMax bounds the calls that wait for the disk or for each other: as many as clients have in flight under heavy load.
const spawnedMax = 1024

// live reports liveness: 200 unless the process has failed. A node that starts, stops or has lost the lock service recovers by
// itself, and a restart would only delay it.
func (n *Node) live(w http.ResponseWriter, _ *http.Request) {
	reason := ""
	if err := n.Err(); err != nil {
		reason = err.Error()
	}
	answerHealth(w, reason)
}

// ready reports readiness: 200 while the node serves, otherwise 503 and the reason.
func (n *Node) ready(w http.ResponseWriter, _ *http.Request) { answerHealth(w, n.unready()) }

func answerHealth(w http.ResponseWriter, reason string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if reason != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, reason)
		return
	}
	fmt.Fprintln(w, "ok")
}

// unready returns why the node does not serve, or "".
func (n *Node) unready() string {
	if err := n.Err(); err != nil {
		return err.Error()
	}
	if !n.serving.Load() {
		if n.ctx.Err() != nil {
			return "stopping"
		}
		return "starting: waiting for " + *n.stage.Load()
	}
	if err := n.server.Load().serving(); err != nil {
		if checkLeader := n.checkLeader(); checkLeader != nil {
			err = checkLeader
		}
		var why *rpc.Error
		if errors.As(err, &why) {
			return why.Message
		}
		return err.Error()
	}
	if err := n.tabletStats().Blocked; err != nil {
		return fmt.Sprintf("writes wait: memtables cannot be written out: %v", err)
	}
	return ""
}
