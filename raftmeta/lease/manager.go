package lease

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/raftmeta/api"
)

// Limits of a lease manager's memory for all sessions together.
const (
	// registeredMax bounds the pairs of a session and a file that it caches.
	registeredMax = 1 << 20
	// watchedMax bounds the pairs of a session and a path that it watches.
	watchedMax = 1 << 20
	// queuedMax bounds the unacknowledged events of all sessions.
	queuedMax = 1 << 20
	// queueMax bounds the unacknowledged events of one session.
	queueMax = 4096
)

// Replica is a server of the group.
type Replica interface {
	// Usable returns nil unless this server has failed or is closed.
	Usable() error
	// Leading returns the term in which this server leads and has caught up, or zero, as far as it
	// knows. NotLeading returns the error for a server that does not.
	Leading() uint64
	NotLeading() error
	// Verify returns the term in which this server leads. No server was elected in a later term
	// before Verify began, and the machine has applied everything that was committed before.
	Verify(ctx context.Context) (uint64, error)
	// Propose appends c to the log and returns its result. The error is api.ErrOutcomeUnknown if c may
	// still be applied. It is then applied before anything that is proposed later in the same term.
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, error)
	// CheckDisk returns api.ErrDiskFull if the log must not grow.
	CheckDisk() error
}

// manager is the lease manager: the leader's state outside the log, for one term. It has the lease
// deadlines, the cached files and watches of each session, and the queues for locks. It is created
// when the leader has caught up, and stopped when leadership is lost.
type manager struct {
	term uint64
	// since is the index of the last command before the lease manager was created.
	since   uint64
	replica Replica
	machine *fsm.Machine
	clock   Clock

	// ctx ends when the lease manager stops.
	ctx  context.Context
	stop context.CancelFunc
	// wake notifies run of an earlier deadline, and answer notifies answerLoop of KeepAlives to
	// answer. The capacity of each is one.
	wake, answer chan struct{}
	workers      sync.WaitGroup

	// mu guards the fields in it. It is never held across a proposal, a verification or a callback.
	// Order: manager.mu, then the lock of the machine.
	mu struct {
		sync.Mutex
		stopped  bool
		sessions map[api.SessionID]*leaderSession
		timers   timers
		// toAnswer are the sessions whose KeepAlive is due for an answer. unknown are the
		// KeepAlives of sessions that do not exist.
		toAnswer []*leaderSession
		unknown  []unknownKeepAlive

		acks    termAcks
		ledger  ledger
		caches  cacheTable
		watches watchTable
		waits   lockQueues
		expiry  expiryQueue
		// unresolved are the paths of writes that may still be applied although their callers are
		// gone.
		unresolved []string
	}
}

// leaderSession is the lease manager's state of a session. manager.mu guards it.
type leaderSession struct {
	id    api.SessionID
	owner string // as in fsm.Session
	lease time.Duration
	deadline
	// end is when the lease ends unless it is extended. The client may rely on the lease until
	// then. Only a verification may extend it.
	end time.Duration
	// grace is a time before which the session is not expired although its lease has ended, because
	// this server did not run for a while.
	grace time.Duration
	// leaseOver is set when the lease has ended: it cannot be extended any more, and a command will end
	// the session.
	leaseOver bool
	// closing is set while the session is being closed.
	closing bool
	// termAcked is set when the session has acknowledged this term.
	termAcked bool

	// pending is the pending KeepAlive. answerDue is set while the session is in manager.mu.toAnswer.
	pending   *pendingKeepAlive
	answerDue bool

	// events have the sequence numbers first to last. Events up to sent were sent to the client,
	// and the client has processed those up to acked.
	events                   []api.Event
	first, last, sent, acked uint64

	cached      map[string]struct{}
	invalidated []invalidation
	watches     map[string]sessionWatch
	// done, if not nil, is closed when a command has ended the session.
	done chan struct{}
}

// expiry returns when the session may be expired.
func (s *leaderSession) expiry() time.Duration { return max(s.end, s.grace) }

// newManager creates and starts the lease manager of a term.
func newManager(r Replica, m *fsm.Machine, clock Clock, term uint64) *manager {
	lm := &manager{term: term, replica: r, machine: m, clock: clock,
		wake: make(chan struct{}, 1), answer: make(chan struct{}, 1)}
	lm.ctx, lm.stop = context.WithCancel(context.Background())
	lm.mu.sessions = map[api.SessionID]*leaderSession{}
	lm.mu.ledger.usages = map[string]*leaderUsage{}
	lm.mu.caches = cacheTable{files: map[string]*cachedFile{}, ledger: &lm.mu.ledger}
	lm.mu.watches = watchTable{byPath: map[string]map[api.SessionID]api.EventKind{}, ledger: &lm.mu.ledger}
	lm.mu.waits = lockQueues{}
	lm.mu.timers = timers{delays: map[string]*deadline{}, wake: lm.wake}
	lm.mu.acks.all = make(chan struct{})
	lm.load()
	lm.workers.Go(lm.run)
	lm.workers.Go(lm.answerLoop)
	return lm
}

// load adopts the sessions and lock-delays in the machine. Each gets its full time from now: an
// earlier leader may have restarted it at any moment before that leader's term ended, and the
// machine had caught up when load began.
func (lm *manager) load() {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	ns, applied := lm.machine.Observe(lm.observe)
	lm.since = applied
	now := lm.clock.Now()
	ns.EachSession(func(st *fsm.Session) {
		s := lm.addSessionLocked(st.ID, st.Owner, st.Lease, now)
		if planted.On(planted.SessionsCut) {
			s.end = now + st.Lease/4
			lm.mu.timers.schedule(s)
		}
		s.events, s.first, s.last = failedOver[:1:1], 1, 1
		lm.mu.ledger.queue(s, 1)
	})
	lm.mu.acks.expect(len(lm.mu.sessions))
	ns.EachLockDelay(func(d fsm.DelayRef, length time.Duration) { lm.mu.timers.startDelay(now, d, length) })
}

// failedOver is the first event of each adopted session. Its capacity is one, so that an append
// copies it.
var failedOver = []api.Event{{Kind: api.FailedOver}}

// addSessionLocked starts the lease of a session.
func (lm *manager) addSessionLocked(id api.SessionID, owner string, lease, now time.Duration) *leaderSession {
	s := &leaderSession{id: id, owner: owner, lease: lease, end: now + lease, first: 1}
	s.session = s
	s.pos = -1
	lm.mu.sessions[id] = s
	lm.mu.timers.schedule(s)
	return s
}

// shutdown stops the lease manager. Calls that wait for it fail with stoppedError.
func (lm *manager) shutdown() {
	lm.mu.Lock()
	lm.mu.stopped = true
	var callbacks callbacks
	for _, s := range lm.mu.sessions {
		if s.pending != nil {
			callbacks.add(s.pending.done, api.KeepAliveResponse{}, lm.stoppedError())
			s.pending = nil
		}
	}
	for _, s := range lm.mu.unknown {
		callbacks.add(s.done, api.KeepAliveResponse{}, lm.stoppedError())
	}
	lm.mu.unknown = nil
	lm.mu.Unlock()
	lm.stop()
	callbacks.run()
	lm.workers.Wait()
}

// stoppedError returns the error for calls to a lease manager that has stopped.
func (lm *manager) stoppedError() error {
	if err := lm.replica.Usable(); err != nil {
		return err
	}
	return lm.replica.NotLeading()
}

// observe is the machine's observer.
func (lm *manager) observe(changes []fsm.Change) {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	if lm.mu.stopped {
		return
	}
	now := lm.clock.Now()
	for _, c := range changes {
		switch c.Kind {
		case fsm.SessionOpened:
			lm.addSessionLocked(c.Session, c.Owner, c.Duration, now).termAcked = true
		case fsm.SessionEnded:
			lm.removeLocked(c.Session)
		case fsm.LockDelayed:
			lm.mu.timers.startDelay(now, fsm.DelayRef{Path: c.Path, Index: c.Index}, c.Duration)
		case fsm.LockFreed:
			lm.mu.waits.notify(c.Path)
		}
		if e, ok := c.Event(); ok {
			for id, kinds := range lm.mu.watches.byPath[c.Path] {
				if kinds&e.Kind != 0 {
					lm.pushLocked(lm.mu.sessions[id], e)
				}
			}
		}
	}
}

// removeLocked removes a session that a command has ended.
func (lm *manager) removeLocked(id api.SessionID) {
	s := lm.mu.sessions[id]
	if s == nil {
		return
	}
	delete(lm.mu.sessions, id)
	lm.endLeaseLocked(s)
	if s.done != nil {
		close(s.done)
	}
	if s.pending != nil {
		lm.mu.unknown = append(lm.mu.unknown, unknownKeepAlive{id, s.pending.done})
		s.pending = nil
		signal(lm.answer)
	}
}

// propose proposes a command in the lease manager's term.
func (lm *manager) propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	c.Term = lm.term
	return lm.replica.Propose(ctx, c)
}

// signal sends to a channel of capacity one unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// stallMin is the delay of a timer from which the process counts as stalled.
const stallMin = 100 * time.Millisecond

// stallTick is the longest wait of run. A stall during a longer wait would go unnoticed if
// something else ended the wait.
const stallTick = 250 * time.Millisecond

// run handles deadlines.
func (lm *manager) run() {
	for {
		wait := min(lm.handleDue(), stallTick)
		planned := lm.clock.Now() + wait
		timer := lm.clock.NewTimer(wait)
		select {
		case <-timer.C:
		case <-lm.wake:
		case <-lm.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if late := lm.clock.Now() - planned; late >= stallMin {
			lm.extendGrace(late)
		}
	}
}

// extendGrace delays the expiry of a session by half a lease if this server did not run for a quarter
// of a lease. Requests that arrived meanwhile are still in the server's sockets, and must be read
// before any session is expired. Keeping a session for longer than its client expects is always
// safe; no client is granted a longer lease for it.
func (lm *manager) extendGrace(late time.Duration) {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	now := lm.clock.Now()
	for _, s := range lm.mu.sessions {
		if !s.leaseOver && late >= s.lease/4 {
			s.grace = max(s.grace, now+s.lease/2)
			lm.mu.timers.schedule(s)
		}
	}
}

// idle is the wait of run if there is no deadline.
const idle = time.Hour

// handleDue handles all deadlines that have passed, and returns the time until the next one.
func (lm *manager) handleDue() time.Duration {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	now := lm.clock.Now()
	for len(lm.mu.timers.due) > 0 && lm.mu.timers.due[0].at <= now {
		d := lm.mu.timers.due[0]
		if d.session == nil {
			heap.Pop(&lm.mu.timers.due)
			delete(lm.mu.timers.delays, d.delay.Path)
			lm.mu.expiry.delays = append(lm.mu.expiry.delays, d.delay)
			continue
		}
		s := d.session
		if s.expiry() <= now {
			lm.expireLocked(s)
			continue
		}
		lm.queueAnswerLocked(s)
	}
	lm.startExpirersLocked()
	if len(lm.mu.timers.due) == 0 {
		return idle
	}
	return lm.mu.timers.due[0].at - now
}
