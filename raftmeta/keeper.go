package raftmeta

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// Bounds of what a keeper has in memory for all sessions together.
const (
	// registeredMax bounds the pairs of a session and a file that it caches.
	registeredMax = 1 << 20
	// watchedMax bounds the pairs of a session and a path that it watches.
	watchedMax = 1 << 20
	// queuedMax bounds the events that are not yet acknowledged.
	queuedMax = 1 << 20
	// queueMax bounds those of one session.
	queueMax = 4096
)

// replica is what a keeper and the service need of the group.
type replica interface {
	// usable returns nil unless this server has failed or been closed.
	usable() error
	// leading is the term in which this server believes to lead and has caught
	// up, or zero. notLeading says why not.
	leading() uint64
	notLeading() error
	// verify returns the term in which this server leads. No server was elected
	// in a later one before verify began, and the machine has all that was
	// committed before.
	verify(ctx context.Context) (uint64, error)
	// propose has the log take c, and returns what came of it. The error
	// is ErrOutcomeUnknown if c may yet be applied. It is applied then before
	// anything that is proposed later in the same term.
	propose(ctx context.Context, c command) (result, error)
	// room returns ErrDiskFull when the log should not grow.
	room() error
}

// keeper is what the leader knows beside the log, for one term: when sessions'
// leases end, who caches what, who watches what, who waits for a lock. It is
// made when the leader has caught up, and dropped when it leads no longer.
type keeper struct {
	term uint64
	// since is the index of the last command before it was made.
	since   uint64
	replica replica
	machine *machine
	clock   Clock

	// ctx ends when the keeper is dropped.
	ctx  context.Context
	stop context.CancelFunc
	// wake tells run that a deadline is sooner than it thinks, answer that there
	// are KeepAlives to answer. Each holds one request.
	wake, answer chan struct{}
	workers      sync.WaitGroup

	// mu guards the fields in it. Never held across a proposal, a verification
	// or a callback. Order: keeper.mu, then machine.mu.
	mu struct {
		sync.Mutex
		dropped  bool
		sessions map[api.SessionID]*served
		due      deadlines
		// answers are the sessions whose KeepAlive is to be answered, strangers
		// the KeepAlives of sessions that there are not.
		answers   []*served
		strangers []stranger

		// unheard counts the sessions of earlier terms that have not told yet
		// that they know this one; allHeard is closed when there is none.
		unheard  int
		allHeard chan struct{}

		files      map[string]*cachedFile
		registered int
		// doubtful are paths of writes that may yet be applied.
		doubtful []string

		watches map[string]map[*served]api.EventKind
		watched int
		// watchNumber is the last one given out.
		watchNumber uint64
		queued      int
		// tallies has what users have of this keeper, by user, and users what all have.
		tallies map[string]*tally
		users   tally

		waits map[string][]*lockWait
		// delays are the lock-delays that are being measured, one a lock.
		delays map[string]*deadline

		// dying are the sessions whose lease is over and that no worker has taken;
		// dyingCached those of them whose ephemeral files may be cached.
		dying, dyingCached []*served
		delaysOver         []delayRef
		expirers           int
	}
}

// served is a session, as its keeper knows it. The keeper's mu guards it.
type served struct {
	id    api.SessionID
	owner string // as sessionState's
	lease time.Duration
	deadline
	// end is when the lease ends, unless it is made longer first: what the client may
	// be told. It is only ever moved by what a verification proves.
	end time.Duration
	// grace is before when the session is not expired, though its lease is over: this
	// server has not run for a while.
	grace time.Duration
	// over is set when the lease has ended: nothing makes it longer then, and the
	// log will say so. gone is set when it has.
	over, gone bool
	// closing is set when the session is about to be closed.
	closing bool
	// heard is set when the session has told that it knows this term.
	heard bool

	// hang is the KeepAlive that waits for its answer, due that it is in
	// keeper.mu.answers.
	hang *hanging
	due  bool

	// events have the numbers first to last. The session was sent those up to
	// sent, and has processed those up to acked.
	events                   []api.Event
	first, last, sent, acked uint64

	cached  map[string]struct{}
	told    []toldFile
	watches map[string]watched
	// ended, if not nil, is closed when the session is gone.
	ended chan struct{}
}

// expiry is when the session may be expired.
func (s *served) expiry() time.Duration { return max(s.end, s.grace) }

// newKeeper makes the keeper of a term, and starts it.
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

// load takes over the sessions and lock-delays that the machine knows. Each has
// its full time from here: an earlier leader may have counted from any moment
// before its end, and the machine had caught up when load began.
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

// failedOver is the first event of each session that a keeper takes over. It
// has no room, so that none appends to it.
var failedOver = []api.Event{{Kind: api.FailedOver}}

// serveLocked begins to keep a session.
func (k *keeper) serveLocked(id api.SessionID, owner string, lease, now time.Duration) *served {
	s := &served{id: id, owner: owner, lease: lease, end: now + lease, first: 1}
	s.session = s
	s.pos = -1
	k.mu.sessions[id] = s
	k.scheduleLocked(s)
	return s
}

// delayLocked begins to measure a lock-delay, in place of one of the same lock:
// one command may end two sessions that shared it, with two delays.
func (k *keeper) delayLocked(now time.Duration, path string, index uint64, delay time.Duration) {
	d := k.mu.delays[path]
	if d == nil {
		d = &deadline{pos: -1}
		k.mu.delays[path] = d
	}
	d.delay = delayRef{path, index}
	k.atLocked(d, now+delay)
}

// drop ends the keeper. Calls that wait for it end with the replica's
// notLeading.
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

// refusal is what callers are told when the keeper has been dropped.
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

// endedLocked forgets a session that the log has ended.
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

// propose hands a command of this keeper's term to the log.
func (k *keeper) propose(ctx context.Context, c command) (result, error) {
	c.term = k.term
	return k.replica.propose(ctx, c)
}

// kick makes a request on a channel that holds one.
func kick(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deadline is a moment at which the keeper must do something: about a session,
// or for a lock-delay.
type deadline struct {
	at      time.Duration
	session *served // nil: delay is over
	delay   delayRef
	pos     int // in keeper.mu.due, -1 when not there
}

// deadlines is a heap, the soonest first.
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

// atLocked sets when a deadline is.
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

// scheduleLocked sets when the keeper looks at a session next.
func (k *keeper) scheduleLocked(s *served) {
	at := s.expiry()
	if s.hang != nil && !s.due {
		at = min(at, s.hang.answerBy)
	}
	k.atLocked(&s.deadline, at)
}

// stallMin is how late a timer may be before the process counts as stalled.
const stallMin = 100 * time.Millisecond

// stallTick is the longest that run waits: a pause in a longer wait would not be seen
// when something else ends the wait.
const stallTick = 250 * time.Millisecond

// run does what is due.
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

// forgive gives the sessions half a lease after this server did not run for a quarter
// of one: what they asked meanwhile waits in the server's own sockets, and is to be
// read before anybody is expired. To hold a session longer than its client counts on is
// always safe; nobody is told a longer lease for it.
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

// idle is how long run waits when there is no deadline.
const idle = time.Hour

// pass does what is due now, and returns the time until something else is.
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
