package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/activity"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/metric"
	"github.com/steledb/stele/node/monitor"
	"github.com/steledb/stele/node/nodeadmin"
	"github.com/steledb/stele/node/otlp"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/slowlog"
	"github.com/steledb/stele/node/status"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
)

// traceExport returns what exports a trace to the configured collector, until the node stops; nil if there is none.
func traceExport(n *Node) func(*api.Trace) {
	if n.cfg.OTLPEndpoint == "" {
		return nil
	}
	x, err := otlp.New(otlp.Config{Endpoint: n.cfg.OTLPEndpoint, Node: n.cfg.Name, Version: Version(), Logger: n.log.With("part", "otlp")})
	if err != nil {
		n.log.Error("traces are not exported", "err", err)
		return nil
	}
	n.background.Go(func() {
		<-n.ctx.Done()
		x.Close()
	})
	return x.Export
}

// newOperations creates the services for operators: administration of nodes, status, and the HTTP port.
func (n *Node) newOperations() {
	n.nodeAdmin = nodeadmin.New(nodeadmin.Config{Log: n.log, Self: &n.self, Catalog: &n.catalog, Members: n.members, Removed: n.removed, Changes: n.changes,
		Peers: &n.peers, Group: n.raftGroup, CheckLeader: n.quorum.Check, LeaderAddress: func() string { return n.meta.Client.LeaderAddress() }, LastMaster: n.epochs.Last})
	n.status = status.New(status.Config{Name: n.cfg.Name, Version: Version(), Began: n.started, FS: n.cfg.FS, Self: &n.self, Members: n.members, Serving: n.life.serving.Load, Unready: n.unready,
		Votes: func() bool { return n.raftGroup() != nil }, Leader: n.nodeAdmin.Leader, Master: n.candidate.Master,
		Stats: n.tabletServer.Stats, Users: n.tabletServer.Users, Metadata: n.tabletServer.Metadata, Store: n.blockStore.Store})
	n.slow = slowlog.New(slowlog.Config{Node: n.cfg.Name, Threshold: n.cfg.SlowRequest, Every: max(0, n.cfg.TraceSample), Export: traceExport(n)})
	n.activity = activity.New(activity.Config{Name: n.cfg.Name, RPC: func() rpc.Stats { return n.rpc.Stats() }, Commits: func() int64 {
		if !n.life.serving.Load() {
			return 0
		}
		return n.tabletServer.Stats().Log.Commits
	}, Replicas: func() []replog.ReplicaTimes {
		if !n.life.serving.Load() {
			return nil
		}
		return n.blockStore.Store().ReplicatedLogs().ReplicaTimes()
	}, Refusals: func() map[string]int64 { return quotas.Refusals(n.quotas) }})
	n.monitor = monitor.New(monitor.Config{Background: &n.background, Log: n.log, Name: n.cfg.Name, Version: Version(), Began: n.started,
		HTTP: n.cfg.HTTP, Profiles: n.cfg.Profiles, Advertise: n.cfg.Advertise, Transport: func() *certs.Transport { return n.security },
		Authenticate: func(ctx context.Context, caller *authz.Subject, text string) error {
			return n.tokenAuth.Authenticate(ctx, caller, text)
		},
		Authz: n.authz, Refused: n.refuseConn, Err: n.Err, Unready: n.unready, CheckServing: n.checkServing, Parts: n.parts, Collectors: n.collectors})
}

// raftGroup returns the node's Raft group; nil if the node does not vote.
func (n *Node) raftGroup() *raftmeta.Group {
	group, _ := n.voter.Group()
	return group
}

// Alive probes the node: it sends a request to its own port, and takes the locks of each part. The error names the parts that have not
// answered when ctx ends, or why the node has failed. The node must have been started and not be closed.
func (n *Node) Alive(ctx context.Context) error { return n.monitor.Alive(ctx) }

// checkServing returns an error until the node serves.
func (n *Node) checkServing() error {
	if n.life.serving.Load() {
		return nil
	}
	return &rpc.Error{Code: rpc.CodeUnavailable, Message: "the node does not serve: " + n.unready(), Retryable: true}
}

// Health returns why the node does not serve as it should, or "".
func (n *Node) Health() string { return n.unready() }

// unready returns why the node does not serve, or "".
func (n *Node) unready() string {
	if err := n.Err(); err != nil {
		return err.Error()
	}
	if !n.life.serving.Load() {
		if n.ctx.Err() != nil {
			return "stopping"
		}
		return "starting: waiting for " + *n.life.stage.Load()
	}
	if err := n.tabletServer.Current().Serving(); err != nil {
		if noLeader := n.quorum.Check(); noLeader != nil {
			err = noLeader
		}
		var why *rpc.Error
		if errors.As(err, &why) {
			return why.Message
		}
		return err.Error()
	}
	if err := n.tabletServer.Stats().Blocked; err != nil {
		return fmt.Sprintf("writes wait: memtables cannot be written out: %v", err)
	}
	return ""
}

// collectors returns the parts that have metrics now.
func (n *Node) collectors() []monitor.Collector {
	if !n.life.serving.Load() {
		return []monitor.Collector{rpcMetrics{n}}
	}
	return []monitor.Collector{rpcMetrics{n}, n.status, n.data, n.bulk, n.usage, n.quotas, n.blobs, n.lockServer, n.locks, n.members, n.backups, n.replication, n.activity, n.clients, n.bigtable}
}

// rpcMetrics sends the metrics of the node's port.
type rpcMetrics struct{ n *Node }

// Collect implements monitor.Collector.
func (r rpcMetrics) Collect(m metric.Sender) { m.RPC(r.n.rpc.Stats()) }

// parts returns the parts of the node to probe.
func (n *Node) parts() []monitor.Part {
	answers := func(name string, probe func()) monitor.Part {
		return monitor.Part{Name: name, Probe: func(context.Context) error { probe(); return nil }}
	}
	parts := []monitor.Part{
		{Name: "the port for clients and nodes", Probe: func(ctx context.Context) error { return n.dialer.CallSelf(ctx, &n.peers) }},
		answers("the tablet server", func() { n.tabletServer.Stats(); n.tabletServer.Users().Served().Loaded() }),
		answers("the block store", func() { n.blockStore.Store().Repairs() }),
		answers("the lock service", func() { n.voter.Group(); n.nodeAdmin.Leader() }),
		answers("the catalog", func() { n.status.ServedTables() }),
	}
	if n.members.Ring() != nil {
		parts = append(parts, answers("gossip", func() { n.members.Ring().Members() }))
	}
	return parts
}
