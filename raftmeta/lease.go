package raftmeta

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// keepAliveDone receives the outcome of a KeepAlive.
type keepAliveDone func(api.KeepAliveResponse, error)

// hanging is a KeepAlive that waits for its answer.
type hanging struct {
	done keepAliveDone
	// received is when it arrived, answerBy the latest time to answer it.
	received, answerBy time.Duration
}

// stranger is a KeepAlive of a session that does not exist. Only a leader that has verified its
// leadership may answer so: another leader may know the session.
type stranger struct {
	id   api.SessionID
	done keepAliveDone
}

// answers are callbacks to call after the lock is released.
type answers []func()

func (a *answers) add(done keepAliveDone, resp api.KeepAliveResponse, err error) {
	*a = append(*a, func() { done(resp, err) })
}

func (a answers) give() {
	for _, f := range a {
		f()
	}
}

// keepAlive registers a KeepAlive, or answers it if it cannot wait.
func (k *keeper) keepAlive(req api.KeepAliveRequest, done keepAliveDone) {
	var answers answers
	defer func() { answers.give() }()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.dropped {
		answers.add(done, api.KeepAliveResponse{}, k.refusal())
		return
	}
	s := k.mu.sessions[req.Session]
	if s == nil {
		k.mu.strangers = append(k.mu.strangers, stranger{req.Session, done})
		kick(k.answer)
		return
	}
	if s.hang != nil {
		answers.add(s.hang.done, api.KeepAliveResponse{}, api.ErrSuperseded)
	}
	now := k.clock.Now()
	h := &hanging{done: done, received: now}
	s.hang = h
	if req.Caller != nil {
		forget := context.AfterFunc(req.Caller, func() { k.abandon(s, h) })
		h.done = func(resp api.KeepAliveResponse, err error) {
			forget()
			done(resp, err)
		}
	}
	if s.over {
		return // it is answered when a command has ended the session
	}
	if req.Term == k.term {
		k.heardLocked(s)
		k.ackLocked(s, req.Acked)
	}
	// A third of the lease is left for the answer and the client's next request.
	s.hang.answerBy = min(now+max(req.Hang, 0), s.end-s.lease/3)
	if req.Term != k.term || len(s.events) > 0 || s.hang.answerBy <= now {
		k.dueLocked(s)
		return
	}
	k.scheduleLocked(s)
}

// abandon drops a KeepAlive whose caller is gone. An answer would extend a lease that no client
// uses, and delay the release of a killed process's locks by up to two thirds of a lease.
func (k *keeper) abandon(s *served, h *hanging) {
	k.mu.Lock()
	if s.hang != h {
		k.mu.Unlock()
		return
	}
	s.hang = nil
	if !s.over {
		k.scheduleLocked(s)
	}
	k.mu.Unlock()
	h.done(api.KeepAliveResponse{}, api.ErrSuperseded)
}

// heardLocked records that a session has acknowledged this term, and therefore caches nothing from
// an earlier term.
func (k *keeper) heardLocked(s *served) {
	if s.heard {
		return
	}
	s.heard = true
	k.mu.unheard--
	if k.mu.unheard == 0 {
		close(k.mu.allHeard)
	}
}

// dueLocked queues the answer to a session's pending KeepAlive.
func (k *keeper) dueLocked(s *served) {
	if s.hang != nil && !s.due && !s.over {
		s.due = true
		k.mu.answers = append(k.mu.answers, s)
		kick(k.answer)
	}
	if !s.over {
		k.scheduleLocked(s)
	}
}

// answerLoop answers KeepAlives: all that are due share one verification.
func (k *keeper) answerLoop() {
	for {
		select {
		case <-k.answer:
			k.answerRound()
		case <-k.ctx.Done():
			return
		}
	}
}

// asked is a KeepAlive that is being answered.
type asked struct {
	s    *served
	hang *hanging
}

func (k *keeper) answerRound() {
	k.mu.Lock()
	var round []asked
	for _, s := range k.mu.answers {
		s.due = false
		round = append(round, asked{s, s.hang})
	}
	strangers := k.mu.strangers
	k.mu.answers, k.mu.strangers = nil, nil
	began := k.clock.Now()
	k.mu.Unlock()
	if len(round)+len(strangers) == 0 {
		return
	}
	term, err := k.replica.verify(k.ctx)
	switch {
	case k.ctx.Err() != nil:
		err = k.refusal()
	case err == nil && term != k.term:
		err = errOtherTerm
	}
	var answers answers
	k.mu.Lock()
	for _, a := range round {
		k.answerLocked(&answers, a, began, err)
	}
	for _, s := range strangers {
		switch {
		case err != nil:
			answers.add(s.done, api.KeepAliveResponse{}, err)
		case k.mu.sessions[s.id] != nil:
			answers.add(s.done, api.KeepAliveResponse{}, ErrNotReady)
		default:
			answers.add(s.done, api.KeepAliveResponse{}, api.ErrNoSession)
		}
	}
	k.mu.Unlock()
	answers.give()
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
func (k *keeper) answerLocked(answers *answers, a asked, began time.Duration, err error) {
	s := a.s
	if a.hang == nil || s.hang != a.hang {
		return // superseded, or the session has ended
	}
	if s.over {
		return // the command that ends the session answers it
	}
	// A session that has not acknowledged its events gets no longer lease, because writes may be
	// waiting for it.
	renewed := err == nil && s.acked >= s.sent
	if renewed {
		s.end = max(s.end, began+s.lease)
	}
	now := k.clock.Now()
	if err == nil && s.expiry() <= now {
		k.dieLocked(s)
		k.expirersLocked()
		return
	}
	if renewed && s.end <= now {
		// This server did not run for so long that the verified lease has ended.
		k.dueLocked(s)
		return
	}
	s.hang = nil
	if err != nil {
		answers.add(a.hang.done, api.KeepAliveResponse{}, err)
		k.scheduleLocked(s)
		return
	}
	k.scheduleLocked(s)
	events := s.events[:min(len(s.events), api.EventsMax)]
	if n := uint64(len(events)); n > 0 {
		s.sent = max(s.sent, s.first+n-1)
	}
	answers.add(a.hang.done, api.KeepAliveResponse{
		Lease:  max(s.end-a.hang.received, 0),
		Term:   k.term,
		First:  s.first,
		Events: append([]api.Event(nil), events...),
	}, nil)
}

// dieLocked records that a session's lease has expired. Workers propose the command that ends it.
func (k *keeper) dieLocked(s *served) {
	if s.over {
		return
	}
	k.overLocked(s)
	k.mu.dying = append(k.mu.dying, s)
}

// overLocked ends the lease of a session, and releases everything it has in this lease manager: the
// client no longer relies on its lease.
func (k *keeper) overLocked(s *served) {
	if s.pos >= 0 {
		heap.Remove(&k.mu.due, s.pos)
	}
	if s.over {
		return
	}
	s.over = true
	k.heardLocked(s)
	k.queueLocked(s, -len(s.events))
	s.events = nil
	for path := range s.cached {
		k.unregisterLocked(s, path)
	}
	s.told = nil
	k.unwatchAllLocked(s)
}

// gone returns a channel that is closed when the session has ended; nil if it does not exist.
func (k *keeper) gone(id api.SessionID) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.mu.sessions[id]
	if s == nil {
		return nil
	}
	if s.ended == nil {
		s.ended = make(chan struct{})
	}
	return s.ended
}

// openSession opens a session.
func (k *keeper) openSession(ctx context.Context, c command) (api.SessionID, error) {
	r, err := k.propose(ctx, c)
	if err == nil {
		err = r.error(0)
	}
	// The lease counts from when the machine opened the session, which is after the client sent the
	// request. No verification is needed: a later leader that knows the session started its lease
	// after that.
	return api.SessionID(r.generation), err
}

// closeSession ends a session at the request of its client.
func (k *keeper) closeSession(ctx context.Context, id api.SessionID) error {
	k.mu.Lock()
	var paths []string
	if s := k.mu.sessions[id]; s != nil {
		s.closing = true
	}
	k.machine.view(func(ns *namespace, _ uint64) { paths = cachedFilesOf(ns, id) })
	k.mu.Unlock()
	_, err := k.write(ctx, command{op: opCloseSession, session: id}, paths...)
	if err != nil && !errors.Is(err, ErrOutcomeUnknown) { // the session stays open
		k.mu.Lock()
		defer k.mu.Unlock()
		if s := k.mu.sessions[id]; s != nil {
			s.closing = false
		}
	}
	return err
}

// cachedFilesOf returns the ephemeral files of a session that may be cached.
func cachedFilesOf(ns *namespace, id api.SessionID) []string {
	var paths []string
	ns.holds.AscendGreaterOrEqual(hold{session: id}, func(h hold) bool {
		if h.session == id && h.mode == 0 && ns.get(h.path).cached != 0 {
			paths = append(paths, h.path)
		}
		return h.session == id
	})
	return paths
}
