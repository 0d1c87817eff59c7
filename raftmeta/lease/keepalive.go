package lease

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// keepAliveDone receives the outcome of a KeepAlive.
type keepAliveDone func(api.KeepAliveResponse, error)

// pendingKeepAlive is a KeepAlive that waits for its answer.
type pendingKeepAlive struct {
	done keepAliveDone
	// received is when it arrived, answerBy the latest time to answer it.
	received, answerBy time.Duration
}

// unknownKeepAlive is a KeepAlive of a session that does not exist. Only a leader that has verified its
// leadership may answer so: another leader may know the session.
type unknownKeepAlive struct {
	id   api.SessionID
	done keepAliveDone
}

// callbacks are callbacks to call after the lock is released.
type callbacks []func()

func (a *callbacks) add(done keepAliveDone, resp api.KeepAliveResponse, err error) {
	*a = append(*a, func() { done(resp, err) })
}

func (a callbacks) run() {
	for _, f := range a {
		f()
	}
}

// keepAlive registers a KeepAlive, or answers it if it cannot wait.
func (lm *manager) keepAlive(req api.KeepAliveRequest, done keepAliveDone) {
	var callbacks callbacks
	defer func() { callbacks.run() }()
	lm.mu.Lock()
	defer lm.mu.Unlock()
	if lm.mu.stopped {
		callbacks.add(done, api.KeepAliveResponse{}, lm.stoppedError())
		return
	}
	s := lm.mu.sessions[req.Session]
	if s == nil {
		lm.mu.unknown = append(lm.mu.unknown, unknownKeepAlive{req.Session, done})
		signal(lm.answer)
		return
	}
	if s.pending != nil {
		callbacks.add(s.pending.done, api.KeepAliveResponse{}, api.ErrSuperseded)
	}
	now := lm.clock.Now()
	h := &pendingKeepAlive{done: done, received: now}
	s.pending = h
	if req.Caller != nil {
		forget := context.AfterFunc(req.Caller, func() { lm.abandon(s, h) })
		h.done = func(resp api.KeepAliveResponse, err error) {
			forget()
			done(resp, err)
		}
	}
	if s.leaseOver {
		return // it is answered when a command has ended the session
	}
	if req.Term == lm.term {
		lm.mu.acks.ack(s)
		lm.ackLocked(s, req.Acked)
	}
	// A third of the lease is left for the answer and the client's next request.
	s.pending.answerBy = min(now+max(req.Hang, 0), s.end-s.lease/3)
	if req.Term != lm.term || len(s.events) > 0 || s.pending.answerBy <= now {
		lm.queueAnswerLocked(s)
		return
	}
	lm.mu.timers.schedule(s)
}

// abandon drops a KeepAlive whose caller is gone. An answer would extend a lease that no client
// uses, and delay the release of a killed process's locks by up to two thirds of a lease.
func (lm *manager) abandon(s *leaderSession, h *pendingKeepAlive) {
	lm.mu.Lock()
	if s.pending != h {
		lm.mu.Unlock()
		return
	}
	s.pending = nil
	if !s.leaseOver {
		lm.mu.timers.schedule(s)
	}
	lm.mu.Unlock()
	h.done(api.KeepAliveResponse{}, api.ErrSuperseded)
}

// termAcks counts which sessions of earlier terms have acknowledged this term. manager.mu guards it.
type termAcks struct {
	// missing is the number of those that have not. all is closed when it is zero.
	missing int
	all     chan struct{}
}

// expect starts with n sessions.
func (a *termAcks) expect(n int) {
	if a.missing = n; n == 0 {
		close(a.all)
	}
}

// ack records that a session has acknowledged this term, and therefore caches nothing from
// an earlier term.
func (a *termAcks) ack(s *leaderSession) {
	if s.termAcked {
		return
	}
	s.termAcked = true
	a.missing--
	if a.missing == 0 {
		close(a.all)
	}
}

// queueAnswerLocked queues the answer to a session's pending KeepAlive.
func (lm *manager) queueAnswerLocked(s *leaderSession) {
	if s.pending != nil && !s.answerDue && !s.leaseOver {
		s.answerDue = true
		lm.mu.toAnswer = append(lm.mu.toAnswer, s)
		signal(lm.answer)
	}
	if !s.leaseOver {
		lm.mu.timers.schedule(s)
	}
}

// answerLoop answers KeepAlives: all that are due share one verification.
func (lm *manager) answerLoop() {
	for {
		select {
		case <-lm.answer:
			lm.answerRound()
		case <-lm.ctx.Done():
			return
		}
	}
}

// dueKeepAlive is a KeepAlive that is being answered.
type dueKeepAlive struct {
	s       *leaderSession
	pending *pendingKeepAlive
}

func (lm *manager) answerRound() {
	lm.mu.Lock()
	var round []dueKeepAlive
	for _, s := range lm.mu.toAnswer {
		s.answerDue = false
		round = append(round, dueKeepAlive{s, s.pending})
	}
	unknown := lm.mu.unknown
	lm.mu.toAnswer, lm.mu.unknown = nil, nil
	began := lm.clock.Now()
	lm.mu.Unlock()
	if len(round)+len(unknown) == 0 {
		return
	}
	term, err := lm.replica.Verify(lm.ctx)
	switch {
	case lm.ctx.Err() != nil:
		err = lm.stoppedError()
	case err == nil && term != lm.term:
		err = fsm.ErrOtherTerm
	}
	var callbacks callbacks
	lm.mu.Lock()
	for _, a := range round {
		lm.answerLocked(&callbacks, a, began, err)
	}
	for _, s := range unknown {
		switch {
		case err != nil:
			callbacks.add(s.done, api.KeepAliveResponse{}, err)
		case lm.mu.sessions[s.id] != nil:
			callbacks.add(s.done, api.KeepAliveResponse{}, api.ErrNotReady)
		default:
			callbacks.add(s.done, api.KeepAliveResponse{}, api.ErrNoSession)
		}
	}
	lm.mu.Unlock()
	callbacks.run()
}

// answerLocked answers a KeepAlive after a verification that began at began.
//
// Proof that the client's lease ends before a server expires the session. Let L be the lease. This
// server keeps the session at least until began+L. By the verification, any later leader was
// elected after began, and it keeps the session for L from the start of its own lease manager. The
// client counts Lease, which is end-received, from before the request was received, so with a clock
// of the same rate its lease ends by end; it subtracts the possible drift of the clocks. An earlier
// value of end is also valid: it follows from an earlier verification or from the start of this
// lease manager, and the current verification proves that no later leader was elected since.
func (lm *manager) answerLocked(callbacks *callbacks, a dueKeepAlive, began time.Duration, err error) {
	s := a.s
	if a.pending == nil || s.pending != a.pending {
		return // superseded, or the session has ended
	}
	if s.leaseOver {
		return // the command that ends the session answers it
	}
	// A session that has not acknowledged its events gets no longer lease, because writes may be
	// waiting for it.
	renewed := err == nil && s.acked >= s.sent
	if renewed {
		s.end = max(s.end, began+s.lease)
	}
	now := lm.clock.Now()
	if err == nil && s.expiry() <= now {
		lm.expireLocked(s)
		lm.startExpirersLocked()
		return
	}
	if renewed && s.end <= now {
		// This server did not run for so long that the verified lease has ended.
		lm.queueAnswerLocked(s)
		return
	}
	s.pending = nil
	if err != nil {
		callbacks.add(a.pending.done, api.KeepAliveResponse{}, err)
		lm.mu.timers.schedule(s)
		return
	}
	lm.mu.timers.schedule(s)
	events := s.events[:min(len(s.events), api.EventsMax)]
	if n := uint64(len(events)); n > 0 {
		s.sent = max(s.sent, s.first+n-1)
	}
	callbacks.add(a.pending.done, api.KeepAliveResponse{
		Lease:  max(s.end-a.pending.received, 0),
		Term:   lm.term,
		First:  s.first,
		Events: append([]api.Event(nil), events...),
	}, nil)
}

// expireLocked records that a session's lease has expired. Workers propose the command that ends it.
func (lm *manager) expireLocked(s *leaderSession) {
	if s.leaseOver {
		return
	}
	lm.endLeaseLocked(s)
	lm.mu.expiry.sessions = append(lm.mu.expiry.sessions, s)
}

// endLeaseLocked ends the lease of a session, and releases everything it has in this lease manager: the
// client no longer relies on its lease.
func (lm *manager) endLeaseLocked(s *leaderSession) {
	lm.mu.timers.stop(&s.deadline)
	if s.leaseOver {
		return
	}
	s.leaseOver = true
	lm.mu.acks.ack(s)
	lm.mu.ledger.queue(s, -len(s.events))
	s.events = nil
	for path := range s.cached {
		lm.mu.caches.unregister(s, path)
	}
	s.invalidated = nil
	lm.mu.watches.removeAll(s)
}

// sessionDone returns a channel that is closed when the session has ended; nil if it does not exist.
func (lm *manager) sessionDone(id api.SessionID) <-chan struct{} {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	s := lm.mu.sessions[id]
	if s == nil {
		return nil
	}
	if s.done == nil {
		s.done = make(chan struct{})
	}
	return s.done
}

// openSession opens a session.
func (lm *manager) openSession(ctx context.Context, c fsm.Command) (api.SessionID, error) {
	r, err := lm.propose(ctx, c)
	if err == nil {
		err = r.Err(0)
	}
	// The lease counts from when the machine opened the session, which is after the client sent the
	// request. No verification is needed: a later leader that knows the session started its lease
	// after that.
	return api.SessionID(r.Generation), err
}

// closeSession ends a session at the request of its client.
func (lm *manager) closeSession(ctx context.Context, id api.SessionID) error {
	lm.mu.Lock()
	var paths []string
	if s := lm.mu.sessions[id]; s != nil {
		s.closing = true
	}
	lm.machine.View(func(ns *fsm.Namespace, _ uint64) { paths = ns.CachedFiles(id) })
	lm.mu.Unlock()
	_, err := lm.write(ctx, fsm.Command{Op: fsm.OpCloseSession, Session: id}, paths...)
	if err != nil && !errors.Is(err, api.ErrOutcomeUnknown) { // the session stays open
		lm.mu.Lock()
		defer lm.mu.Unlock()
		if s := lm.mu.sessions[id]; s != nil {
			s.closing = false
		}
	}
	return err
}
