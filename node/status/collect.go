package status

import "github.com/steledb/stele/node/metric"

// Collect sends the metrics of the tablet servers and of the node's mastership. The node must serve.
func (sv *Service) Collect(m metric.Sender) {
	sv.collectTablets(m)
	m.Gauge("master_epoch", "Epoch of this node's mastership; 0 while it is not master.", float64(sv.Master().Epoch()))
	if unserved, err := sv.Master().Unserved(); err == nil {
		m.Gauge("master_unserved_tablets", "Tablets of the cluster not served for at least 5 seconds; exported by the master alone.", float64(len(unserved)))
	}
}

func (sv *Service) collectTablets(m metric.Sender) {
	t, own := sv.Stats(), sv.Metadata().Stats()
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
