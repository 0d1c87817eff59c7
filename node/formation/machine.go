package formation

import (
	"cmp"
	"maps"
	"slices"
)

const (
	// pollMax bounds the fresh nodes, beyond the seeds, that get a hello each round. With 200 that
	// know each other, all do in 13 rounds.
	pollMax = 16
	// aliveRounds is for how many rounds a node counts as alive after its last hello.
	aliveRounds = 10
)

// machine is the logic of a fresh node until it belongs to a cluster: messages in, actions out,
// without clock, network or disk. It is not safe for concurrent use. The actions of a message must
// be executed in order before its answer is sent.
type machine struct {
	self   Peer
	expect int
	key    []byte
	newID  func() string

	state   State
	cluster string // the node's own; empty while fresh
	seen    string // an existing one, which the node will join
	founder bool   // the node founded cluster

	round      int
	poll       string            // id of the fresh node that got the last hello
	seeds      []string          // addresses to join
	answered   map[string]string // address of a seed: id of the fresh node that answered there
	known      map[string]*fresh // fresh nodes with the same expect, by id, without this one
	granted    map[string]bool   // ids that promised in the current attempt
	mismatched map[string]int    // expect of fresh nodes with another expect, by id
}

// fresh is another fresh node.
type fresh struct {
	candidate
	lastHello int    // round of its last hello; zero if known only through others
	promised  string // founder's id
}

// Actions.
type (
	actSave    struct{ state State }
	actFound   struct{ cluster string }
	actJoin    struct{ cluster string } // the node is admitted
	actHello   struct{ to string }
	actPromise struct {
		to      string
		request promiseRequest
	}
	actAskJoin struct{ to, cluster string }
)

func newMachine(self Peer, expect int, key []byte, state State, newID func() string) *machine {
	return &machine{
		self: self, expect: expect, key: key, newID: newID, state: state,
		answered: map[string]string{}, known: map[string]*fresh{}, granted: map[string]bool{}, mismatched: map[string]int{},
	}
}

// setSeeds sets the addresses of seeds, which may change as names do.
func (m *machine) setSeeds(addrs []string) {
	m.seeds = slices.Compact(slices.Sorted(slices.Values(addrs)))
	maps.DeleteFunc(m.answered, func(addr, _ string) bool { return !slices.Contains(addrs, addr) })
}

// tick starts a round.
func (m *machine) tick() []any {
	m.round++
	if m.cluster != "" {
		return nil
	}
	var acts []any
	for _, addr := range m.seeds {
		acts = append(acts, actHello{addr})
	}
	polls := m.nextPolls()
	if p := m.state.Promise; p != nil && !slices.Contains(polls, p.RPC) {
		polls = append(polls, p.RPC)
	}
	for _, addr := range polls {
		if !slices.Contains(m.seeds, addr) {
			acts = append(acts, actHello{addr})
		}
	}
	return append(acts, m.contend()...)
}

// nextPolls returns the addresses of the next pollMax known fresh nodes, in turn.
func (m *machine) nextPolls() []string {
	ids := slices.Sorted(maps.Keys(m.known))
	at, _ := slices.BinarySearch(ids, m.poll+"\x00")
	var addrs []string
	for i := range min(pollMax, len(ids)) {
		m.poll = ids[(at+i)%len(ids)]
		addrs = append(addrs, m.known[m.poll].RPC)
	}
	return addrs
}

// contend starts, continues or gives up an attempt.
func (m *machine) contend() []any {
	switch {
	case m.cluster != "":
		return nil
	case m.state.Active && (m.seen != "" || m.expect == 0 || m.yields()):
		return m.giveUp()
	case m.seen != "" || m.expect == 0 || m.state.Promise != nil:
		return nil
	case m.state.Active:
		return append(m.requestPromises(), m.tryFound()...)
	case m.yields() || !m.enough():
		return nil
	}
	m.state.Attempt++
	m.state.Active = true
	clear(m.granted)
	return slices.Concat([]any{actSave{m.state}}, m.requestPromises(), m.tryFound())
}

// giveUp ends the current attempt for ever. The promises made to it are void, which their givers
// learn by hello.
func (m *machine) giveUp() []any {
	m.state.Active = false
	clear(m.granted)
	return []any{actSave{m.state}}
}

// yields reports whether another node is to found the cluster: a live one with a lower id that has
// not promised.
func (m *machine) yields() bool {
	for _, p := range m.known {
		if p.ID < m.self.ID && p.promised == "" && m.alive(p) {
			return true
		}
	}
	return false
}

func (m *machine) alive(p *fresh) bool {
	return p.lastHello > 0 && m.round-p.lastHello <= aliveRounds+2*len(m.known)/pollMax
}

// enough reports whether an attempt can succeed with the live known nodes.
func (m *machine) enough() bool {
	with := map[string]bool{}
	for id, p := range m.known {
		if m.alive(p) {
			with[id] = true
		}
	}
	return m.suffices(with)
}

// suffices reports whether this node and those in with may found a cluster: the expected number of
// nodes, and among them a majority of the nodes at the seeds.
//
// A node that answers at several addresses, such as a name and an IP address, counts once. Any two
// such sets share a node: because there are fewer than twice the expected nodes, or else because
// all nodes have the same seeds. A founder that has not yet noticed that two addresses belong to
// one node needs more nodes, never fewer.
func (m *machine) suffices(with map[string]bool) bool {
	if len(with)+1 < m.expect {
		return false
	}
	seeds, at := len(m.seeds)-len(m.answered), 0
	counted := map[string]bool{}
	for _, id := range m.answered {
		if counted[id] {
			continue
		}
		counted[id] = true
		seeds++
		if id == m.self.ID || with[id] {
			at++
		}
	}
	return len(m.seeds) == 0 || 2*at > seeds
}

// requestPromises requests the promises that are missing.
func (m *machine) requestPromises() []any {
	var acts []any
	for _, id := range slices.Sorted(maps.Keys(m.known)) {
		if !m.granted[id] {
			acts = append(acts, actPromise{m.known[id].RPC, promiseRequest{
				founder: m.self, expect: m.expect, key: m.key, attempt: m.state.Attempt}})
		}
	}
	return acts
}

// tryFound founds the cluster if enough nodes have promised.
func (m *machine) tryFound() []any {
	if !m.state.Active || m.seen != "" || m.cluster != "" || !m.suffices(m.granted) {
		return nil
	}
	m.cluster, m.founder = m.newID(), true
	m.state.Active = false
	return []any{actFound{m.cluster}}
}

// hello returns this node's hello.
func (m *machine) hello() hello {
	h := hello{Peer: m.self, cluster: m.cluster, expect: m.expect, key: m.key, attempt: m.state.Attempt, active: m.state.Active}
	if m.state.Promise != nil {
		h.promised = m.state.Promise.Founder
	}
	for _, id := range slices.Sorted(maps.Keys(m.known)) {
		h.fresh = append(h.fresh, m.known[id].candidate)
	}
	return h
}

// onHello processes the hello of a calling node.
func (m *machine) onHello(h hello) []any {
	switch p := m.state.Promise; {
	case h.ID == m.self.ID || m.cluster != "":
		return nil
	case h.cluster == "":
		return m.noteHello(h)
	case p != nil && p.Founder == h.ID:
		return []any{actHello{h.RPC}} // it has founded the cluster and may have moved
	}
	return nil // another cluster counts only if it answers at an address to call
}

// helloAnswered processes the answer to a hello to addr.
func (m *machine) helloAnswered(addr string, h hello) []any {
	seed := slices.Contains(m.seeds, addr)
	switch {
	case m.cluster != "":
		return nil
	case h.cluster != "":
		if m.seen == "" {
			m.seen = h.cluster
		}
		if m.seen != h.cluster {
			return nil
		}
		return []any{actAskJoin{addr, h.cluster}}
	case h.ID == m.self.ID:
		if seed {
			m.answered[addr] = h.ID
		}
		return nil
	}
	delete(m.answered, addr)
	if seed && h.expect == m.expect {
		m.answered[addr] = h.ID
	}
	return m.noteHello(h)
}

// noteHello processes the hello of a fresh node.
func (m *machine) noteHello(h hello) []any {
	if m.cluster != "" {
		return nil
	}
	acts := m.release(h)
	if h.expect != m.expect || m.expect == 0 {
		if h.expect != 0 && m.expect != 0 && len(m.mismatched) < freshMax {
			m.mismatched[h.ID] = h.expect
		}
		delete(m.known, h.ID)
		return acts
	}
	for id, p := range m.known { // a node that started with empty folders has a new id
		if p.RPC == h.RPC && id != h.ID {
			delete(m.known, id)
		}
	}
	delete(m.mismatched, h.ID)
	for _, c := range append(h.fresh, candidate{h.Peer, h.expect}) {
		m.learn(c)
	}
	if p := m.known[h.ID]; p != nil {
		p.candidate, p.lastHello, p.promised = candidate{h.Peer, h.expect}, m.round, h.promised
	}
	return acts
}

// learn records a fresh node.
func (m *machine) learn(c candidate) {
	if c.ID == "" || c.RPC == "" || c.ID == m.self.ID || c.expect != m.expect || m.known[c.ID] != nil || len(m.known) >= freshMax {
		return
	}
	for _, p := range m.known {
		if p.RPC == c.RPC && p.lastHello > 0 {
			return // an old entry of a node that has a new id
		}
	}
	m.known[c.ID] = &fresh{candidate: c}
}

// release drops this node's promise if its founder reports that it will not use it: the attempt was
// given up. That remains true, however old the message is.
func (m *machine) release(h hello) []any {
	p := m.state.Promise
	if p == nil || h.ID != p.Founder || h.attempt < p.Attempt || h.attempt == p.Attempt && h.active {
		return nil
	}
	m.state.Promise = nil
	return []any{actSave{m.state}}
}

// onPromise answers a promise request.
func (m *machine) onPromise(q promiseRequest) (promiseAnswer, []any) {
	a := promiseAnswer{node: m.self.ID, attempt: q.attempt, cluster: cmp.Or(m.cluster, m.seen)}
	if a.cluster != "" || q.expect != m.expect || m.expect == 0 || q.founder.ID == m.self.ID || q.founder.ID == "" {
		return a, nil
	}
	m.learn(candidate{q.founder, q.expect})
	switch p := m.state.Promise; {
	case p != nil && p.Founder != q.founder.ID:
		a.to = Peer{ID: p.Founder, RPC: p.RPC}
		return a, nil
	case p != nil && p.Attempt == q.attempt:
		a.granted = true
		return a, nil
	case p != nil && p.Attempt > q.attempt: // outdated request
		return a, nil
	case m.state.Active && m.self.ID < q.founder.ID:
		a.to = m.self
		return a, nil
	}
	m.state.Active = false // for ever: promises made to it are void
	clear(m.granted)
	m.state.Promise = &Promise{Founder: q.founder.ID, Attempt: q.attempt, RPC: q.founder.RPC}
	a.granted = true
	return a, []any{actSave{m.state}}
}

// promiseAnswered processes the answer to a promise request.
func (m *machine) promiseAnswered(a promiseAnswer) []any {
	if m.cluster != "" || !m.state.Active || a.attempt != m.state.Attempt {
		return nil
	}
	if a.to.ID != "" {
		m.learn(candidate{a.to, m.expect})
	}
	if !a.granted {
		return nil
	}
	m.granted[a.node] = true
	return m.tryFound()
}

// joinAnswered processes a member's answer to a join request.
func (m *machine) joinAnswered(a joinAnswer) []any {
	if m.cluster != "" || a.cluster == "" || a.cluster != m.seen {
		return nil
	}
	m.cluster = a.cluster
	m.state.Active, m.state.Promise = false, nil
	return []any{actJoin{a.cluster}}
}
