package node

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/rpc"
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
	m := sender{out}
	n := c.node
	m.gauge("build_info", "Constant 1, labelled with the program's version.", 1, "version", Version(), "go", runtime.Version())
	m.gauge("ready", "1 while the node serves.", boolFloat(n.unready() == ""))
	m.gauge("uptime_seconds", "Time since the node started.", time.Since(n.started).Seconds())
	c.collectRPC(m)
	if n.serving.Load() { // all parts exist
		c.collectTablets(m)
		c.collectUsage(m)
		c.collectQuotas(m)
		c.collectStore(m)
		c.collectReplicas(m)
		c.collectMeta(m)
	}
}

func (c *collector) collectTablets(m sender) {
	t, own := c.node.tabletStats(), c.node.server.Load().metadata.Stats()
	m.gauge("metadata_tablets", "METADATA tablets served.", float64(own.Tablets))
	m.gauge("metadata_memtable_bytes", "Memory of the memtables of METADATA tablets.", float64(own.MemtableBytes))
	m.gauge("metadata_commit_log_pending_bytes", "Bytes of the commit log of METADATA tablets that a recovery would read.", float64(own.LogPendingBytes))
	m.gauge("tables", "Tables served.", float64(t.Tables))
	m.gauge("tablets", "Tablets served.", float64(t.Tablets))
	m.counter("reads_total", "Rows read by key.", float64(t.Reads))
	m.counter("scans_total", "Batches returned by scans.", float64(t.Scans))
	m.counter("write_stalls_total", "Writes that waited for memory.", float64(t.Stalls))
	m.counter("write_overloads_total", "Writes rejected for lack of memory.", float64(t.Overloads))
	m.gauge("memtable_bytes", "Memory of all memtables.", float64(t.MemtableBytes))
	m.gauge("memtable_limit_bytes", "Memory that memtables may take.", float64(t.MemtableBytesMax))
	m.gauge("cache_bytes", "Memory of the block cache and the scan cache.", float64(t.Cache.Bytes))
	m.counter("scan_cache_hits_total", "Rows of files found in the scan cache.", float64(t.Cache.RowHits))
	m.counter("scan_cache_misses_total", "Rows of files not found in the scan cache.", float64(t.Cache.RowMisses))
	m.gauge("open_file_bytes", "Memory of the indexes and filters of open files.", float64(t.Memory.Open))
	m.gauge("pinned_bytes", "Memory of in-memory locality groups.", float64(t.Memory.Pinned))
	m.gauge("unpinned_bytes", "Bytes of in-memory locality groups that do not fit into memory.", float64(t.Memory.Lacking))
	m.counter("cache_hits_total", "Blocks found in the cache.", float64(t.Cache.Hits))
	m.counter("cache_misses_total", "Blocks read from files.", float64(t.Cache.Misses))
	m.counter("commit_log_commits_total", "Row mutations made durable.", float64(t.Log.Commits))
	m.counter("commit_log_batches_total", "Appends to the commit log, each of one or more commits.", float64(t.Log.Batches))
	m.counter("commit_log_bytes_total", "Bytes appended to the commit log.", float64(t.Log.Bytes))
	m.counter("commit_log_append_seconds_total", "Time spent on appends to the commit log.", t.Log.AppendTime.Seconds())
	m.gauge("commit_log_pending_bytes", "Bytes of the commit log that a recovery would read.", float64(t.LogPendingBytes))
	for _, k := range []struct {
		kind string
		n    int64
	}{{"minor", t.MinorCompactions}, {"merging", t.MergingCompactions}, {"major", t.MajorCompactions}} {
		m.counter("compactions_total", "Completed compactions.", float64(k.n), "kind", k.kind)
	}
	cs := c.node.data.cursors.stats()
	m.gauge("scan_cursors", "Open scan cursors.", float64(cs.open))
	m.gauge("scan_cursor_bytes", "Memory of the keys and filters of open scan cursors.", float64(cs.bytes))
	m.gauge("scan_cursor_limit_bytes", "Limit of the memory of open scan cursors; one user may use a quarter.", float64(cs.bytesMax))
	m.gauge("scan_cursor_users", "Users with open scan cursors.", float64(cs.users))
	m.gauge("scan_cursors_user_max", "Open scan cursors of the user with the most.", float64(cs.mostOfUser))
	m.counter("scan_cursors_evicted_total", "Idle scan cursors closed to free memory for other scans.", float64(cs.evicted))
	m.counter("scan_cursors_refused_total", "Scans rejected because their user, or all users together, had too many open cursors.", float64(cs.refused))
}

func (c *collector) collectStore(m sender) {
	uploads, refused := c.node.blobs.uploads.stats()
	m.gauge("blob_uploads", "Blobs that clients are storing on this node.", float64(uploads))
	m.counter("blob_uploads_refused_total", "Blob uploads rejected because their user, or all users together, had too many in progress.", float64(refused))
	s := c.node.store.Load().Stats()
	m.gauge("blobs", "Sealed blobs.", float64(s.Blobs))
	for _, f := range s.Folders {
		if total, ok := totalBytes(f.Path); ok {
			m.gauge("disk_total_bytes", "Size of the folder's file system.", float64(total), "folder", f.Path)
		}
		m.gauge("disk_free_bytes", "Free space of the folder's file system.", float64(f.FreeBytes), "folder", f.Path)
		m.gauge("disk_blob_bytes", "Sealed extents in the folder.", float64(f.BlobBytes), "folder", f.Path)
		m.gauge("disk_log_bytes", "Log extents in the folder.", float64(f.LogBytes), "folder", f.Path)
		m.gauge("disk_quarantine_bytes", "Bytes of quarantined garbage in the folder.", float64(f.QuarantineBytes), "folder", f.Path)
		m.gauge("disk_retired", "1 if the folder has failed and accepts no writes.", boolFloat(f.Retired != nil), "folder", f.Path)
	}
}

// collectReplicas collects the metrics of the replicas that this node repairs.
func (c *collector) collectReplicas(m sender) {
	store := c.node.store.Load()
	k := store.Repairs()
	short, oneLeft := under(&k)
	logs, logReplicas := openLogs(store)
	m.gauge("blob_replicas_wanted", "Replication factor of extents.", float64(store.Wanted()))
	m.gauge("blob_extents", "Sealed extents on this node.", float64(k.Extents))
	m.gauge("blob_under_replicated_extents", "Extents with too few replicas whose repair this node is responsible for.", float64(short))
	m.gauge("blob_one_replica_extents", "Extents with at most one replica whose repair this node is responsible for.", float64(oneLeft))
	m.gauge("blob_under_replicated_bytes", "Bytes still to copy to repair extents that this node is responsible for.", float64(k.ToCopyBytes))
	m.gauge("blob_surplus_replicas", "Surplus replicas on this node.", float64(k.Surplus))
	m.gauge("blob_rotten_replicas", "Corrupt replicas on this node that are not repaired yet.", float64(k.Corrupt))
	m.gauge("blob_sweep_alarm", "1 while garbage collection is stopped because an extent found to be garbage was in use.", boolFloat(store.Alarm() != ""))
	sweep := store.GC().Status()
	m.gauge("blob_sweep_halted", "1 on the master while garbage collection is halted until an operator resumes it.",
		boolFloat(c.node.master.Epoch() != 0 && sweep.Halted != ""))
	m.gauge("blob_sweep_last_round", "Number of the last garbage collection round that this node ran as master.", float64(sweep.Last.Round))
	m.gauge("blob_sweep_last_found", "Garbage extents found by the last garbage collection round that this node ran as master.", float64(sweep.Last.Garbage))
	if !sweep.At.IsZero() {
		m.gauge("blob_sweep_last_time_seconds", "End of the last garbage collection round that this node ran as master, in seconds since 1970.", float64(sweep.At.Unix()))
	}
	m.gauge("blob_drained", "1 while the node is draining and holds no data that is needed.", boolFloat(k.Drain.Safe))
	m.gauge("blob_scrub_position_ratio", "Part of the data that the current scrub pass has read, from 0 to 1.", k.Scrub.Position)
	m.gauge("commit_logs", "Commit logs that this node appends to.", float64(logs))
	m.gauge("commit_log_replicas", "Replicas of the commit log of this node with the fewest.", float64(logReplicas))
	for _, x := range []struct {
		name, help string
		n          int64
	}{
		{"blob_copied_replicas_total", "Replicas created to repair extents that this node is responsible for.", k.Copied},
		{"blob_copied_bytes_total", "Bytes copied to repair extents that this node is responsible for.", k.CopiedBytes},
		{"blob_trimmed_replicas_total", "Surplus replicas deleted on this node.", k.Trimmed},
		{"blob_healed_replicas_total", "Corrupt replicas repaired on this node.", k.Healed},
		{"blob_unhealed_replicas_total", "Attempts to repair corrupt replicas on this node that found no good replica.", k.Unhealed},
		{"blob_moved_replicas_total", "Replicas moved to nodes with more free space.", k.Moved},
		{"blob_moved_bytes_total", "Bytes moved to nodes with more free space.", k.MovedBytes},
		{"blob_sweep_rounds_total", "Garbage collection rounds that this node ran as master.", sweep.Rounds},
		{"blob_sweep_failures_total", "Failed garbage collection rounds that this node ran as master.", sweep.Failed},
		{"blob_sweep_quarantined_total", "Extents quarantined by garbage collection rounds that this node ran as master.", sweep.Quarantined},
		{"blob_sweep_removed_total", "Quarantined extents deleted by garbage collection rounds that this node ran as master.", sweep.Removed},
		{"blob_sweep_removed_bytes_total", "Bytes deleted by garbage collection rounds that this node ran as master.", sweep.RemovedBytes},
		{"blob_scrubbed_bytes_total", "Bytes read by the scrub.", k.Scrub.Read},
		{"blob_scrub_found_total", "Corrupt replicas found by the scrub.", k.ScrubFound},
	} {
		m.counter(x.name, x.help, float64(x.n))
	}
}

func (c *collector) collectMeta(m sender) {
	group, _ := c.node.voter.group()
	m.gauge("raft_voter", "1 while this node is a server of the Raft group.", boolFloat(group != nil))
	m.gauge("lock_session_safe", "1 while the node's session with the lock service is safe.", boolFloat(c.node.meta.Current().Valid()))
	if c.node.ring != nil {
		alive := 0
		for _, x := range c.node.ring.Members() {
			if x.State == gossip.Alive {
				alive++
			}
		}
		m.gauge("gossip_members_alive", "Nodes that gossip lists as alive.", float64(alive))
		stats := c.node.ring.Stats()
		m.counter("gossip_refused_streams_total", "Gossip streams closed because they exceeded a bound or were not valid gossip.", float64(stats.RefusedStreams))
		m.counter("gossip_dropped_packets_total", "Gossip packets dropped because they exceeded a bound or were not valid gossip.", float64(stats.DroppedPackets))
	}
	m.gauge("master_epoch", "Epoch of this node's mastership; 0 while it is not master.", float64(c.node.master.Epoch()))
	if unserved, err := c.node.master.Unserved(); err == nil {
		m.gauge("master_unserved_tablets", "Tablets of the cluster not served for at least 5 seconds; exported by the master alone.", float64(len(unserved)))
	}
	if group == nil {
		return
	}
	g := group.Stats()
	m.gauge("raft_leader", "1 while this node leads the Raft group.", boolFloat(g.Leader))
	m.gauge("raft_term", "Raft term.", float64(g.Term))
	m.gauge("raft_applied_index", "Index of the last Raft log entry applied.", float64(g.AppliedIndex))
	m.gauge("raft_files", "Files in the lock service's namespace.", float64(g.Files))
	share := c.node.cfg.lockShare(openClients)
	m.gauge("lock_users", "Users that hold files, locks or sessions in the lock service.", float64(g.Users))
	m.gauge("lock_users_bytes", "Memory of the files, locks and sessions of all users in the lock service.", float64(g.UsersBytes))
	m.gauge("lock_user_bytes_max", "Memory of the files, locks and sessions of the user that holds the most in the lock service.", float64(g.UsersBytesMost))
	m.gauge("lock_users_limit_bytes", "Limit of the memory of the files, locks and sessions of all users while this node leads; one user may use a quarter.", float64(share.AllBytes))
	m.gauge("lock_users_sessions", "Open sessions of all users with the lock service.", float64(g.UsersSessions))
	m.counter("lock_refused_total", "Changes that the lock service rejected on this node, such as those beyond a limit.", float64(g.Refused))
	m.counter("raft_log_writes_total", "Writes of the Raft log.", float64(g.LogWrites))
	m.counter("raft_log_write_seconds_total", "Time spent on writes of the Raft log.", g.LogTime.Seconds())
}

func (c *collector) collectRPC(m sender) {
	s := c.node.rpc.Stats()
	m.gauge("rpc_connections", "Open connections.", float64(s.Conns))
	m.gauge("rpc_in_flight", "Requests in progress.", float64(s.InFlight))
	m.gauge("rpc_memory_bytes", "Memory of requests in progress and of answers not yet sent.", float64(s.MemoryBytes))
	m.counter("rpc_received_bytes_total", "Bytes received.", float64(s.BytesIn))
	m.counter("rpc_sent_bytes_total", "Bytes sent.", float64(s.BytesOut))
	m.counter("rpc_forbidden_total", "Requests rejected by access control before execution.", float64(s.Guarded))
	m.counter("rpc_malformed_total", "Connections closed because of malformed messages.", float64(s.Malformed))
	m.counter("rpc_corrupt_total", "Connections closed because of wrong checksums.", float64(s.Corrupt))
	m.counter("rpc_overloaded_total", "Requests rejected for lack of memory or workers.", float64(s.Overloaded))
	m.counter("rpc_late_total", "Requests rejected because their deadline had passed.", float64(s.Late))
	m.counter("rpc_dropped_total", "Requests dropped because their connection had closed.", float64(s.Dropped))
	m.counter("rpc_panics_total", "Handlers that panicked.", float64(s.Panics))
	for i := range s.Methods {
		m.method(&s.Methods[i])
	}
}

// sender creates metrics with the common prefix.
type sender struct{ out chan<- prometheus.Metric }

// labels alternates names and values.
func (m sender) send(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	m.out <- prometheus.MustNewConstMetric(prometheus.NewDesc("stele_"+name, help, names, nil), kind, v, values...)
}

func (m sender) gauge(name, help string, v float64, labels ...string) {
	m.send(prometheus.GaugeValue, name, help, v, labels)
}

func (m sender) counter(name, help string, v float64, labels ...string) {
	m.send(prometheus.CounterValue, name, help, v, labels)
}

func (m sender) method(s *rpc.MethodStats) {
	if s.Requests == 0 {
		return
	}
	m.counter("rpc_errors_total", "Requests answered with an error.", float64(s.Errors), "method", s.Method)
	buckets, seen := map[float64]uint64{}, uint64(0)
	for i, n := range s.Latency {
		seen += n
		if bound := rpc.LatencyBound(i); bound > 0 { // the last bucket has none
			buckets[bound.Seconds()] = seen
		}
	}
	m.out <- prometheus.MustNewConstHistogram(
		prometheus.NewDesc("stele_rpc_request_seconds", "Time from a request's arrival to its answer.", []string{"method"}, nil),
		s.Requests, s.Time.Seconds(), buckets, s.Method)
}

func boolFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
