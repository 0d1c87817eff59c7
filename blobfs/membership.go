package blobfs

import (
	"context"
	"time"

	"github.com/steledb/stele/blobfs/api"
)

// Member is a node of the cluster, as reported by the membership.
type Member struct {
	ID, Zone      string
	CapacityBytes int64 // of its data folders; its weight in placement
	FreeBytes     int64 // above its reserve; the node is full if this is less than one extent
	Alive         bool
	Since         time.Time // when Alive last changed
	Draining      bool      // draining, or removed
}

// Membership is the cluster membership. It is a hint: a member reported as alive may be dead, and the
// other way round.
type Membership interface {
	// Members returns all nodes, including this one.
	Members() []Member
	// Changed returns a channel that is closed when the result of Members next changes.
	Changed() <-chan struct{}
	// Self is the ID of this node.
	Self() string
	// Peer returns the store of another node. It may dial, and may return before the node has
	// answered. An error means that the node cannot be reached now.
	Peer(ctx context.Context, id string) (api.Peer, error)
}

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

// Clock is a monotonic clock. Only differences between its values are meaningful.
type Clock interface {
	// Now returns the time since a fixed moment.
	Now() time.Duration
	// Timer returns a channel that receives a value after d, and a function that stops the timer.
	Timer(d time.Duration) (fired <-chan time.Time, stop func())
}

// systemClock is the system's monotonic clock.
type systemClock struct{ start time.Time }

func newSystemClock() Clock { return systemClock{time.Now()} }

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
