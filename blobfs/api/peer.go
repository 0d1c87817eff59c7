package api

import (
	"context"

	"github.com/steledb/stele/blobfs/local"
)

// Peer is the store of another node, in all its parts.
type Peer interface {
	Extents
	Logs
	Sweep
}

// PieceBytesMax is the most that a Piece, Read or Reread carries, in bytes.
const PieceBytesMax = 1 << 20

// ChainMax is the most nodes that a stream passes through.
const ChainMax = 8

// StreamID names a stream: random bits, made by the writer, and the same on every node
// that the stream passes through, so that the writer may turn to each of them.
type StreamID [16]byte

// Begin starts a stream: one extent that is being written.
type Begin struct {
	Stream StreamID
	Extent local.ExtentID
	Offset int64    // of the extent within the blob
	Chain  []string // the nodes that get the bytes after this one, in order
	// Vital is, of an extent that may take folders down to half of their reserve, how many bytes it is
	// expected to have; 0 of any other.
	Vital int64
}

// Seal ends a stream.
type Seal struct {
	Stream StreamID
	Length int64  // of the extent; bytes that are missing are an error
	CRC    uint32 // of its chunk table, as the writer has it
	Last   bool   // it is the blob's last
	// Holders are kept with the extent.
	Holders local.Holders
}

// Ref names the bytes of a sealed extent.
type Ref struct {
	Extent local.ExtentID
	CRC    uint32 // of its chunk table
}

// Copy asks a node to get a sealed extent from another.
type Copy struct {
	Ref
	From    []string // tried in order
	Holders local.Holders
}

// Extents is a node's part in the keeping of sealed extents.
//
// Begin, Piece, Seal and Abort of one stream take effect in the order in which they are called,
// and do not wait for each other: whoever calls may have any number under way, up to the
// window. They do not block on disk or network. done is called once, from any
// goroutine, and must not block; the bytes given to Piece are the callee's until then.
type Extents interface {
	// Begin starts a stream. ErrDiskFull and ErrFolderRetired as in package local;
	// ErrExtentExists if the extent is here, sealed.
	Begin(ctx context.Context, b Begin, done func(error))
	// Piece adds bytes at an offset of the extent; bytes that are there already are
	// passed over. A piece is whole chunks of 64 KiB, or the extent's end. done means
	// that this node and all behind it have the piece, not that it is durable. A node
	// behind that failed is a *ReplicaError; this one then has the piece.
	Piece(ctx context.Context, s StreamID, off int64, p []byte, done func(error))
	// Seal makes the extent durable here and on all behind. done gets the nodes where it
	// is, and the first error if one of them failed.
	Seal(ctx context.Context, s Seal, done func(sealed []string, err error))
	// Resume ends the forwarding of a stream, and returns how much of it this node has:
	// the caller takes it over from there. ErrNoStream.
	Resume(ctx context.Context, s StreamID) (length int64, err error)
	// Reread reads back len(p) bytes of a stream that is not sealed.
	Reread(ctx context.Context, s StreamID, p []byte, off int64) error
	// Abort ends a stream and removes what it has written here. Nodes behind abort too.
	Abort(ctx context.Context, s StreamID, done func(error))

	// Read reads len(p) verified bytes of a sealed extent. ErrNoExtent; *CorruptError
	// when the bytes are rotten or the extent is not the one that is meant.
	Read(ctx context.Context, r Ref, p []byte, off int64) error
	// Stat returns what the node knows of an extent. ErrNoExtent; *CorruptError if it is known
	// to be rotten.
	Stat(ctx context.Context, x local.ExtentID) (local.ExtentStat, error)
	// List returns up to max of the extents that the node has, in order of blob and
	// index, from the first after the one given. None means that there are no more.
	List(ctx context.Context, after local.ExtentID, max int) ([]local.ExtentInfo, error)
	// Check says of up to CheckMax extents, in their order, how this node holds them, as
	// far as it knows without reading their files.
	Check(ctx context.Context, xs []local.ExtentID) ([]Held, error)
	// Drop removes an extent. ErrNoExtent.
	Drop(ctx context.Context, x local.ExtentID, why Reason) error
	// DropBlob removes all extents of a blob, and returns how many there were.
	DropBlob(ctx context.Context, blob local.ID, why Reason) (int, error)
	// Copy has the node get an extent from another one, unless it has it in good order. Done
	// when it is durable. ErrNoExtent if none of those asked has it.
	Copy(ctx context.Context, c Copy) error
	// SetHolders replaces the list kept with an extent if the epoch is higher than the
	// present one. ErrNoExtent; ErrStaleHolders if it is lower, or equal with other nodes.
	SetHolders(ctx context.Context, x local.ExtentID, h local.Holders) error
	// Verify reads all of a sealed extent and checks it where it lies. ErrNoExtent;
	// *CorruptError when its bytes are rotten or it is not the one that is meant.
	Verify(ctx context.Context, r Ref) error
}

// Reason says why an extent is dropped.
type Reason uint8

// The reasons. They travel on the wire: append only.
const (
	Deleted  Reason = 1 // its blob is no longer wanted
	Rotten   Reason = 2 // its bytes are wrong
	Surplus  Reason = 3 // others have it, and this node need not
	GivenUp  Reason = 4 // its blob was never sealed
	reasonsN        = 5
)

// HeldState is how a node holds an extent.
type HeldState uint8

// The states. They travel on the wire: append only.
const (
	Missing  HeldState = 0 // it has none
	Good     HeldState = 1 // it has one, and knows nothing against it
	Bad      HeldState = 2 // it has one that is rotten, or on a disk that fails
	Unwanted HeldState = 3 // it has one in quarantine, as nothing seems to need it
)

// Held is what a node says of an extent.
type Held struct {
	State HeldState
	// Repairs means that it sees that there are too few replicas, and is the one
	// to make more.
	Repairs bool
	Length  int64
	Holders local.Holders
}
