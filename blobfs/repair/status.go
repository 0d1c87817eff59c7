package repair

import (
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/local"
)

// Counts counts the work of a repairer since it started.
type Counts struct {
	// Copied are replicas that other nodes copied at this node's request.
	Copied, CopiedBytes int64
	// Trimmed are surplus replicas that this node dropped.
	Trimmed, TrimmedBytes int64
	// Healed are local replicas that were corrupt or in a retired folder and were rebuilt. Unhealed
	// counts attempts that found no good replica.
	Healed, Unhealed int64
	// ScrubFound are replicas that the scrub found corrupt.
	ScrubFound int64
	// Moved are extents moved to emptier nodes.
	Moved, MovedBytes int64
}

// Status is the state of a node's repairer. Each under-replicated extent is counted only by the
// node that repairs it, so the figures of all nodes can be added up.
type Status struct {
	// Known is false until a scan has ended since the last membership change. It is also false
	// while a non-member that some list names is in its grace period, and without a repairer.
	// Figures of extents are then those of an earlier scan.
	Known          bool
	Extents, Bytes int64 // on this node
	// Short counts the under-replicated extents that this node repairs, by live replicas.
	// ToCopyBytes is what has to be copied for them.
	Short       []int64
	ToCopy      int64
	ToCopyBytes int64
	Surplus     int64 // local replicas to be trimmed, or taken off a list
	BytesPerSec int64 // copied in the last seconds
	ETA         time.Duration
	// Corrupt counts corrupt local replicas that are not healed yet.
	Corrupt int64
	Scrub   ScrubStatus
	Drain   DrainStatus
	Balance BalanceStatus
	Counts
}

// count updates the counts.
func (k *Repairer) count(f func(*Counts)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.mu.counts)
}

// Status returns the state of the repairer. It accepts a nil repairer.
func (k *Repairer) Status() Status {
	if k == nil {
		return Status{}
	}
	perSec, _ := k.repairRate.now()
	_, endangered := k.queue.load()
	corrupt := k.deps.Corruption.Count()
	balancePerSec, _ := k.balanceRate.now()
	view, settled := k.watch.settled()
	k.mu.Lock()
	defer k.mu.Unlock()
	scan := &k.mu.scan
	st := Status{
		Known: settled && k.mu.scannedVersion == view, Extents: scan.extents, Bytes: scan.bytes, Short: slices.Clone(scan.short[:k.deps.Replicas]),
		ToCopy: int64(endangered), ToCopyBytes: scan.shortBytes, Surplus: scan.surplus, BytesPerSec: perSec, Counts: k.mu.counts,
	}
	st.Corrupt, st.Drain, st.Scrub = int64(corrupt), k.mu.drain, k.scrubStatusLocked()
	if now := int64(k.deps.Disks.Extents()); st.Drain.Safe && now > 0 { // an extent was sealed since the last scan, by a writer that had chosen this node before
		st.Drain.Safe, st.Drain.Extents = false, now
	}
	st.Balance = BalanceStatus{Active: k.mu.balancing, Moved: st.Moved, Bytes: st.MovedBytes, BytesPerSec: balancePerSec}
	if perSec > 0 {
		st.ETA = time.Duration(float64(st.ToCopyBytes) / float64(perSec) * float64(time.Second))
	}
	return st
}

// Repairs reports whether this node has found too few replicas of an extent and is the one to make
// more. It accepts a nil repairer.
func (k *Repairer) Repairs(info *local.ExtentInfo) bool {
	if k == nil {
		return false
	}
	t, ok := k.triage(k.watch.view(), info)
	return ok && t.rank < taskFallback && k.queue.failed(info.ID) == nil
}
