package api

import (
	"context"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// LogBytesMax is the most bytes of frames that an AppendLog or ReadLog carries.
const LogBytesMax = 1 << 20

// LogRead says of which replica is read, and what it must have been cut to.
type LogRead struct {
	Log           local.ID
	Seq           uint64
	Start, Length int64
}

// Logs is a node's part in the keeping of logs: replicas of their extents. What it refuses,
// and why, is in package logproto.
//
// Errors: *logproto.FencedError, logproto.ErrNoExtent, ErrExtentExists, ErrExtentClosed, ErrGap,
// ErrUncut and ErrMismatch, *logproto.ShortError, ErrDiskFull, ErrFolderRetired, *CorruptError,
// ErrBusy, ErrUnreachable.
type Logs interface {
	// OpenLog makes an empty replica of an extent, durably, and returns how many bytes of
	// frames it takes.
	OpenLog(ctx context.Context, o local.LogOpen) (room int64, err error)
	// AppendLog adds frames to a replica. Calls for one extent take effect in the order in
	// which they are made, and do not wait for each other or for the disk. done is called once, from any
	// goroutine, with how many bytes of frames the replica has on disk; it must not block. The frames
	// are the caller's again when AppendLog returns.
	AppendLog(ctx context.Context, a local.LogAppend, done func(length int64, err error))
	// FenceLog has the node durably refuse writers of lower epochs, and returns what it has
	// of the log that is sound.
	FenceLog(ctx context.Context, log local.ID, epoch uint64) ([]logproto.State, error)
	// CutLog makes a replica what the log's list says of the extent, so that it can be read.
	CutLog(ctx context.Context, c local.LogCut) error
	// RefillLog is CutLog for a node whose replica is short, damaged or not there: it gets what it
	// lacks from the first of the other nodes that was cut.
	RefillLog(ctx context.Context, c local.LogCut, from []string) error
	// StatLog returns what the node knows of a replica.
	StatLog(ctx context.Context, log local.ID, seq uint64) (local.LogReplicaInfo, error)
	// ReadLog reads up to len(p) bytes of frames at off. Who takes the frames apart verifies them.
	ReadLog(ctx context.Context, r LogRead, p []byte, off int64) (int, error)
	// DropLog removes a replica. One that is not there is no error.
	DropLog(ctx context.Context, log local.ID, seq uint64) error
	// ListLogs returns up to max of the replicas that the node has, in order of log and extent, from the
	// first after the one given.
	ListLogs(ctx context.Context, log local.ID, seq uint64, max int) ([]local.LogReplicaInfo, error)
	// VerifyLog reads all frames of a replica and checks them where they lie: *CorruptError of
	// the first that is wrong.
	VerifyLog(ctx context.Context, log local.ID, seq uint64) error
}
