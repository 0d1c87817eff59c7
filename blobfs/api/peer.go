package api

import (
	"context"

	"github.com/steledb/stele/blobfs/local"
)

// Peer is the complete store of another node.
type Peer interface {
	Extents
	Logs
	Sweep
}

// PieceBytesMax is the most bytes in one Piece, Read or Reread.
const PieceBytesMax = 1 << 20

// ChainMax is the most nodes in the chain of a stream.
const ChainMax = 8

// StreamID identifies a stream. It is random, chosen by the writer, and the same on every node of
// the chain, so that the writer can address each node.
type StreamID [16]byte

// Begin is the request to start a stream, which writes one extent.
type Begin struct {
	Stream StreamID
	Extent local.ExtentID
	Offset int64    // of the extent within the blob
	Chain  []string // the nodes behind this one, in order
	// HighPriority is the expected length, in bytes, of a high-priority extent, which may use up to half
	// of a folder's reserve. It is 0 for all other extents.
	HighPriority int64
}

// Seal is the request to end a stream.
type Seal struct {
	Stream StreamID
	Length int64  // of the extent; missing bytes are an error
	CRC    uint32 // of the writer's chunk table
	Last   bool   // the blob's last extent
	// Holders is stored with the extent.
	Holders local.Holders
}

// Ref identifies a sealed extent and its bytes.
type Ref struct {
	Extent local.ExtentID
	CRC    uint32 // of its chunk table
}

// Copy is the request to copy a sealed extent from another node.
type Copy struct {
	Ref
	From    []string // tried in order
	Holders local.Holders
}

// Extents is the part of a node's store that holds blob extents.
//
// Begin, Piece, Seal and Abort of one stream take effect in call order and do not wait for each
// other: any number of calls may be unanswered, up to the window. They do not block on disk or
// network. done is called once, from any goroutine, and must not block. The callee owns the bytes
// passed to Piece until then.
type Extents interface {
	// Begin starts a stream. It returns ErrDiskFull and ErrFolderRetired as package local does, and
	// ErrExtentExists if this node has the extent sealed.
	Begin(ctx context.Context, b Begin, done func(error))
	// Piece adds bytes at an offset of the extent; bytes that the node already has are skipped. A
	// piece is whole chunks of 64 KiB, or ends the extent. A nil error means that this node and all
	// behind it have received the piece, not that it is durable. A *ReplicaError names a node
	// behind that failed; this node then has the piece.
	Piece(ctx context.Context, s StreamID, off int64, p []byte, done func(error))
	// Seal makes the extent durable on this node and all behind. done gets the nodes that have
	// sealed it, and the first error if any failed.
	Seal(ctx context.Context, s Seal, done func(sealed []string, err error))
	// Resume stops the forwarding of a stream and returns how many bytes of it this node has. The
	// caller continues from there. It returns ErrNoStream if there is no such stream.
	Resume(ctx context.Context, s StreamID) (length int64, err error)
	// Reread reads back len(p) bytes of an unsealed stream.
	Reread(ctx context.Context, s StreamID, p []byte, off int64) error
	// Abort ends a stream and removes its bytes on this node and those behind.
	Abort(ctx context.Context, s StreamID, done func(error))

	// Read reads len(p) verified bytes of a sealed extent. It returns ErrNoExtent, or a
	// *CorruptError if the bytes are corrupt or the extent has a different checksum.
	Read(ctx context.Context, r Ref, p []byte, off int64) error
	// ReadToCopy is Read for a copy of the extent, which does not prove that the extent is in use: it
	// takes nothing out of quarantine, and returns ErrNoExtent for what is there.
	ReadToCopy(ctx context.Context, r Ref, p []byte, off int64) error
	// Stat returns the state of an extent. It returns ErrNoExtent, or a *CorruptError if the extent
	// is known to be corrupt.
	Stat(ctx context.Context, x local.ExtentID) (local.ExtentStat, error)
	// List returns up to max extents of the node in order of blob and index, from the first after
	// the given one. An empty result means that there are no more.
	List(ctx context.Context, after local.ExtentID, max int) ([]local.ExtentInfo, error)
	// Check returns the state of up to CheckMax extents, in their order, without reading their
	// files.
	Check(ctx context.Context, xs []local.ExtentID) ([]Held, error)
	// Drop removes an extent, also one in quarantine. It checks no reference: see R14 of package
	// blobfs. It returns ErrNoExtent if there is none.
	Drop(ctx context.Context, x local.ExtentID, why Reason) error
	// DropBlob is Drop for all extents of a blob. It returns how many there were.
	DropBlob(ctx context.Context, blob local.ID, why Reason) (int, error)
	// Copy makes the node copy an extent from another, unless it has a good replica. On return the
	// extent is durable. It returns ErrNoExtent if no source has it.
	Copy(ctx context.Context, c Copy) error
	// SetHolders replaces the holder list of an extent if the new epoch is higher. It returns
	// ErrNoExtent, or ErrStaleHolders if the epoch is lower, or equal with different nodes.
	SetHolders(ctx context.Context, x local.ExtentID, h local.Holders) error
	// Verify reads and verifies a sealed extent on the node. It returns ErrNoExtent, or a
	// *CorruptError if the extent is corrupt or has a different checksum.
	Verify(ctx context.Context, r Ref) error
}

// Reason is why an extent is dropped. It is for diagnosis only: nodes of this version ignore it and
// drop the extent whatever the reason. Repair and scrub do not call Drop: a node drops only its own
// surplus or corrupt replicas.
type Reason uint8

// Reasons. They are used on the wire: append only.
const (
	Deleted  Reason = 1 // its blob was deleted
	Corrupt  Reason = 2 // it is corrupt; not sent by this version
	Surplus  Reason = 3 // it is more than the replication factor; not sent by this version
	GivenUp  Reason = 4 // its blob got no handle: a node sealed the extent, the write failed
	reasonsN        = 5
)

// HeldState is the state of an extent on a node.
type HeldState uint8

// States. They are used on the wire: append only.
const (
	Missing     HeldState = 0 // no replica
	Good        HeldState = 1 // a replica with no known corruption
	Bad         HeldState = 2 // a replica that is corrupt or on a failing disk
	Quarantined HeldState = 3 // a replica in quarantine
)

// Held is a node's answer about an extent.
type Held struct {
	State HeldState
	// Repairs means that the node has found too few replicas and is the one to make more.
	Repairs bool
	Length  int64
	Holders local.Holders
}
