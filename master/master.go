package master

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// LockPath is the file whose lock makes a node the master.
const LockPath = "/master"

// Lock is the master lock, held through a session of the lock service.
type Lock interface {
	// Held tells, without asking anybody, whether the lock is surely held now.
	Held() bool
	// Done is closed when it is lost or released.
	Done() <-chan struct{}
	Sequencer() api.Sequencer
	Release(ctx context.Context) error
}

// Group is the Raft group of the lock service, as its leader sees it.
type Group interface {
	// Leads tells whether this node leads now; the channel is closed when that, or
	// who leads, changes.
	Leads() (bool, <-chan struct{})
	Voters() []Voter
	Stage(ctx context.Context, id string) error
	Promote(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
	// StepDown hands leadership to another voter, or to any if none is named.
	StepDown(ctx context.Context, to string) error
}

// Nodes takes the master's commands to the nodes. Each carries the sequencer of the
// master lock; a node refuses one that is older than any it has seen, and has a newer one
// confirmed by the lock service.
type Nodes interface {
	// Hail tells a node who is master, so that it refuses the one before.
	Hail(ctx context.Context, id string, q api.Sequencer) error
	// StartVoting has a node take part in the group: it must run before it is staged.
	StartVoting(ctx context.Context, id string, q api.Sequencer) error
}

// Config says what a master works with. All fields but Tablets must be set.
type Config struct {
	ID    string // of this node
	Group Group
	Nodes Nodes
	// Servers returns the nodes of the cluster, those that gossip does not hear of
	// included.
	Servers func(ctx context.Context) ([]Server, error)
	// Acquire takes the master lock; it waits for it as long as ctx lets it.
	Acquire func(ctx context.Context) (Lock, error)
	// Tablets is the way to METADATA and the tablet servers. Nil: tablets are not the master's.
	Tablets Tablets
	// Stable is how long a voter must be gone before it is replaced.
	Stable time.Duration
	// Pause is the time between two looks at the cluster.
	Pause  time.Duration
	Logger *slog.Logger
}

// Master is this node's candidacy: while the node leads the lock service it is the
// cluster's master.
type Master struct {
	cfg      Config
	epoch    atomic.Uint64
	lock     atomic.Pointer[Lock]     // of the present mastership, or the last
	assigner atomic.Pointer[assigner] // the same
}

// New returns a candidate. Run makes it one.
func New(cfg Config) *Master { return &Master{cfg: cfg} }

// Epoch returns the epoch of this node's mastership, zero while it is not master.
func (m *Master) Epoch() uint64 { return m.epoch.Load() }

// Sequencer returns that of the master lock, which is valid while this node is master.
func (m *Master) Sequencer() (q api.Sequencer) {
	if l := m.lock.Load(); l != nil {
		q = (*l).Sequencer()
	}
	return q
}

// Nudge has the master look at the tablets soon: something has changed.
func (m *Master) Nudge() {
	if a := m.assigner.Load(); a != nil {
		a.changed()
	}
}

// Run takes the master lock whenever this node leads the lock service, and does the
// master's work while it holds it. It returns when ctx ends, the lock released.
func (m *Master) Run(ctx context.Context) {
	for ctx.Err() == nil {
		leads, changed := m.cfg.Group.Leads()
		if leads {
			m.reign(ctx, changed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// reign is one mastership: it ends when leadership changes, the lock is lost or ctx
// ends.
func (m *Master) reign(ctx context.Context, changed <-chan struct{}) {
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
			m.cfg.Logger.Warn("cannot take the master lock; will try again", "error", err)
		}
		pause(ctx, m.cfg.Pause)
	}
}

// work does the master's work until the lock is lost or ctx ends.
func (m *Master) work(ctx context.Context, lock Lock) {
	epoch := lock.Sequencer().LockGeneration
	m.epoch.Store(epoch)
	m.lock.Store(&lock)
	m.cfg.Logger.Info("this node is the master", "epoch", epoch)
	defer func() {
		m.epoch.Store(0)
		m.cfg.Logger.Info("this node is no longer the master", "epoch", epoch)
		// By now ctx may have ended.
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if err := lock.Release(free); err != nil && !errors.Is(err, api.ErrNotHeld) && !errors.Is(err, api.ErrNoSession) {
			m.cfg.Logger.Debug("release the master lock", "error", err)
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
	v := voterKeeper{cfg: m.cfg, lock: lock, attempts: attempts{}}
	for ctx.Err() == nil {
		v.look(ctx)
		pause(ctx, m.cfg.Pause)
	}
}

// releaseTimeout bounds the wish to hand the lock over at once: it becomes free
// anyway.
const releaseTimeout = 2 * time.Second

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
