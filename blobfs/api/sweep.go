package api

import (
	"context"
	"errors"

	"github.com/steledb/stele/blobfs/local"
)

// SweepMax is the most extents, replicas or blobs that one page of a sweep has.
const SweepMax = 1024

// ReplicaKey names a node's replica of an extent of a log.
type ReplicaKey struct {
	Log local.ID
	Seq uint64
}

// Compare orders keys by log and extent.
func (k ReplicaKey) Compare(o ReplicaKey) int {
	return local.CompareReplicas(k.Log, k.Seq, o.Log, o.Seq)
}

// SweepReplica is a replica and the server whose log it is of.
type SweepReplica struct {
	ReplicaKey
	Server string
}

// Swept is what the end of a round did on a node.
type Swept struct {
	Warned      int   // found for the first time
	Quarantined int   // put into quarantine
	Removed     int   // from quarantine, for good
	Bytes       int64 // of those
	Revived     int   // taken out of quarantine, as something needs them
	More        bool  // it has not done all yet: call again
	Alarm       string
}

// ErrStaleRound means that the node knows a later round of the sweep, or does not know this one, or
// that what it is told is not about what it listed last.
var ErrStaleRound = errors.New("round of the sweep is stale")

// Sweep is a node's part in finding garbage. A round lists what was there before it began, page
// by page; of each page the node is told what nothing needs. At the end of the round it does what
// is due: puts into quarantine what an earlier round has found as well, and removes what is in quarantine for
// long enough. Nothing is done of a round that does not end. Each returns ErrStaleRound but the last two.
type Sweep interface {
	// BeginSweep begins a round, which is higher than all before. alarm says why there must be no
	// sweep, if there is a reason.
	BeginSweep(ctx context.Context, round uint64) (alarm string, err error)
	// SweepPins returns up to max of the blobs that are in use on the node, sorted, from the first
	// after the one given.
	SweepPins(ctx context.Context, round uint64, after local.ID, max int) ([]local.ID, error)
	// SweepExtents returns up to max of the extents to judge, sorted, from the first after
	// the last one judged. None means that all are.
	SweepExtents(ctx context.Context, round uint64, max int) ([]local.ExtentID, error)
	// JudgeExtents tells which extents of the last page, up to and with one of it, nothing needs.
	JudgeExtents(ctx context.Context, round uint64, upTo local.ExtentID, garbage []local.ExtentID) (alarm string, err error)
	// SweepReplicas and JudgeReplicas are the same for replicas of logs.
	SweepReplicas(ctx context.Context, round uint64, max int) ([]SweepReplica, error)
	JudgeReplicas(ctx context.Context, round uint64, upTo ReplicaKey, garbage []ReplicaKey) (alarm string, err error)
	// EndSweep does what is due, as much as does not take long.
	EndSweep(ctx context.Context, round uint64) (Swept, error)

	// ReviveBlob takes the extents of a blob out of quarantine and returns how many there were.
	ReviveBlob(ctx context.Context, blob local.ID) (int, error)
	// ClearAlarm lets sweeps go on.
	ClearAlarm(ctx context.Context) error
}
