package raftmeta

import (
	"sync"
	"time"
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

// forget removes the record of id, which is about to join the group, perhaps again.
func (c *contacts) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.of, id)
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
