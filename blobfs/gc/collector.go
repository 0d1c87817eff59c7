package gc

import (
	"context"
	"log/slog"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/internal/timing"
)

// Lists stores the state that all Sweepers share, under this server's lock.
type Lists interface {
	// Load returns a file and its generation; nil and 0 if the file does not exist.
	Load(ctx context.Context, path string) (data []byte, gen uint64, err error)
	// Save replaces the file if it is still at generation gen, and returns the new generation.
	Save(ctx context.Context, path string, data []byte, gen uint64) (uint64, error)
}

// Logs has the lists of replicated logs.
type Logs interface {
	// Load returns the list of a server's log; generation 0 if there is none.
	Load(ctx context.Context, server string, id local.ID) (l logproto.List, gen uint64, err error)
}

// Deps are the parts of a node's store that garbage collection uses.
type Deps struct {
	Disks  *local.Store
	Peers  *members.Peers
	Lists  Lists // nil without a lock service: then there are no rounds
	Logs   Logs
	Pins   *Pins
	Clock  timing.Clock
	Logger *slog.Logger
	// ReplyTimeout bounds the beginning of a round on a node, CallTimeout each later call.
	ReplyTimeout, CallTimeout time.Duration

	// Held returns the state of extents on this node.
	Held func(xs []local.ExtentID) []api.Held
	// Forget closes an extent that is kept open for other nodes.
	Forget func(x local.ExtentID)
	// Delete removes a blob on all nodes that may have it.
	Delete func(ctx context.Context, id local.ID) error
}

// Collector is garbage collection as one node sees it. It is safe for concurrent use.
type Collector struct {
	cfg         Config
	deps        Deps
	participant *Participant
	status      statusRecord
	abandoned   abandoned
}

// New returns the garbage collection of a node. cfg is complete, see Config.WithDefaults.
func New(cfg Config, deps Deps) *Collector {
	c := &Collector{cfg: cfg, deps: deps}
	c.participant = newParticipant(c)
	return c
}

// Participant returns what this node serves to the Sweepers of all nodes.
func (c *Collector) Participant() *Participant { return c.participant }
