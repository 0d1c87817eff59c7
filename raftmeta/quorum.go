package raftmeta

import (
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/internal/planted"
)

// readRounds lets all waiting readers share one verification.
type readRounds struct {
	mu struct {
		sync.Mutex
		// next is the round that can still be joined, nil if none is waiting.
		next *readRound
	}
	// wake wakes verifier.loop. Its capacity is one.
	wake chan struct{}
}

// readRound is one verification of leadership. term and err are set before done is closed.
type readRound struct {
	done chan struct{}
	term uint64
	err  error
}

// join returns a round whose verification has not begun.
func (r *readRounds) join() *readRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.next == nil {
		r.mu.next = &readRound{done: make(chan struct{})}
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	return r.mu.next
}

// take returns the waiting round, if any, and closes it to further readers.
func (r *readRounds) take() *readRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	round := r.mu.next
	r.mu.next = nil
	return round
}

// verifier verifies that this server leads, for all waiting reads and KeepAlives together.
type verifier struct {
	*core
	rounds readRounds
}

func newVerifier(c *core) *verifier {
	v := &verifier{core: c}
	v.rounds.wake = make(chan struct{}, 1)
	return v
}

// loop verifies leadership for one round after another. A round ends when this server no longer
// leads; callers wait for it with their own deadlines.
func (v *verifier) loop() {
	as := termPollers{}
	defer func() { v.requestTerms(as, nil) }()
	for {
		select {
		case <-v.rounds.wake:
			if round := v.rounds.take(); round != nil {
				round.term, round.err = v.verifyRound(as)
				close(round.done)
			}
		case <-v.closing:
			return
		}
	}
}

// linearize returns once the state machine includes every change that any server acknowledged
// before linearize began.
//
// Proof: let T be the term that verify returns. No server was elected in a later term before
// linearize began, so no change had been acknowledged in one. Changes of earlier terms were applied
// here before the barrier of T was answered. Changes of T were acknowledged by this server, which
// applies them first. Raft's AppliedIndex cannot replace the barrier: it is the index passed to the
// state machine, not the index that the state machine has applied.
func (v *verifier) linearize(ctx context.Context) error {
	_, err := v.verify(ctx)
	return err
}

// verify returns the term in which this server has caught up, and in which it led when verify began
// or later: no server was elected in a later term before that. The error is ErrNotReady, a
// *NotLeaderError, ErrClosed or ctx's.
func (v *verifier) verify(ctx context.Context) (term uint64, err error) {
	if err := v.usable(); err != nil {
		return 0, err
	}
	if _, _, term, _ = v.lead.state(); term == 0 {
		return 0, v.notLeading()
	}
	round := v.rounds.join()
	select {
	case <-round.done:
		return round.term, round.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-v.closing:
		return 0, v.usable()
	case <-v.failed:
		return 0, v.usable()
	}
}

// termPoller requests the term of one other server on request.
type termPoller struct {
	id string
	// requests receives requests. Its capacity is one. Closing it stops the poller.
	requests chan struct{}
}

// pollPause is the pause after a failed request, and the time after which servers that have not
// answered are asked again.
const pollPause = 20 * time.Millisecond

// termPollers are the pollers of the other voters, by id.
type termPollers map[string]*termPoller

func (v *verifier) pollTerm(a *termPoller) {
	for range a.requests {
		sentAt := time.Now()
		term, err := v.trans.term(a.id)
		if err == nil {
			v.contacts.answered(a.id, sentAt, term)
			continue
		}
		select {
		case <-time.After(pollPause):
		case <-v.closing:
		}
	}
}

// requestTerms requests the terms of the servers in ids, and stops the pollers of all other servers.
func (v *verifier) requestTerms(as termPollers, ids []string) {
	current := make(map[string]bool, len(ids))
	for _, id := range ids {
		current[id] = true
		a := as[id]
		if a == nil {
			a = &termPoller{id: id, requests: make(chan struct{}, 1)}
			as[id] = a
			v.start(func() { v.pollTerm(a) })
		}
		select {
		case a.requests <- struct{}{}:
		default:
		}
	}
	for id, a := range as {
		if !current[id] {
			close(a.requests)
			delete(as, id)
		}
	}
}

// verifyRound returns the term T in which this server has caught up, after it has verified that no
// server was elected leader in a later term before verifyRound began, at v0. The error is that of
// notLeading, or of usable.
//
// Each other voter is asked for its term at v0 or later, and a quorum, including this server, must
// report no term above T. Proof: suppose that some server was elected in a later term before v0,
// and let U be the first such term. Its voters were a majority of the candidate's configuration.
// Each had a term of U or above when it voted, and ever since: raft stores the term before it
// answers, and only its main goroutine changes it, upward (see transport.heartbeat). A server that has
// joined again with an empty log counts as another server: its former votes counted in configurations
// before its removal, and it answers with at least the term of its invitation. Our quorum is
// a majority of the latest configuration of this server, which led in T. The two configurations are
// equal or adjacent. This server, having caught up, had an entry of T committed, so the candidate's
// log had every entry ever committed in T. It therefore had all of this server's configurations
// except perhaps the latest, because raft commits each before the next is made. Adjacent
// configurations differ by one server, so their majorities intersect. A server in the intersection
// reported a term of at most T when asked at v0 or later, but had U before: a contradiction. For
// this server itself, "asked" is the check of its own term at the end.
//
// It would not suffice that the answers arrive after v0: an answer may be delayed, and its sender
// may have voted since it sent it. Raft's VerifyLeader counts such answers, including answers to
// heartbeats from before the request, so it is not used. Raft's leader lease is not used because it
// depends on clocks. Nothing here waits for raft's main goroutine, which may be waiting for the
// disk.
func (v *verifier) verifyRound(as termPollers) (uint64, error) {
	v0 := time.Now()
	again := time.NewTimer(pollPause)
	defer again.Stop()
	requested := false
	for {
		_, _, term, changed := v.lead.state()
		if err := v.usable(); err != nil {
			return 0, err
		}
		if term == 0 {
			return 0, v.notLeading()
		}
		others, needed := v.otherVoters()
		n, later := v.contacts.since(v0, term, others)
		switch {
		case later:
			return 0, v.notLeading()
		case n >= needed || planted.On(planted.LeaderUnverified):
			if v.raft.CurrentTerm() != term {
				return 0, v.notLeading()
			}
			return term, nil
		}
		if !requested {
			v.requestTerms(as, others)
			requested = true
		}
		select {
		case <-v.contacts.answerSeen:
		case <-again.C:
			requested = false
			again.Reset(pollPause)
		case <-changed:
		case <-v.closing:
		case <-v.failed:
		}
	}
}
