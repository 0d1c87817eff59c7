package replog

import (
	"context"
	"log/slog"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/internal/background"
	"github.com/steledb/stele/internal/timing"
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

// Deps are the parts of a node's store that logs use.
type Deps struct {
	Disks    *local.Store
	Peers    *members.Peers
	Lists    Lists // nil without a lock service: then there are no logs
	Clock    timing.Clock
	Work     *background.Group
	Logger   *slog.Logger
	Replicas int // the replication factor
	// ReplyTimeout bounds a short call to a node, CallTimeout one that may sync or copy an extent.
	ReplyTimeout, CallTimeout time.Duration
}

// Logs are the replicated logs as one node sees them. It is safe for concurrent use.
type Logs struct {
	cfg      Config
	deps     Deps
	self     string
	ctx      context.Context // canceled when the store closes
	replicas *Replicas
	frames   *frameBuffers // apart, since package sync refers to pools
	writers  writers
	times    replicaTimes
}

// New returns the logs of a node. cfg is complete, see Config.WithDefaults.
func New(cfg Config, deps Deps) *Logs {
	logs := &Logs{cfg: cfg, deps: deps, self: deps.Peers.Self(), ctx: deps.Work.Context(), frames: new(frameBuffers)}
	logs.replicas = &Replicas{logs}
	return logs
}

// Replicas returns what this node serves to the writers and readers of all nodes.
func (logs *Logs) Replicas() *Replicas { return logs.replicas }

// now returns the time on the clock.
func (logs *Logs) now() time.Duration { return logs.deps.Clock.Now() }

// usable returns ErrClosed if the store is closed, else the error of ctx.
func (logs *Logs) usable(ctx context.Context) error {
	if logs.deps.Work.Stopped() {
		return local.ErrClosed
	}
	return ctx.Err()
}
