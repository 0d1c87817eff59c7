package node

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/blobs"
	"github.com/steledb/stele/node/disks"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/node/metric"
)

// registry returns the node's metrics. They are read from the parts' counters on each scrape, and cost nothing in between.
func (n *Node) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{node: n},
	)
	return r
}

type collector struct{ node *Node }

// Describe sends nothing: the collector is unchecked, because its metrics depend on methods and directories.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current values.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	m := metric.NewSender(out)
	n := c.node
	m.Gauge("build_info", "Constant 1, labelled with the program's version.", 1, "version", Version(), "go", runtime.Version())
	m.Gauge("ready", "1 while this node serves requests.", metric.Bool(n.unready() == ""))
	m.Gauge("uptime_seconds", "Time since this node started.", time.Since(n.started).Seconds())
	c.collectRPC(m)
	if n.serving.Load() { // all parts exist
		c.collectTablets(m)
		n.data.Collect(m)
		n.usage.Collect(m)
		n.quotas.Collect(m)
		c.collectStore(m)
		c.collectReplicas(m)
		c.collectMeta(m)
	}
}

func (c *collector) collectTablets(m metric.Sender) {
	t, own := c.node.tabletStats(), c.node.server.Load().metadata.Stats()
	m.Gauge("metadata_tablets", "METADATA tablets that this node serves.", float64(own.Tablets))
	m.Gauge("metadata_memtable_bytes", "Memory of the memtables of METADATA tablets on this node.", float64(own.MemtableBytes))
	m.Gauge("metadata_commit_log_pending_bytes", "Bytes of this node's commit log for METADATA tablets that a recovery would read.", float64(own.LogPendingBytes))
	m.Gauge("tables", "Tables with tablets that this node serves.", float64(t.Tables))
	m.Gauge("tablets", "Tablets that this node serves, with those of METADATA.", float64(t.Tablets))
	m.Counter("reads_total", "Rows read by key.", float64(t.Reads))
	m.Counter("scans_total", "Batches returned by scans.", float64(t.Scans))
	m.Counter("write_stalls_total", "Writes that waited for memory.", float64(t.Stalls))
	m.Counter("write_overloads_total", "Writes rejected for lack of memory.", float64(t.Overloads))
	m.Gauge("memtable_bytes", "Memory of the memtables of all tablets on this node, with those of METADATA.", float64(t.MemtableBytes))
	m.Gauge("memtable_limit_bytes", "Limit of the memory of the memtables on this node.", float64(t.MemtableBytesMax))
	m.Gauge("cache_bytes", "Memory of the block cache and the scan cache.", float64(t.Cache.Bytes))
	m.Counter("scan_cache_hits_total", "SSTable rows found in the scan cache.", float64(t.Cache.RowHits))
	m.Counter("scan_cache_misses_total", "SSTable rows not found in the scan cache.", float64(t.Cache.RowMisses))
	m.Gauge("open_file_bytes", "Memory of the indexes and Bloom filters of open SSTables.", float64(t.Memory.Open))
	m.Gauge("pinned_bytes", "Memory of in-memory locality groups.", float64(t.Memory.Pinned))
	m.Gauge("unpinned_bytes", "Bytes of in-memory locality groups that do not fit into memory.", float64(t.Memory.Lacking))
	m.Counter("cache_hits_total", "SSTable blocks found in the block cache.", float64(t.Cache.Hits))
	m.Counter("cache_misses_total", "SSTable blocks not found in the block cache and read from files.", float64(t.Cache.Misses))
	m.Counter("commit_log_commits_total", "Row mutations made durable.", float64(t.Log.Commits))
	m.Counter("commit_log_batches_total", "Appends to the commit log, each of one or more commits.", float64(t.Log.Batches))
	m.Counter("commit_log_bytes_total", "Bytes appended to the commit log.", float64(t.Log.Bytes))
	m.Counter("commit_log_append_seconds_total", "Time spent on appends to the commit log.", t.Log.AppendTime.Seconds())
	m.Gauge("commit_log_pending_bytes", "Bytes of this node's commit logs that a recovery would read.", float64(t.LogPendingBytes))
	for _, k := range []struct {
		kind string
		n    int64
	}{{"minor", t.MinorCompactions}, {"merging", t.MergingCompactions}, {"major", t.MajorCompactions}} {
		m.Counter("compactions_total", "Completed compactions, by kind: minor, merging or major.", float64(k.n), "kind", k.kind)
	}
}

func (c *collector) collectStore(m metric.Sender) {
	uploads, refused := c.node.blobs.Uploads()
	m.Gauge("blob_uploads", "Blobs that clients are storing on this node.", float64(uploads))
	m.Counter("blob_uploads_refused_total", "Blob uploads rejected because their user, or all users together, had too many in progress.", float64(refused))
	s := c.node.store.Load().Stats()
	m.Gauge("blobs", "Sealed blobs with an extent on this node.", float64(s.Blobs))
	for _, f := range s.Folders {
		if total, ok := disks.TotalBytes(f.Path); ok {
			m.Gauge("disk_total_bytes", "Size of the file system of a data folder.", float64(total), "folder", f.Path)
		}
		m.Gauge("disk_free_bytes", "Free space of the file system of a data folder.", float64(f.FreeBytes), "folder", f.Path)
		m.Gauge("disk_blob_bytes", "Bytes of the sealed extents in a data folder.", float64(f.BlobBytes), "folder", f.Path)
		m.Gauge("disk_log_bytes", "Bytes of the log extents in a data folder.", float64(f.LogBytes), "folder", f.Path)
		m.Gauge("disk_quarantine_bytes", "Bytes of quarantined garbage in a data folder.", float64(f.QuarantineBytes), "folder", f.Path)
		m.Gauge("disk_retired", "1 if a data folder has failed and accepts no writes.", metric.Bool(f.Retired != nil), "folder", f.Path)
	}
}

// collectReplicas collects the metrics of the replicas that this node repairs.
func (c *collector) collectReplicas(m metric.Sender) {
	store := c.node.store.Load()
	k := store.Repairs()
	short, oneLeft := blobs.Under(&k)
	logs, logReplicas := blobs.OpenLogs(store)
	m.Gauge("blob_replicas_wanted", "Replication factor of extents.", float64(store.Wanted()))
	m.Gauge("blob_extents", "Sealed extents on this node.", float64(k.Extents))
	m.Gauge("blob_under_replicated_extents", "Extents with too few replicas whose repair this node is responsible for.", float64(short))
	m.Gauge("blob_one_replica_extents", "Extents with at most one replica whose repair this node is responsible for.", float64(oneLeft))
	m.Gauge("blob_under_replicated_bytes", "Bytes still to copy to repair extents that this node is responsible for.", float64(k.ToCopyBytes))
	m.Gauge("blob_surplus_replicas", "Surplus replicas on this node.", float64(k.Surplus))
	m.Gauge("blob_rotten_replicas", "Corrupt replicas on this node that are not repaired yet.", float64(k.Corrupt))
	m.Gauge("blob_sweep_alarm", "1 while garbage collection is stopped because an extent found to be garbage was in use.", metric.Bool(store.Alarm() != ""))
	sweep := store.GC().Status()
	m.Gauge("blob_sweep_halted", "1 on the master while garbage collection is halted until an operator resumes it.",
		metric.Bool(c.node.master.Epoch() != 0 && sweep.Halted != ""))
	m.Gauge("blob_sweep_last_round", "Number of the last garbage collection round that this node ran as master.", float64(sweep.Last.Round))
	m.Gauge("blob_sweep_last_found", "Garbage extents found by the last garbage collection round that this node ran as master.", float64(sweep.Last.Garbage))
	if !sweep.At.IsZero() {
		m.Gauge("blob_sweep_last_timestamp_seconds", "End of the last garbage collection round that this node ran as master, in seconds since 1970.", float64(sweep.At.Unix()))
	}
	m.Gauge("blob_drained", "1 while this node is draining and holds no data that is needed.", metric.Bool(k.Drain.Safe))
	m.Gauge("blob_scrub_position_ratio", "Part of this node's data that the current scrub pass has read, from 0 to 1.", k.Scrub.Position)
	m.Gauge("commit_logs", "Commit logs that this node appends to.", float64(logs))
	m.Gauge("commit_log_replicas", "Number of replicas of this node's commit log that has the fewest.", float64(logReplicas))
	for _, x := range []struct {
		name, help string
		n          int64
	}{
		{"blob_copied_replicas_total", "Replicas created to repair extents that this node is responsible for.", k.Copied},
		{"blob_copied_bytes_total", "Bytes copied to repair extents that this node is responsible for.", k.CopiedBytes},
		{"blob_trimmed_replicas_total", "Surplus replicas deleted on this node.", k.Trimmed},
		{"blob_healed_replicas_total", "Corrupt replicas repaired on this node.", k.Healed},
		{"blob_unhealed_replicas_total", "Attempts to repair corrupt replicas on this node that found no good replica.", k.Unhealed},
		{"blob_moved_replicas_total", "Replicas that this node moved to nodes with more free space.", k.Moved},
		{"blob_moved_bytes_total", "Bytes that this node moved to nodes with more free space.", k.MovedBytes},
		{"blob_sweep_rounds_total", "Garbage collection rounds that this node ran as master.", sweep.Rounds},
		{"blob_sweep_failures_total", "Failed garbage collection rounds that this node ran as master.", sweep.Failed},
		{"blob_sweep_quarantined_total", "Extents quarantined by garbage collection rounds that this node ran as master.", sweep.Quarantined},
		{"blob_sweep_removed_total", "Quarantined extents deleted by garbage collection rounds that this node ran as master.", sweep.Removed},
		{"blob_sweep_removed_bytes_total", "Bytes deleted by garbage collection rounds that this node ran as master.", sweep.RemovedBytes},
		{"blob_scrubbed_bytes_total", "Bytes read by the scrub on this node.", k.Scrub.Read},
		{"blob_scrub_found_total", "Corrupt replicas found by the scrub on this node.", k.ScrubFound},
	} {
		m.Counter(x.name, x.help, float64(x.n))
	}
}

func (c *collector) collectMeta(m metric.Sender) {
	group, _ := c.node.voter.Group()
	m.Gauge("raft_voter", "1 while this node is a server of the Raft group.", metric.Bool(group != nil))
	m.Gauge("lock_session_safe", "1 while this node's session with the lock service is safe.", metric.Bool(c.node.meta.Current().Valid()))
	if c.node.members.Ring() != nil {
		alive := 0
		for _, x := range c.node.members.Ring().Members() {
			if x.State == gossip.Alive {
				alive++
			}
		}
		m.Gauge("gossip_members_alive", "Nodes that gossip lists as alive.", float64(alive))
		stats := c.node.members.Ring().Stats()
		m.Counter("gossip_refused_streams_total", "Gossip streams closed because they exceeded a bound or were not valid gossip.", float64(stats.RefusedStreams))
		m.Counter("gossip_dropped_packets_total", "Gossip packets dropped because they exceeded a bound or were not valid gossip.", float64(stats.DroppedPackets))
	}
	m.Gauge("master_epoch", "Epoch of this node's mastership; 0 while it is not master.", float64(c.node.master.Epoch()))
	if unserved, err := c.node.master.Unserved(); err == nil {
		m.Gauge("master_unserved_tablets", "Tablets of the cluster not served for at least 5 seconds; exported by the master alone.", float64(len(unserved)))
	}
	if group == nil {
		return
	}
	g := group.Stats()
	m.Gauge("raft_leader", "1 while this node leads the Raft group.", metric.Bool(g.Leader))
	m.Gauge("raft_term", "Current Raft term of this node.", float64(g.Term))
	m.Gauge("raft_applied_index", "Index of the last Raft log entry that this node applied.", float64(g.AppliedIndex))
	m.Gauge("raft_files", "Files in the lock service's namespace.", float64(g.Files))
	share := lockserver.ShareOf(c.node.cfg.MemoryBytes, authz.OpenClients)
	m.Gauge("lock_users", "Users that hold files, locks or sessions in the lock service.", float64(g.Users))
	m.Gauge("lock_users_bytes", "Memory of the files, locks and sessions of all users in the lock service.", float64(g.UsersBytes))
	m.Gauge("lock_user_bytes_max", "Memory of the files, locks and sessions of the user that holds the most in the lock service.", float64(g.UsersBytesMost))
	m.Gauge("lock_users_limit_bytes", "Limit of the memory of the files, locks and sessions of all users while this node leads; one user may use a quarter.", float64(share.AllBytes))
	m.Gauge("lock_users_sessions", "Open sessions of all users with the lock service.", float64(g.UsersSessions))
	m.Counter("lock_refused_total", "Changes that the lock service rejected on this node, such as those beyond a limit.", float64(g.Refused))
	m.Counter("raft_log_writes_total", "Writes to this node's Raft log.", float64(g.LogWrites))
	m.Counter("raft_log_write_seconds_total", "Time spent on writes to this node's Raft log.", g.LogTime.Seconds())
}

func (c *collector) collectRPC(m metric.Sender) {
	s := c.node.rpc.Stats()
	m.Gauge("rpc_connections", "Open RPC connections to this node.", float64(s.Conns))
	m.Gauge("rpc_in_flight", "RPC requests in progress.", float64(s.InFlight))
	m.Gauge("rpc_memory_bytes", "Memory of RPC requests in progress and of answers not yet sent.", float64(s.MemoryBytes))
	m.Counter("rpc_received_bytes_total", "Bytes received on RPC connections.", float64(s.BytesIn))
	m.Counter("rpc_sent_bytes_total", "Bytes sent on RPC connections.", float64(s.BytesOut))
	m.Counter("rpc_forbidden_total", "RPC requests rejected by access control before execution.", float64(s.Guarded))
	m.Counter("rpc_malformed_total", "RPC connections closed because of malformed messages.", float64(s.Malformed))
	m.Counter("rpc_corrupt_total", "RPC connections closed because of wrong checksums.", float64(s.Corrupt))
	m.Counter("rpc_overloaded_total", "RPC requests rejected for lack of memory or workers.", float64(s.Overloaded))
	m.Counter("rpc_late_total", "RPC requests rejected because their deadline had passed.", float64(s.Late))
	m.Counter("rpc_dropped_total", "RPC requests dropped because their connection had closed.", float64(s.Dropped))
	m.Counter("rpc_panics_total", "RPC requests whose handler panicked.", float64(s.Panics))
	for i := range s.Methods {
		m.Method(&s.Methods[i])
	}
}
