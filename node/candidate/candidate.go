// Package candidate makes a node a candidate for master (paper §5.2): it is the master while it leads the lock service and holds the lock /master.
//
// # Goroutines
//
//	goroutine   started by   ends with   does
//	master      Start        Stop, Ctx   is the master while this node leads the lock service, and assigns tablets (package master)
package candidate

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/assign"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// pause is the interval between rounds of the master.
const pause = time.Second

// Config is what the package needs.
type Config struct {
	Ctx        context.Context // of the node
	Background *sync.WaitGroup
	Log        *slog.Logger
	ID         func() string // of the node
	Meta       *namespace.Access
	Stable     time.Duration // see master.Config
}

// Candidate is a node that may be the master.
type Candidate struct {
	Config
	master atomic.Pointer[master.Master] // nil before Start
	cancel context.CancelFunc
}

// New creates a candidate that is no master until Start.
func New(cfg Config) *Candidate { return &Candidate{Config: cfg} }

// Start starts the candidacy, with the lock service's group, the nodes of the cluster, and access to tablets.
func (c *Candidate) Start(group master.Group, nodes *members.Service, tablets assign.Config) {
	tablets.Sequencer = func() metaapi.Sequencer { return c.Master().Sequencer() }
	c.master.Store(master.New(master.Config{
		ID: c.ID(), Group: group, Nodes: tablets.Commands, Servers: nodes.Servers, Acquire: c.acquire, Tablets: assign.New(tablets),
		Stable: c.Stable, Pause: pause, Logger: c.Log.With("part", "master"),
	}))
	c.Resume()
}

// Resume starts the candidacy again after Stop.
func (c *Candidate) Resume() {
	ctx, cancel := context.WithCancel(c.Ctx)
	c.cancel = cancel
	c.Background.Go(func() { c.Master().Run(ctx) })
}

// Stop ends the candidacy.
func (c *Candidate) Stop() {
	if c.cancel != nil {
		c.cancel()
	}
}

// Master returns the master of this node, which has the epoch 0 while another node is the master. It is nil before Start.
func (c *Candidate) Master() *master.Master { return c.master.Load() }

// Epoch returns the epoch of this node's mastership, or 0.
func (c *Candidate) Epoch() uint64 {
	if m := c.Master(); m != nil {
		return m.Epoch()
	}
	return 0
}

// IsMaster reports whether this node is the master.
func (c *Candidate) IsMaster() bool { return c.Epoch() != 0 }

func (c *Candidate) acquire(ctx context.Context) (master.Lock, error) {
	l, err := c.Meta.Current().Acquire(ctx, master.LockPath, metaapi.Exclusive, session.LockOptions{})
	if err != nil {
		return nil, err
	}
	return l, nil
}
