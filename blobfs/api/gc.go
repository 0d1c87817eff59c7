package api

import (
	"context"
	"errors"

	"github.com/steledb/stele/blobfs/local"
)

// SweepMax is the most extents, replicas or blobs in one page.
const SweepMax = 1024

// ReplicaKey identifies a node's replica of a log extent.
type ReplicaKey struct {
	Log local.ID
	Seq uint64
}

// Compare orders keys by log and extent.
func (k ReplicaKey) Compare(o ReplicaKey) int {
	return local.CompareReplicas(k.Log, k.Seq, o.Log, o.Seq)
}

// SweepReplica is a log replica and the server that owns the log.
type SweepReplica struct {
	ReplicaKey
	Server string
}

// Swept is the result of EndSweep on a node.
type Swept struct {
	Warned      int   // first found to be garbage
	Quarantined int   // put into quarantine
	Removed     int   // from quarantine
	Bytes       int64 // removed
	Revived     int   // taken out of quarantine because they are needed
	More        bool  // steps remain: call again
	Alarm       string
}

// ErrStaleRound means that the node has seen a later round or has not begun this one, or that the
// judged extents are not on the page that it listed last.
var ErrStaleRound = errors.New("garbage collection round is stale")

// Sweep is the part of a node's store that takes part in garbage collection. In a round the node
// lists the extents that existed when the round began, page by page. For each page it receives
// those that are garbage. At the end of the round it quarantines the garbage that an earlier round
// found too, and removes what has been in quarantine for the grace period. A round that does not
// end changes nothing. All methods but the last two return ErrStaleRound.
type Sweep interface {
	// BeginSweep begins a round. Its number must be higher than all before. alarm is the reason why
	// garbage collection must stop, if any.
	BeginSweep(ctx context.Context, round uint64) (alarm string, err error)
	// SweepPins returns up to max of the blobs in use on the node, sorted, from the first after the
	// given one.
	SweepPins(ctx context.Context, round uint64, after local.ID, max int) ([]local.ID, error)
	// SweepExtents returns up to max of the extents to judge, sorted, from the first after the last
	// one judged. An empty result means that all are judged.
	SweepExtents(ctx context.Context, round uint64, max int) ([]local.ExtentID, error)
	// JudgeExtents reports which extents of the last page, up to and including upTo, are garbage.
	JudgeExtents(ctx context.Context, round uint64, upTo local.ExtentID, garbage []local.ExtentID) (alarm string, err error)
	// SweepReplicas and JudgeReplicas are the same for log replicas.
	SweepReplicas(ctx context.Context, round uint64, max int) ([]SweepReplica, error)
	JudgeReplicas(ctx context.Context, round uint64, upTo ReplicaKey, garbage []ReplicaKey) (alarm string, err error)
	// EndSweep applies the result of the round, a bounded number of steps at a time.
	EndSweep(ctx context.Context, round uint64) (Swept, error)

	// ReviveBlob takes the extents of a blob out of quarantine and returns how many there were.
	ReviveBlob(ctx context.Context, blob local.ID) (int, error)
	// ClearAlarm clears the alarm, so that garbage collection can continue.
	ClearAlarm(ctx context.Context) error
}
