package api

import (
	"context"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// LogBytesMax is the most bytes of frames in one AppendLog or ReadLog.
const LogBytesMax = 1 << 20

// LogRead identifies a replica to read, and the start and length that it must have been cut to.
type LogRead struct {
	Log           local.ID
	Seq           uint64
	Start, Length int64
}

// Logs is the part of a node's store that holds replicas of log extents. Package logproto specifies
// which requests it rejects.
//
// Errors: *logproto.FencedError, logproto.ErrNoExtent, ErrExtentExists, ErrExtentClosed, ErrGap,
// ErrUncut and ErrMismatch, *logproto.ShortError, ErrDiskFull, ErrFolderRetired, *CorruptError,
// ErrBusy, ErrUnreachable.
type Logs interface {
	// OpenLog creates an empty replica of an extent durably, and returns its capacity in bytes of
	// frames.
	OpenLog(ctx context.Context, o local.LogOpen) (capacity int64, err error)
	// AppendLog adds frames to a replica. Calls for one extent take effect in call order and wait
	// neither for each other nor for the disk. done is called once, from any goroutine, with the
	// bytes of frames that are durable in the replica; it must not block. The frames are not used
	// after AppendLog returns.
	AppendLog(ctx context.Context, a local.LogAppend, done func(length int64, err error))
	// FenceLog makes the node durably reject writers of lower epochs, and returns the state of its
	// good replicas of the log.
	FenceLog(ctx context.Context, log local.ID, epoch uint64) ([]logproto.State, error)
	// CutLog truncates a replica to the start and length in the log's list, which makes it
	// readable.
	CutLog(ctx context.Context, c local.LogCut) error
	// RefillLog is CutLog for a replica that is short, corrupt or missing. The node copies the
	// missing bytes from the first of the other nodes whose replica was cut. It creates a missing
	// replica. But a missing one may have been dropped, so callers use RefillLog only for a replica
	// that has just answered that it is short or corrupt.
	RefillLog(ctx context.Context, c local.LogCut, from []string) error
	// StatLog returns the state of a replica.
	StatLog(ctx context.Context, log local.ID, seq uint64) (local.LogReplicaInfo, error)
	// ReadLog reads up to len(p) bytes of frames at off. It does not verify them; the caller does.
	ReadLog(ctx context.Context, r LogRead, p []byte, off int64) (int, error)
	// DropLog removes a replica, whatever its state. It checks no list: see R14 of package blobfs. It
	// returns nil if there is none.
	DropLog(ctx context.Context, log local.ID, seq uint64) error
	// ListLogs returns up to max replicas of the node in order of log and extent, from the first
	// after the given one.
	ListLogs(ctx context.Context, log local.ID, seq uint64, max int) ([]local.LogReplicaInfo, error)
	// VerifyLog reads and verifies all frames of a replica. It returns the *CorruptError of the
	// first bad frame.
	VerifyLog(ctx context.Context, log local.ID, seq uint64) error
}
