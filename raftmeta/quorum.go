package raftmeta

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// contacts knows what the other servers answered last, and when that was asked.
type contacts struct {
	// heard is told of each answer. It holds one.
	heard chan struct{}
	// mu guards the field in it. Never held across I/O.
	mu struct {
		sync.Mutex
		of map[string]contact
	}
}

// contact is what one other server answered.
type contact struct {
	// asked is when the question was sent that was answered with term, as the
	// newest of those answered.
	asked time.Time
	term  uint64
	// at is when the last answer came.
	at time.Time
	// match is the newest entry that it is known to share, as told in
	// matchTerm.
	match, matchTerm uint64
}

func newContacts() *contacts {
	c := &contacts{heard: make(chan struct{}, 1)}
	c.mu.of = map[string]contact{}
	return c
}

// answered notes that id told its term in answer to a message sent at asked.
func (c *contacts) answered(id string, asked time.Time, term uint64) {
	c.mu.Lock()
	k := c.mu.of[id]
	k.at = time.Now()
	if asked.After(k.asked) {
		k.asked, k.term = asked, term
	}
	c.mu.of[id] = k
	c.mu.Unlock()
	select {
	case c.heard <- struct{}{}:
	default:
	}
}

// matched notes that id holds the log of the leader of that term up to match.
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

// get returns what is known of id.
func (c *contacts) get(id string) contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.of[id]
}

// since counts the servers of others that were asked at v0 or later and told no
// term above the given one. later is true when one told a later term.
func (c *contacts) since(v0 time.Time, term uint64, others []string) (n int, later bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range others {
		switch k := c.mu.of[id]; {
		case k.term > term:
			later = true
		case !k.asked.Before(v0):
			n++
		}
	}
	return n, later
}

// asker asks one other server for its term, whenever it is kicked.
type asker struct {
	id string
	// kicked holds one request. Closed, it ends the asker.
	kicked chan struct{}
}

// askPause is the pause after a server did not tell its term, and the time
// after which those who have not are asked once more.
const askPause = 20 * time.Millisecond

func (g *Group) ask(a *asker) {
	for range a.kicked {
		asked := time.Now()
		term, err := g.trans.term(a.id)
		if err == nil {
			g.contacts.answered(a.id, asked, term)
			continue
		}
		select {
		case <-time.After(askPause):
		case <-g.closing:
		}
	}
}

// askers are those of the voters but this server.
type askers map[string]*asker

// kick has the servers of ids asked, and ends the askers of all others.
func (g *Group) kick(as askers, ids []string) {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
		a := as[id]
		if a == nil {
			a = &asker{id: id, kicked: make(chan struct{}, 1)}
			as[id] = a
			g.start(func() { g.ask(a) })
		}
		select {
		case a.kicked <- struct{}{}:
		default:
		}
	}
	for id, a := range as {
		if !wanted[id] {
			close(a.kicked)
			delete(as, id)
		}
	}
}

// otherVoters returns the ids of the voters but this server, as the latest
// configuration says, and how many of them make a quorum with it.
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

// verifyRound returns the term T in which this server has caught up, once it
// knows that no server was elected leader in a later term before verifyRound
// began: at v0. The error is that of notLeading, or of usable.
//
// Each other voter is asked for its term, at v0 or later, and a quorum, this
// server included, must tell none above T. Suppose that some server was elected
// in a later term before v0, and let U be the first such term. Its voters made
// a majority of the configuration that the candidate had, and each had a term
// of U or above when it voted, and ever since: raft stores the term before it
// answers, and only its main goroutine changes it, upward (see
// transport.heartbeat). Our quorum is a majority of the latest configuration of
// this server, which led in T. The two configurations are the same or
// neighbours: this server, caught up, had an entry of T committed, so the
// candidate's log held every entry that was ever committed in T, and so all of
// this server's configurations but perhaps the latest, since raft lets each be
// committed before the next is made. Neighbours differ by one server, so their
// majorities share one. That server told a term of at most T when asked at v0
// or later, but had U before: a contradiction. For this server itself, "asked"
// is the look at its own term at the end.
//
// That the answers come in after v0 would prove nothing: an answer can be on
// its way for long, and its sender have voted since it sent it. Raft's own
// VerifyLeader counts just that, also answers to heartbeats from before the
// question. So it is not used. Nor is raft's leader lease, which rests on
// clocks; nor does anything here wait for raft's main goroutine, which may be
// waiting for the disk.
func (g *Group) verifyRound(as askers) (uint64, error) {
	v0 := time.Now()
	again := time.NewTimer(askPause)
	defer again.Stop()
	asked := false
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
		if !asked {
			g.kick(as, others)
			asked = true
		}
		select {
		case <-g.contacts.heard:
		case <-again.C:
			asked = false
			again.Reset(askPause)
		case <-changed:
		case <-g.closing:
		case <-g.failed:
		}
	}
}
