package blobfs

import (
	"context"

	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/internal/timing"
)

// These types are those of packages members and timing.
type (
	// Member is a node of the cluster, as reported by the membership.
	Member = members.Member
	// Membership is the cluster membership.
	Membership = members.Membership
	// Clock is a monotonic clock.
	Clock = timing.Clock
)

// Lists stores small files under this server's lock. The lock service's state machine rejects each
// change unless the server still holds the lock. A file that does not exist has generation 0.
type Lists interface {
	// Load returns a file and its generation; nil and 0 if the file does not exist.
	Load(ctx context.Context, path string) (data []byte, gen uint64, err error)
	// Save replaces the file if it is still at generation gen, and returns the new generation. It
	// returns ErrDiskFull if the lock service is out of space, and ErrFenced if this node has
	// permanently lost the lock.
	Save(ctx context.Context, path string, data []byte, gen uint64) (uint64, error)
	// Delete removes the file if it is still at generation gen.
	Delete(ctx context.Context, path string, gen uint64) error
	// List returns the names of the files in a directory, sorted, without the path.
	List(ctx context.Context, dir string) ([]string, error)
}
