package raftmeta

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// leadership knows whether this server leads the group, and since when its
// state machine holds everything committed before that.
type leadership struct {
	// mu guards the fields in it. Never held across a call of raft.
	mu struct {
		sync.Mutex
		leader bool
		// epoch counts changes of leader.
		epoch uint64
		// term is the term in which this server leads and has caught up; zero
		// when it does not or has not.
		term uint64
		// changed is closed, and replaced, when any of these changes.
		changed chan struct{}
	}
	// gained asks for a catch-up. It holds one request.
	gained chan struct{}
}

func newLeadership() *leadership {
	l := &leadership{gained: make(chan struct{}, 1)}
	l.mu.changed = make(chan struct{})
	return l
}

// set takes raft's word on who leads. It does not block.
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
		default: // one is asked for already and has not begun
		}
	}
}

func (l *leadership) broadcastLocked() {
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// caughtUp records that the state machine has caught up in term, unless the
// leader has changed since epoch.
func (l *leadership) caughtUp(epoch, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.epoch == epoch && l.mu.leader {
		l.mu.term = term
		l.broadcastLocked()
	}
}

// state returns the epoch, whether this server leads, the term in which it has
// caught up or zero, and a channel that is closed when that changes.
func (l *leadership) state() (epoch uint64, leader bool, term uint64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epoch, l.mu.leader, l.mu.term, l.mu.changed
}

// watchLeadership passes on what raft says of leadership. Raft's main
// goroutine waits for it, so it does nothing else.
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

// catchUpRetry is the pause after a barrier failed though this server leads:
// a transfer of leadership is under way.
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

// catchUp returns once the state machine holds everything committed before
// this term, or this server no longer leads.
func (g *Group) catchUp() {
	for {
		epoch, leader, _, _ := g.lead.state()
		if !leader {
			return
		}
		// The barrier is an entry of this term, so it commits only with all
		// entries before it, whichever leader stored them; and it is answered
		// by the state machine after it has applied those. That the term is
		// the same on both sides of it tells which term that was.
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

// WaitReady waits until this server leads its group and has caught up, so that
// every method can succeed. The error is ctx's, ErrClosed, or what was given to
// Config.OnFatal.
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

// hurry makes a lone voter call its election at once, instead of after the time
// that it would listen for a leader. Shortening the heartbeat timeout wakes
// raft; it takes the last contact, which never was, to be long ago.
func hurry(r *raft.Raft, least time.Duration) error {
	usual := r.ReloadableConfig()
	quick := usual
	// The leader's lease is at most the heartbeat timeout.
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
