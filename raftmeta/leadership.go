package raftmeta

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// leadership records whether this server leads the group, and whether its state machine has applied
// everything that was committed before its term.
type leadership struct {
	// mu guards the fields in it. Never held across a call of raft.
	mu struct {
		sync.Mutex
		leader bool
		// epoch counts changes of leadership.
		epoch uint64
		// term is the term in which this server leads and has caught up, or zero.
		term uint64
		// changed is closed and replaced when any of these fields changes.
		changed chan struct{}
	}
	// gained requests a catch-up. Its capacity is one.
	gained chan struct{}
}

func newLeadership() *leadership {
	l := &leadership{gained: make(chan struct{}, 1)}
	l.mu.changed = make(chan struct{})
	return l
}

// set records a notification from raft. It does not block.
func (l *leadership) set(leader bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.leader = leader
	l.mu.epoch++
	l.mu.term = 0
	l.broadcastLocked()
	if leader {
		select {
		case l.gained <- struct{}{}:
		default: // one is pending already
		}
	}
}

func (l *leadership) broadcastLocked() {
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// caughtUp records that the state machine has caught up in term, unless leadership has changed
// since epoch.
func (l *leadership) caughtUp(epoch, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.epoch == epoch && l.mu.leader {
		l.mu.term = term
		l.broadcastLocked()
	}
}

// state returns the epoch, whether this server leads, the term in which it has caught up or zero,
// and a channel that is closed when any of them changes.
func (l *leadership) state() (epoch uint64, leader bool, term uint64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epoch, l.mu.leader, l.mu.term, l.mu.changed
}

// watchLeadership records raft's notifications of leadership. Raft's main goroutine waits for it,
// so it does nothing else.
func (g *Group) watchLeadership(notify <-chan bool) {
	for {
		select {
		case leader := <-notify:
			g.lead.set(leader)
		case <-g.raftStopped:
			return
		}
	}
}

// catchUpRetry is the pause after a barrier failed although this server leads, because a leadership
// transfer is in progress.
const catchUpRetry = 20 * time.Millisecond

// catchUpLoop runs a barrier whenever this server becomes leader.
func (g *Group) catchUpLoop() {
	for {
		select {
		case <-g.lead.gained:
			g.catchUp()
		case <-g.closing:
			return
		}
	}
}

// catchUp returns once the state machine has applied everything committed before this term, or this
// server no longer leads.
func (g *Group) catchUp() {
	for {
		epoch, leader, _, _ := g.lead.state()
		if !leader {
			return
		}
		// The barrier is an entry of this term, so it commits only with all entries before it, from
		// any leader. The state machine answers it after it has applied them. The barrier's term is
		// known if the term is the same before and after it.
		before := g.raft.CurrentTerm()
		err := g.raft.Barrier(0).Error()
		if after := g.raft.CurrentTerm(); err == nil && before == after {
			g.lead.caughtUp(epoch, after)
			g.log.Info("raftmeta is ready", "term", after)
			return
		}
		select {
		case <-time.After(catchUpRetry):
		case <-g.closing:
			return
		case <-g.failed:
			return
		}
	}
}

// WaitReady waits until this server leads its group and has caught up, so that every method can
// succeed. The error is ctx's, ErrClosed, or the one passed to Config.OnFatal.
func (g *Group) WaitReady(ctx context.Context) error {
	for {
		_, _, term, changed := g.lead.state()
		if err := g.usable(); err != nil {
			return err
		}
		if term != 0 {
			return nil
		}
		select {
		case <-changed:
		case <-g.failed:
		case <-g.closing:
		case <-ctx.Done():
			return fmt.Errorf("wait for leadership: %w", ctx.Err())
		}
	}
}

// electNow makes a single voter call its election at once, instead of waiting for the heartbeat
// timeout. Shortening the timeout wakes raft, which then finds that the last contact with a leader,
// the zero time, is too long ago.
func electNow(r *raft.Raft, least time.Duration) error {
	usual := r.ReloadableConfig()
	quick := usual
	// The leader lease is at most the heartbeat timeout.
	quick.HeartbeatTimeout = least
	if quick.HeartbeatTimeout == usual.HeartbeatTimeout {
		longer := usual
		longer.HeartbeatTimeout++
		longer.ElectionTimeout++
		if err := r.ReloadConfig(longer); err != nil {
			return fmt.Errorf("set heartbeat timeout: %w", err)
		}
	}
	for _, c := range []raft.ReloadableConfig{quick, usual} {
		if err := r.ReloadConfig(c); err != nil {
			return fmt.Errorf("set heartbeat timeout: %w", err)
		}
	}
	return nil
}
