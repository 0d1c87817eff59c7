package blobfs

import (
	"slices"
	"time"
)

// KeepCounts counts what a keeper did since it started.
type KeepCounts struct {
	// Copied are replicas that other nodes made because this one told them to.
	Copied, CopiedBytes int64
	// Trimmed are replicas that this node dropped because others have enough.
	Trimmed, TrimmedBytes int64
	// Healed are replicas here that were rotten, or in a folder that was retired, and were made anew;
	// Unhealed counts attempts for which there was no good replica.
	Healed, Unhealed int64
	// ScrubFound are replicas that the scrub found rotten.
	ScrubFound int64
	// Moved were given to emptier nodes.
	Moved, MovedBytes int64
}

// KeepStatus is what the keeper of one node has done and has yet to do. Each extent that has too few replicas is
// counted by the one node that repairs it, so the figures of all nodes may be added up.
type KeepStatus struct {
	// Known is false until a scan has ended since the fleet last changed, while a node is waited for that some list names and
	// the fleet does not know, and of a node that is alone. The figures of extents are those of an earlier scan then.
	Known          bool
	Extents, Bytes int64 // that this node holds
	// Short counts extents that have too few replicas and that this node repairs, by live
	// replicas; ToCopyBytes is what has to be copied for them.
	Short       []int64
	ToCopy      int64
	ToCopyBytes int64
	Surplus     int64 // replicas here that wait to be trimmed, or to be taken off a list
	BytesPerSec int64 // copied in the last seconds
	ETA         time.Duration
	// Rotten counts replicas here that are known to be rotten and are not healed yet.
	Rotten  int64
	Scrub   ScrubStatus
	Drain   DrainStatus
	Balance BalanceStatus
	KeepCounts
}

// count changes the counts.
func (k *keeper) count(f func(*KeepCounts)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.mu.counts)
}

// Keeping returns what the keeper has done and has yet to do.
func (s *Store) Keeping() KeepStatus {
	k := s.keeper
	if k == nil {
		return KeepStatus{}
	}
	perSec, _ := k.repairs.now()
	_, endangered := k.queue.load()
	rotten := s.rot.count()
	balancePerSec, _ := k.balances.now()
	view, settled := k.watch.settled()
	k.mu.Lock()
	defer k.mu.Unlock()
	scan := &k.mu.scan
	st := KeepStatus{
		Known: settled && k.mu.scanned == view, Extents: scan.extents, Bytes: scan.bytes, Short: slices.Clone(scan.short[:s.cluster.Replicas]),
		ToCopy: int64(endangered), ToCopyBytes: scan.shortBytes, Surplus: scan.surplus, BytesPerSec: perSec, KeepCounts: k.mu.counts,
	}
	st.Rotten, st.Drain, st.Scrub = int64(rotten), k.mu.drain, k.scrubStatusLocked()
	if now := int64(s.disks.Extents()); st.Drain.Safe && now > 0 { // a writer that had chosen this node before has sealed one since
		st.Drain.Safe, st.Drain.Extents = false, now
	}
	st.Balance = BalanceStatus{Active: k.mu.balancing, Moved: st.Moved, Bytes: st.MovedBytes, BytesPerSec: balancePerSec}
	if perSec > 0 {
		st.ETA = time.Duration(float64(st.ToCopyBytes) / float64(perSec) * float64(time.Second))
	}
	return st
}
