package blobs

import (
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/metric"
)

// Collect sends the metrics of the block store on this node. The node must have opened it.
func (bs *Service) Collect(m metric.Sender) {
	bs.collectStore(m)
	bs.collectReplicas(m)
}

func (bs *Service) collectStore(m metric.Sender) {
	uploads, refused := bs.uploads.stats()
	m.Gauge("blob_uploads", "Blobs that clients are storing on this node.", float64(uploads))
	m.Counter("blob_uploads_refused_total", "Blob uploads rejected because their user, or all users together, had too many in progress.", float64(refused))
	s := bs.Store().Stats()
	m.Gauge("blobs", "Sealed blobs with an extent on this node.", float64(s.Blobs))
	for _, f := range s.Folders {
		if disk, err := vfs.DiskOf(bs.FS, f.Path); err == nil {
			m.Gauge("disk_total_bytes", "Size of the file system of a data folder.", float64(disk.TotalBytes), "folder", f.Path)
		}
		m.Gauge("disk_free_bytes", "Free space of the file system of a data folder.", float64(f.FreeBytes), "folder", f.Path)
		m.Gauge("disk_blob_bytes", "Bytes of the sealed extents in a data folder.", float64(f.BlobBytes), "folder", f.Path)
		m.Gauge("disk_log_bytes", "Bytes of the log extents in a data folder.", float64(f.LogBytes), "folder", f.Path)
		m.Gauge("disk_quarantine_bytes", "Bytes of quarantined garbage in a data folder.", float64(f.QuarantineBytes), "folder", f.Path)
		m.Gauge("disk_retired", "1 if a data folder has failed and accepts no writes.", metric.Bool(f.Retired != nil), "folder", f.Path)
	}
}

// collectReplicas collects the metrics of the replicas that this node repairs.
func (bs *Service) collectReplicas(m metric.Sender) {
	store := bs.Store()
	k := store.Repairs()
	short, oneLeft := Under(&k)
	logs, logReplicas := OpenLogs(store)
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
		metric.Bool(bs.MasterEpoch() != 0 && sweep.Halted != ""))
	m.Gauge("blob_sweep_last_round", "Number of the last garbage collection round that this node ran as master.", float64(sweep.Last.Round))
	m.Gauge("blob_sweep_last_found", "Garbage extents found by the last garbage collection round that this node ran as master.", float64(sweep.Last.Garbage))
	if !sweep.At.IsZero() {
		m.Gauge("blob_sweep_last_timestamp_seconds", "End of the last garbage collection round that this node ran as master, in seconds since 1970.", float64(sweep.At.Unix()))
	}
	m.Gauge("blob_drained", "1 while this node is draining and holds no data that is needed.", metric.Bool(k.Drain.Safe))
	m.Gauge("blob_scrub_position_ratio", "Part of this node's data that the current scrub pass has read, from 0 to 1.", k.Scrub.Position)
	m.Gauge("commit_logs", "Commit logs that this node appends to.", float64(logs))
	m.Gauge("commit_log_replicas", "Number of replicas of this node's commit log that has the fewest.", float64(logReplicas))
	m.Gauge("commit_log_under_replicated_extents", "Sealed extents of this node's commit logs with too few replicas, until their data is in other files.", float64(UnderLogs(store)))
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
