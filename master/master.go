package master

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
)

// LockPath is the lock service file whose lock makes a node the master.
const LockPath = "/master"

// Lock is the master lock, held through a session of the lock service.
type Lock interface {
	// Held reports, without I/O, whether the lock is certainly held now.
	Held() bool
	// Done is closed when the lock is lost or released.
	Done() <-chan struct{}
	Sequencer() api.Sequencer
	Release(ctx context.Context) error
}

// Group is the Raft group of the lock service, as seen by its leader.
type Group interface {
	// Leads reports whether this node is the leader. The channel is closed when the leader changes.
	Leads() (bool, <-chan struct{})
	Voters() []Voter
	// Invite returns an invitation for a node that is not in the group.
	Invite(ctx context.Context, id string) (Invitation, error)
	Stage(ctx context.Context, id string) error
	Promote(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
	// StepDown transfers leadership to the named voter, or to any voter if to is empty.
	StepDown(ctx context.Context, to string) error
}

// Nodes sends the master's commands to nodes. Each command carries the sequencer of the master
// lock. A node rejects a sequencer older than the newest it has seen, and confirms a newer one with
// the lock service.
type Nodes interface {
	// Announce announces the master to a node, which then rejects the previous master.
	Announce(ctx context.Context, id string, q api.Sequencer) error
	// StartVoting starts the lock service on a node, with an invitation. It must run before the node
	// is staged.
	StartVoting(ctx context.Context, id string, i Invitation, q api.Sequencer) error
}

// Invitation is a committed entry of the group's log. An invited node does not vote without it:
// raftmeta.Invitation.
type Invitation struct{ Index, Term uint64 }

// Config is the environment of a master. All fields but Tablets are required.
type Config struct {
	ID    string // this node's id
	Group Group
	Nodes Nodes
	// Servers returns all nodes of the cluster, including those that gossip does not list.
	Servers func(ctx context.Context) ([]Server, error)
	// Acquire acquires the master lock. It blocks until the lock is free or ctx ends.
	Acquire func(ctx context.Context) (Lock, error)
	// Tablets gives access to METADATA and the tablet servers. If nil, this master assigns no
	// tablets.
	Tablets Tablets
	// Stable is how long a voter must be gone before it is replaced.
	Stable time.Duration
	// Pause is the time between two reconciliations.
	Pause  time.Duration
	Logger *slog.Logger
}

// Master is this node's candidacy: while the node leads the lock service, it is the cluster's
// master.
type Master struct {
	cfg      Config
	epoch    atomic.Uint64
	lock     atomic.Pointer[Lock]     // of the current mastership, or the last
	assigner atomic.Pointer[assigner] // of the current mastership, or the last
}

// New returns a Master that is idle until Run.
func New(cfg Config) *Master { return &Master{cfg: cfg} }

// Epoch returns the epoch of this node's mastership; zero while it is not master.
func (m *Master) Epoch() uint64 { return m.epoch.Load() }

// Sequencer returns the sequencer of the master lock. It is valid while this node is master.
func (m *Master) Sequencer() (q api.Sequencer) {
	if l := m.lock.Load(); l != nil {
		q = (*l).Sequencer()
	}
	return q
}

// Nudge makes the assigner reread METADATA soon, because something has changed.
func (m *Master) Nudge() {
	if a := m.assigner.Load(); a != nil {
		a.changed()
	}
}

// Run acquires the master lock whenever this node leads the lock service, and acts as the master
// while it holds the lock. It returns when ctx ends, after releasing the lock.
func (m *Master) Run(ctx context.Context) {
	for ctx.Err() == nil {
		leads, changed := m.cfg.Group.Leads()
		if leads {
			m.serveLeader(ctx, changed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// serveLeader acquires the master lock and acts as the master until leadership changes or ctx ends.
// A lost lock is acquired again.
func (m *Master) serveLeader(ctx context.Context, changed <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		lock, err := m.cfg.Acquire(ctx)
		if err == nil {
			m.work(ctx, lock)
			continue
		}
		if ctx.Err() == nil {
			m.cfg.Logger.Warn("master lock not acquired, retrying", "err", err)
		}
		timing.Sleep(ctx, m.cfg.Pause)
	}
}

// work acts as the master until the lock is lost or ctx ends.
func (m *Master) work(ctx context.Context, lock Lock) {
	epoch := lock.Sequencer().LockGeneration
	m.epoch.Store(epoch)
	m.lock.Store(&lock)
	m.cfg.Logger.Info("became master", "epoch", epoch)
	defer func() {
		m.epoch.Store(0)
		m.cfg.Logger.Info("mastership ended", "epoch", epoch)
		// ctx may have ended by now.
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if err := lock.Release(free); err != nil && !errors.Is(err, api.ErrNotHeld) && !errors.Is(err, api.ErrNoSession) {
			m.cfg.Logger.Debug("release the master lock", "err", err)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-lock.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	var tablets sync.WaitGroup
	defer tablets.Wait()
	if m.cfg.Tablets != nil {
		a := newAssigner(m.cfg, lock)
		m.assigner.Store(a)
		tablets.Go(func() { a.run(ctx) })
	}
	v := voterManager{cfg: m.cfg, lock: lock, attempts: attempts{}}
	for ctx.Err() == nil {
		v.reconcile(ctx)
		timing.Sleep(ctx, m.cfg.Pause)
	}
}

// releaseTimeout bounds the release of the lock, which lets the next master start at once.
// Otherwise the lock expires with the session.
const releaseTimeout = 2 * time.Second
