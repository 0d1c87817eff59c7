package raftmeta

import (
	"container/heap"
	"context"
	"sync"
	"time"

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

// replica is the part of a group that the lease manager and the service use.
type replica interface {
	// usable returns nil unless this server has failed or is closed.
	usable() error
	// leading returns the term in which this server leads and has caught up, or zero, as far as it
	// knows. notLeading returns the error for a server that does not.
	leading() uint64
	notLeading() error
	// verify returns the term in which this server leads. No server was elected in a later term
	// before verify began, and the machine has applied everything that was committed before.
	verify(ctx context.Context) (uint64, error)
	// propose appends c to the log and returns its result. The error is ErrOutcomeUnknown if c may
	// still be applied. It is then applied before anything that is proposed later in the same term.
	propose(ctx context.Context, c command) (result, error)
	// room returns ErrDiskFull if the log must not grow.
	room() error
}

// keeper is the lease manager: the leader's state outside the log, for one term. It has the lease
// deadlines, the cached files and watches of each session, and the queues for locks. It is created
// when the leader has caught up, and stopped when leadership is lost.
type keeper struct {
	term uint64
	// since is the index of the last command before the lease manager was created.
	since   uint64
	replica replica
	machine *machine
	clock   Clock

	// ctx ends when the lease manager stops.
	ctx  context.Context
	stop context.CancelFunc
	// wake notifies run of an earlier deadline, and answer notifies answerLoop of KeepAlives to
	// answer. The capacity of each is one.
	wake, answer chan struct{}
	workers      sync.WaitGroup

	// mu guards the fields in it. It is never held across a proposal, a verification or a callback.
	// Order: keeper.mu, then machine.mu.
	mu struct {
		sync.Mutex
		dropped  bool
		sessions map[api.SessionID]*served
		due      deadlines
		// answers are the sessions whose KeepAlive is due for an answer. strangers are the
		// KeepAlives of sessions that do not exist.
		answers   []*served
		strangers []stranger

		// unheard counts the sessions of earlier terms that have not acknowledged this term.
		// allHeard is closed when there are none.
		unheard  int
		allHeard chan struct{}

		files      map[string]*cachedFile
		registered int
		// doubtful are the paths of writes that may still be applied although their callers are
		// gone.
		doubtful []string

		watches map[string]map[*served]api.EventKind
		watched int
		// watchNumber is the number of the last watch.
		watchNumber uint64
		queued      int
		// tallies has the usage of each user, users the usage of all users together.
		tallies map[string]*tally
		users   tally

		waits map[string][]*lockWait
		// delays are the lock-delays being timed, at most one per lock.
		delays map[string]*deadline

		// dying are the sessions whose lease has expired and that no worker has taken. dyingCached
		// are those of them whose ephemeral files may be cached.
		dying, dyingCached []*served
		delaysOver         []delayRef
		expirers           int
	}
}

// served is the lease manager's state of a session. keeper.mu guards it.
type served struct {
	id    api.SessionID
	owner string // as in sessionState
	lease time.Duration
	deadline
	// end is when the lease ends unless it is extended. The client may rely on the lease until
	// then. Only a verification may extend it.
	end time.Duration
	// grace is a time before which the session is not expired although its lease has ended, because
	// this server did not run for a while.
	grace time.Duration
	// over is set when the lease has ended: it cannot be extended any more, and a command will end
	// the session. gone is set after that command.
	over, gone bool
	// closing is set while the session is being closed.
	closing bool
	// heard is set when the session has acknowledged this term.
	heard bool

	// hang is the pending KeepAlive. due is set while the session is in keeper.mu.answers.
	hang *hanging
	due  bool

	// events have the sequence numbers first to last. Events up to sent were sent to the client,
	// and the client has processed those up to acked.
	events                   []api.Event
	first, last, sent, acked uint64

	cached  map[string]struct{}
	told    []toldFile
	watches map[string]watched
	// ended, if not nil, is closed when a command has ended the session.
	ended chan struct{}
}

// expiry returns when the session may be expired.
func (s *served) expiry() time.Duration { return max(s.end, s.grace) }

// newKeeper creates and starts the lease manager of a term.
func newKeeper(r replica, m *machine, clock Clock, term uint64) *keeper {
	k := &keeper{term: term, replica: r, machine: m, clock: clock,
		wake: make(chan struct{}, 1), answer: make(chan struct{}, 1)}
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.mu.sessions = map[api.SessionID]*served{}
	k.mu.files = map[string]*cachedFile{}
	k.mu.tallies = map[string]*tally{}
	k.mu.watches = map[string]map[*served]api.EventKind{}
	k.mu.waits = map[string][]*lockWait{}
	k.mu.delays = map[string]*deadline{}
	k.mu.allHeard = make(chan struct{})
	k.load()
	k.workers.Go(k.run)
	k.workers.Go(k.answerLoop)
	return k
}

// load adopts the sessions and lock-delays in the machine. Each gets its full time from now: an
// earlier leader may have restarted it at any moment before that leader's term ended, and the
// machine had caught up when load began.
func (k *keeper) load() {
	k.mu.Lock()
	defer k.mu.Unlock()
	ns, applied := k.machine.observe(k.observe)
	k.since = applied
	now := k.clock.Now()
	ns.sessions.Ascend(func(st *sessionState) bool {
		s := k.serveLocked(st.id, st.owner, st.lease, now)
		s.events, s.first, s.last = failedOver[:1:1], 1, 1
		k.queueLocked(s, 1)
		return true
	})
	k.mu.unheard = len(k.mu.sessions)
	if k.mu.unheard == 0 {
		close(k.mu.allHeard)
	}
	ns.delayed.Ascend(func(path string) bool {
		l := ns.get(path).lock
		k.delayLocked(now, path, l.delayIndex, l.delay)
		return true
	})
}

// failedOver is the first event of each adopted session. Its capacity is one, so that an append
// copies it.
var failedOver = []api.Event{{Kind: api.FailedOver}}

// serveLocked starts the lease of a session.
func (k *keeper) serveLocked(id api.SessionID, owner string, lease, now time.Duration) *served {
	s := &served{id: id, owner: owner, lease: lease, end: now + lease, first: 1}
	s.session = s
	s.pos = -1
	k.mu.sessions[id] = s
	k.scheduleLocked(s)
	return s
}

// delayLocked starts the timer of a lock-delay, and replaces that of the same lock: one command may
// end two sessions that shared the lock, with different delays.
func (k *keeper) delayLocked(now time.Duration, path string, index uint64, delay time.Duration) {
	d := k.mu.delays[path]
	if d == nil {
		d = &deadline{pos: -1}
		k.mu.delays[path] = d
	}
	d.delay = delayRef{path, index}
	k.atLocked(d, now+delay)
}

// drop stops the lease manager. Calls that wait for it fail with the error of refusal.
func (k *keeper) drop() {
	k.mu.Lock()
	k.mu.dropped = true
	var answers answers
	for _, s := range k.mu.sessions {
		if s.hang != nil {
			answers.add(s.hang.done, api.KeepAliveResponse{}, k.refusal())
			s.hang = nil
		}
	}
	for _, s := range k.mu.strangers {
		answers.add(s.done, api.KeepAliveResponse{}, k.refusal())
	}
	k.mu.strangers = nil
	k.mu.Unlock()
	k.stop()
	answers.give()
	k.workers.Wait()
}

// refusal returns the error for calls to a lease manager that has stopped.
func (k *keeper) refusal() error {
	if err := k.replica.usable(); err != nil {
		return err
	}
	return k.replica.notLeading()
}

// observe is the machine's observer.
func (k *keeper) observe(changes []change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.dropped {
		return
	}
	now := k.clock.Now()
	for _, c := range changes {
		switch c.kind {
		case sessionOpened:
			k.serveLocked(c.session, c.owner, c.duration, now).heard = true
		case sessionEnded:
			k.endedLocked(c.session)
		case lockDelayed:
			k.delayLocked(now, c.path, c.index, c.duration)
		case lockFreed:
			k.freedLocked(c.path)
		}
		if e, ok := c.event(); ok {
			for s, kinds := range k.mu.watches[c.path] {
				if kinds&e.Kind != 0 {
					k.pushLocked(s, e)
				}
			}
		}
	}
}

// endedLocked removes a session that a command has ended.
func (k *keeper) endedLocked(id api.SessionID) {
	s := k.mu.sessions[id]
	if s == nil {
		return
	}
	s.gone = true
	delete(k.mu.sessions, id)
	k.overLocked(s)
	if s.ended != nil {
		close(s.ended)
	}
	if s.hang != nil {
		k.mu.strangers = append(k.mu.strangers, stranger{id, s.hang.done})
		s.hang = nil
		kick(k.answer)
	}
}

// propose proposes a command in the lease manager's term.
func (k *keeper) propose(ctx context.Context, c command) (result, error) {
	c.term = k.term
	return k.replica.propose(ctx, c)
}

// kick sends to a channel of capacity one unless it is full.
func kick(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deadline is a time at which the lease manager must act on a session, or end a lock-delay.
type deadline struct {
	at      time.Duration
	session *served // nil: this is the end of delay
	delay   delayRef
	pos     int // in keeper.mu.due, -1 if absent
}

// deadlines is a heap with the earliest deadline first.
type deadlines []*deadline

func (h deadlines) Len() int           { return len(h) }
func (h deadlines) Less(i, j int) bool { return h[i].at < h[j].at }
func (h deadlines) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].pos, h[j].pos = i, j }
func (h *deadlines) Push(x any)        { d := x.(*deadline); d.pos = len(*h); *h = append(*h, d) }
func (h *deadlines) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last], *h, d.pos = nil, (*h)[:last], -1
	return d
}

// atLocked sets the time of a deadline.
func (k *keeper) atLocked(d *deadline, at time.Duration) {
	if d.pos >= 0 && d.at == at {
		return
	}
	d.at = at
	if d.pos < 0 {
		heap.Push(&k.mu.due, d)
	} else {
		heap.Fix(&k.mu.due, d.pos)
	}
	if d.pos == 0 {
		kick(k.wake)
	}
}

// scheduleLocked sets the deadline of a session.
func (k *keeper) scheduleLocked(s *served) {
	at := s.expiry()
	if s.hang != nil && !s.due {
		at = min(at, s.hang.answerBy)
	}
	k.atLocked(&s.deadline, at)
}

// stallMin is the delay of a timer from which the process counts as stalled.
const stallMin = 100 * time.Millisecond

// stallTick is the longest wait of run. A stall during a longer wait would go unnoticed if
// something else ended the wait.
const stallTick = 250 * time.Millisecond

// run handles deadlines.
func (k *keeper) run() {
	for {
		wait := min(k.pass(), stallTick)
		planned := k.clock.Now() + wait
		timer := k.clock.NewTimer(wait)
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if late := k.clock.Now() - planned; late >= stallMin {
			k.forgive(late)
		}
	}
}

// forgive delays the expiry of a session by half a lease if this server did not run for a quarter
// of a lease. Requests that arrived meanwhile are still in the server's sockets, and must be read
// before any session is expired. Keeping a session for longer than its client expects is always
// safe; no client is granted a longer lease for it.
func (k *keeper) forgive(late time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	for _, s := range k.mu.sessions {
		if !s.over && late >= s.lease/4 {
			s.grace = max(s.grace, now+s.lease/2)
			k.scheduleLocked(s)
		}
	}
}

// idle is the wait of run if there is no deadline.
const idle = time.Hour

// pass handles all deadlines that have passed, and returns the time until the next one.
func (k *keeper) pass() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	for len(k.mu.due) > 0 && k.mu.due[0].at <= now {
		d := k.mu.due[0]
		if d.session == nil {
			heap.Pop(&k.mu.due)
			delete(k.mu.delays, d.delay.path)
			k.mu.delaysOver = append(k.mu.delaysOver, d.delay)
			continue
		}
		s := d.session
		if s.expiry() <= now {
			k.dieLocked(s)
			continue
		}
		k.dueLocked(s)
	}
	k.expirersLocked()
	if len(k.mu.due) == 0 {
		return idle
	}
	return k.mu.due[0].at - now
}
