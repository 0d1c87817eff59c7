package logproto

import (
	"crypto/sha256"
	"math/rand/v2"
	"slices"
)

const nodeNames = "abc"

func nodeIndex(name string) int { return int(name[0] - 'a') }

// scenario is a budget of faults, and the placement of extents.
type scenario struct {
	name                           string
	submits                        [2]int
	recoveries                     int
	take                           bool // the first recovery is by a successor that continues the log
	crashes, dups, fails, unknowns int
	cuts                           int // cuts that are delivered
	seqs                           int // extents for which there are nodes
	places                         []string
}

// start is a log with a registered, empty first extent and standby.
func (s *scenario) start() *world {
	w := &world{crashes: s.crashes, dups: s.dups, fails: s.fails, unknowns: s.unknowns, cuts: s.cuts, seqs: s.seqs, submits: s.submits, next: 1}
	w.writers[0] = &actor{w: NewWriter(List{Epoch: 1, Owner: 1}, 0)}
	x := explorer{scenario: s}
	x.effects(w, 0)
	for len(w.net) > 0 {
		x.deliver(w, w.net[0], false)
	}
	return w
}

// explorer visits every state that a scenario can reach.
type explorer struct {
	*scenario
	seen    map[[16]byte]struct{}
	checked map[[16]byte]struct{} // disks and acknowledgements for which recovery was tried
	buf     []byte
	// branches are steps not taken yet.
	branches []*world
	rng      *rand.Rand // shuffles branches, so that a truncated walk sees some of everything
	limit    int
	found    *world // a state that violates a property
	cut      bool   // the limit was reached
	acks     int    // states with an acknowledgement, which show that the scenario is meaningful
	closed   int    // states in which the log is recovered
}

func (x *explorer) run() {
	x.seen = map[[16]byte]struct{}{}
	x.checked = map[[16]byte]struct{}{}
	x.visit(x.start())
}

func (x *explorer) visit(w *world) {
	if x.found != nil || x.cut {
		return
	}
	w.tidy()
	if w.wrong == "" {
		x.check(w)
	}
	if w.wrong != "" {
		x.found = w
		return
	}
	x.buf = w.key(x.buf[:0])
	h := hash(x.buf)
	if _, ok := x.seen[h]; ok {
		return
	}
	if len(x.seen) >= x.limit {
		x.cut = true
		return
	}
	x.seen[h] = struct{}{}
	if len(w.acked) > 0 {
		x.acks++
	}
	if w.list.Closed {
		x.closed++
	}
	from := len(x.branches)
	x.steps(w)
	to := x.branches[from:]
	if x.rng != nil {
		x.rng.Shuffle(len(to), func(i, j int) { to[i], to[j] = to[j], to[i] })
	}
	for len(x.branches) > from {
		n := len(x.branches) - 1
		next := x.branches[n]
		x.branches[n] = nil
		x.branches = x.branches[:n]
		x.visit(next)
	}
}

func hash(b []byte) [16]byte {
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

// steps adds every state that one step leads to.
func (x *explorer) steps(w *world) {
	for i := range w.net {
		if w.net[i].kind == mCut && w.cuts == 0 {
			continue
		}
		c := w.clone("deliver", &w.net[i])
		x.deliver(c, c.net[i], false)
		x.branches = append(x.branches, c)
		if w.dups > 0 && w.net[i].kind <= mCut {
			c := w.clone("deliver and keep", &w.net[i])
			c.dups--
			x.deliver(c, c.net[i], true)
			x.branches = append(x.branches, c)
		}
	}
	x.diskSteps(w)
	for i, a := range w.writers {
		if a != nil && a.w.err == nil {
			x.writerSteps(w, i)
		}
	}
	x.recoverySteps(w)
}

func (x *explorer) diskSteps(w *world) {
	for i := range w.nodes {
		dirty := false
		for _, e := range w.nodes[i].r.Extents {
			if e.Queued > e.Durable {
				dirty = true
				c := w.clone("node %d syncs extent %d", i, e.Seq)
				x.flush(c, i, e.Seq)
				x.branches = append(x.branches, c)
			}
		}
		if w.crashes == 0 || len(w.nodes[i].r.Extents) == 0 {
			continue
		}
		for _, keep := range []bool{false, true} {
			if keep && !dirty {
				continue
			}
			c := w.clone("node %d crashes, keeps all %t", i, keep)
			c.crashes--
			for j, e := range c.nodes[i].r.Extents {
				n := e.Durable
				meta := e.Meta
				if keep {
					n = e.Queued
					meta.Started = meta.Started || n > 0
				}
				e.Restart(meta, n)
				c.nodes[i].data[j].b = c.nodes[i].data[j].b[:n]
			}
			x.branches = append(x.branches, c)
		}
	}
}

func (x *explorer) writerSteps(w *world, i int) {
	a := w.writers[i]
	if w.submits[i] > 0 {
		c := w.clone("writer %d submits %d", i, w.next)
		c.submits[i]--
		x.submit(c, i)
		x.branches = append(x.branches, c)
	}
	if w.fails > 0 {
		for _, e := range []*openExtent{a.w.cur, a.w.next, a.w.preparing} {
			if e == nil || e.failed {
				continue
			}
			c := w.clone("writer %d gives extent %d up", i, e.seq)
			c.fails--
			c.writers[i].w.Failed(e.seq, e.slots[0].node, 0)
			x.effects(c, i)
			x.branches = append(x.branches, c)
		}
	}
	if w.unknowns > 0 && a.w.pending != nil {
		c := w.clone("writer %d does not learn whether its list is saved", i)
		c.unknowns--
		c.writers[i].op++
		c.writers[i].w.Unsaved()
		x.effects(c, i)
		x.branches = append(x.branches, c)
	}
}

func (x *explorer) recoverySteps(w *world) {
	for i := range x.recoveries {
		a := w.recs[i]
		if a == nil {
			if i > 0 && w.recs[i-1] == nil {
				break // equivalent
			}
			c := w.clone("recovery %d begins", i)
			c.recs[i] = &actor{r: NewRecoverer(uint64(10+i), i == 0 && x.take)}
			x.effects(c, 2+i)
			x.branches = append(x.branches, c)
			continue
		}
		if a.r.Ready() {
			c := w.clone("recovery %d decides", i)
			c.recs[i].r.Decide()
			x.effects(c, 2+i)
			x.branches = append(x.branches, c)
		}
		if w.unknowns > 0 && a.r.pending != nil {
			c := w.clone("recovery %d does not learn whether its list is saved", i)
			c.unknowns--
			c.recs[i].op++
			c.recs[i].r.Unsaved()
			x.effects(c, 2+i)
			x.branches = append(x.branches, c)
		}
		if i == 0 && x.take && a.r.Done() && w.writers[1] == nil {
			c := w.clone("the successor begins")
			l, gen := a.r.List()
			_, end := l.Sealed()
			c.writers[1] = &actor{w: NewWriter(l, gen), first: end}
			x.effects(c, 1)
			x.branches = append(x.branches, c)
		}
	}
}

func (x *explorer) submit(w *world, i int) {
	a := w.writers[i]
	ready := uint64(0)
	for _, r := range w.recs {
		if r != nil && (r.r.Ready() || r.r.phase == phaseRecording || r.r.phase == phaseDone && r.r.list.Owner == r.r.owner) {
			ready = max(ready, r.r.Epoch())
		}
	}
	w.info[w.next] = payload{epoch: a.w.list.Epoch, ready: ready}
	a.payload += string(rune(w.next))
	w.next++
	a.w.Submit(1)
	x.effects(w, i)
}

func (x *explorer) flush(w *world, i int, seq uint64) {
	n := &w.nodes[i]
	e := n.r.Find(seq)
	e.Flushed(e.Queued)
	for a := range w.writers {
		if w.writers[a] != nil && w.writers[a].w.list.Epoch == e.Epoch {
			w.send(message{kind: mDurable, actor: a, node: i, seq: seq, length: e.Durable})
		}
	}
}

// effects applies the effects that an actor requests.
func (x *explorer) effects(w *world, actor int) {
	a := w.actor(actor)
	var all []Effect
	if a.w != nil {
		all = slices.Clone(a.w.Take())
	} else {
		all = slices.Clone(a.r.Take())
	}
	for _, e := range all {
		m := message{actor: actor, seq: e.Seq, epoch: e.Epoch, start: e.Start, pos: e.Pos, end: e.End, length: e.Length, gen: e.Gen, op: a.op}
		if e.Node != "" {
			m.node = nodeIndex(e.Node)
		}
		switch e.Kind {
		case EffectPlace:
			var nodes []string
			if e.Seq <= uint64(w.seqs) {
				for _, c := range x.places[e.Seq-1] {
					nodes = append(nodes, string(c))
				}
			}
			a.w.Place(e.Seq, nodes)
			x.effects(w, actor)
		case EffectOpen:
			m.kind = mOpen
			w.send(m)
		case EffectAppend:
			m.kind = mAppend
			m.data = a.payload[e.Pos-a.first : e.End-a.first]
			x.noteSent(w, m)
			w.send(m)
		case EffectAcked:
			x.noteAcked(w, a, e.Pos)
		case EffectSave:
			m.kind, m.list = mSave, &e.List
			w.send(m)
		case EffectLoad:
			m.kind = mLoad
			w.send(m)
		case EffectFence:
			m.kind = mFence
			w.send(m)
		case EffectCut:
			m.kind = mCut
			w.send(m)
		}
	}
}

func (w *world) actor(i int) *actor {
	if i < 2 {
		return w.writers[i]
	}
	return w.recs[i-2]
}
