package raftmeta

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// contacts records the last answers of the other servers, and when the answered messages were sent.
type contacts struct {
	// answerSeen receives on each answer. Its capacity is one.
	answerSeen chan struct{}
	// mu guards the field in it. Never held across I/O.
	mu struct {
		sync.Mutex
		of map[string]contact
	}
}

// contact records the answers of one other server.
type contact struct {
	// sentAt is when the latest answered message was sent, and term the term in its answer.
	sentAt time.Time
	term   uint64
	// at is when the last answer arrived.
	at time.Time
	// match is the newest log entry that the server is known to share with the leader of matchTerm.
	match, matchTerm uint64
}

func newContacts() *contacts {
	c := &contacts{answerSeen: make(chan struct{}, 1)}
	c.mu.of = map[string]contact{}
	return c
}

// answered records that id reported its term in answer to a message sent at asked.
func (c *contacts) answered(id string, sentAt time.Time, term uint64) {
	c.mu.Lock()
	k := c.mu.of[id]
	k.at = time.Now()
	if sentAt.After(k.sentAt) {
		k.sentAt, k.term = sentAt, term
	}
	c.mu.of[id] = k
	c.mu.Unlock()
	select {
	case c.answerSeen <- struct{}{}:
	default:
	}
}

// matched records that id has the log of the leader of that term up to match.
func (c *contacts) matched(id string, term, match uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.mu.of[id]
	if term > k.matchTerm {
		k.match, k.matchTerm = 0, term
	}
	k.match = max(k.match, match)
	c.mu.of[id] = k
}

// get returns the record of id.
func (c *contacts) get(id string) contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.of[id]
}

// since counts the servers in others that answered a message sent at v0 or later with a term of at
// most term. later is set if any server reported a later term.
func (c *contacts) since(v0 time.Time, term uint64, others []string) (n int, later bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range others {
		switch k := c.mu.of[id]; {
		case k.term > term:
			later = true
		case !k.sentAt.Before(v0):
			n++
		}
	}
	return n, later
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

func (g *Group) pollTerm(a *termPoller) {
	for range a.requests {
		sentAt := time.Now()
		term, err := g.trans.term(a.id)
		if err == nil {
			g.contacts.answered(a.id, sentAt, term)
			continue
		}
		select {
		case <-time.After(pollPause):
		case <-g.closing:
		}
	}
}

// termPollers are the pollers of the other voters, by id.
type termPollers map[string]*termPoller

// requestTerms requests the terms of the servers in ids, and stops the pollers of all other servers.
func (g *Group) requestTerms(as termPollers, ids []string) {
	current := make(map[string]bool, len(ids))
	for _, id := range ids {
		current[id] = true
		a := as[id]
		if a == nil {
			a = &termPoller{id: id, requests: make(chan struct{}, 1)}
			as[id] = a
			g.start(func() { g.pollTerm(a) })
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

// otherVoters returns the ids of the other voters in the latest configuration, and how many of them
// form a quorum together with this server.
func (g *Group) otherVoters() (ids []string, needed int) {
	n := 0
	for _, s := range g.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		n++
		if string(s.ID) != g.cfg.ID {
			ids = append(ids, string(s.ID))
		}
	}
	return ids, n / 2
}

// verifyRound returns the term T in which this server has caught up, after it has verified that no
// server was elected leader in a later term before verifyRound began, at v0. The error is that of
// notLeading, or of usable.
//
// Each other voter is asked for its term at v0 or later, and a quorum, including this server, must
// report no term above T. Proof: suppose that some server was elected in a later term before v0,
// and let U be the first such term. Its voters were a majority of the candidate's configuration.
// Each had a term of U or above when it voted, and ever since: raft stores the term before it
// answers, and only its main goroutine changes it, upward (see transport.heartbeat). Our quorum is
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
func (g *Group) verifyRound(as termPollers) (uint64, error) {
	v0 := time.Now()
	again := time.NewTimer(pollPause)
	defer again.Stop()
	requested := false
	for {
		_, _, term, changed := g.lead.state()
		if err := g.usable(); err != nil {
			return 0, err
		}
		if term == 0 {
			return 0, g.notLeading()
		}
		others, needed := g.otherVoters()
		n, later := g.contacts.since(v0, term, others)
		switch {
		case later:
			return 0, g.notLeading()
		case n >= needed:
			if g.raft.CurrentTerm() != term {
				return 0, g.notLeading()
			}
			return term, nil
		}
		if !requested {
			g.requestTerms(as, others)
			requested = true
		}
		select {
		case <-g.contacts.answerSeen:
		case <-again.C:
			requested = false
			again.Reset(pollPause)
		case <-changed:
		case <-g.closing:
		case <-g.failed:
		}
	}
}
