package raftmeta

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/raftmeta/fsm"
)

// core is what the parts of a group share: its configuration, its raft, and how it stops.
type core struct {
	cfg     Config
	log     *slog.Logger
	raft    *raft.Raft // set before any goroutine of the group starts
	trans   *transport
	machine *fsm.Machine

	lead     *leadership
	contacts *contacts
	members  membership
	invited  invited

	// opened is set just before Open succeeds. Earlier failures are returned by Open instead.
	opened atomic.Bool
	// failure is the error because of which this server cannot continue. failed is closed after it
	// is set.
	failure atomic.Pointer[error]
	failed  chan struct{}
	// closing is closed when Close begins, raftStopped when raft has stopped.
	closing, raftStopped chan struct{}
	// workers are the goroutines that call raft; they end before raft does. watcher are those that
	// end after it.
	workers, watcher sync.WaitGroup
}

// usable returns nil while calls may be served, ErrClosed after Close, and ErrNotReady with the
// cause after this server has failed.
func (c *core) usable() error {
	select {
	case <-c.closing:
		return ErrClosed
	default:
	}
	if p := c.failure.Load(); p != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, *p)
	}
	return nil
}

// fail stops this server's service because of err and notifies the node. It does not block, and may
// be called from raft's goroutines with any lock held.
func (c *core) fail(err error) {
	if !c.failure.CompareAndSwap(nil, &err) {
		return
	}
	close(c.failed)
	// The others must notice the failure at once: raft would keep sending heartbeats, which prevent
	// another election.
	go func() { _ = c.trans.disconnect() }()
	// Open returns its errors. But if the disk stalls during Open, Open may never return.
	if !c.opened.Load() && !errors.Is(err, ErrStalled) {
		return
	}
	if c.cfg.OnFatal == nil {
		c.log.Error("raftmeta stopped on a fatal error", "err", err)
		return
	}
	go c.cfg.OnFatal(err)
}

// start runs f in a goroutine that Close waits for before it stops raft.
func (c *core) start(f func()) { c.workers.Go(f) }

// leaderID returns the id of the leader as far as this server knows, or an empty string. A server that
// calls no elections does not notice that the leader is gone otherwise.
func (c *core) leaderID() string {
	_, id := c.raft.LeaderWithID()
	if c.invited.pending.Load() != nil && time.Since(c.raft.LastContact()) > 2*c.cfg.HeartbeatTimeout {
		return ""
	}
	return string(id)
}

// notLeading returns the error for a server that does not serve: ErrNotReady while it leads and has
// not caught up, and otherwise a *NotLeaderError with the leader as far as this server knows.
func (c *core) notLeading() error {
	id := c.leaderID()
	if id == c.cfg.ID {
		return ErrNotReady
	}
	e := &NotLeaderError{Leader: id}
	if id != "" && c.cfg.AddressOf != nil {
		e.Address = c.cfg.AddressOf(id)
	}
	return e
}

// otherVoters returns the ids of the other voters in the latest configuration, and how many of them
// form a quorum together with this server.
func (c *core) otherVoters() (ids []string, needed int) {
	n := 0
	for _, s := range c.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		n++
		if string(s.ID) != c.cfg.ID {
			ids = append(ids, string(s.ID))
		}
	}
	return ids, n / 2
}

// proposeError converts raft's error for a proposal.
func (c *core) proposeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		// Raft returns this error and the next before it appends the entry.
		return c.notLeading()
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// stallTimeout returns the time limit of a write of the log.
func (c *core) stallTimeout() time.Duration {
	if c.members.several.Load() {
		return min(c.cfg.StallTimeout, stallTimeoutMax)
	}
	return c.cfg.StallTimeout
}
