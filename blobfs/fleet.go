package blobfs

import (
	"context"
	"time"

	"github.com/steledb/stele/blobfs/api"
)

// Member is a node as the others see it.
type Member struct {
	ID, Zone      string
	CapacityBytes int64 // of its data folders: its weight in placement
	FreeBytes     int64 // above its reserve; none makes it full
	Alive         bool
	Since         time.Time // of Alive
	Leaving       bool      // draining, or removed
}

// Fleet is what a store knows of the nodes of its cluster. What it says is a hint:
// a member that is called alive may be gone, and the other way round.
type Fleet interface {
	// Members returns all nodes, this one among them.
	Members() []Member
	// Changed returns a channel that is closed when Members next says something else.
	Changed() <-chan struct{}
	// Self is the ID of this node.
	Self() string
	// Peer returns the store of another node. It may dial, and may return before
	// the node has answered; an error means that it cannot be asked now.
	Peer(ctx context.Context, id string) (api.Peer, error)
}

// Lists keeps small files under this server's lock: each change checks, inside the state
// machine, that the server still holds it. A file that does not exist has generation 0.
type Lists interface {
	// Load returns a file and its generation; nil and 0 if there is none.
	Load(ctx context.Context, path string) (data []byte, gen uint64, err error)
	// Save replaces the file if it is still at generation gen, and returns its new one.
	// ErrDiskFull if there is no room for that; ErrFenced if this store's node has lost what
	// lets it change lists, for good.
	Save(ctx context.Context, path string, data []byte, gen uint64) (uint64, error)
	// Delete removes the file if it is still at generation gen.
	Delete(ctx context.Context, path string, gen uint64) error
	// List returns the names of the files in a directory, sorted, without the path.
	List(ctx context.Context, dir string) ([]string, error)
}

// Clock is a monotonic clock. Only differences count.
type Clock interface {
	// Now returns the time since a moment that stays the same.
	Now() time.Duration
	// Timer returns a channel that gets a value after d, and what ends it before.
	Timer(d time.Duration) (fired <-chan time.Time, stop func())
}

// systemClock is the machine's monotonic clock.
type systemClock struct{ start time.Time }

func newSystemClock() Clock { return systemClock{time.Now()} }

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
