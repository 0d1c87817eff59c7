package logproto

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// world is the complete state: one log, its list in the lock service, three nodes, two writers, two
// recoveries, the messages in flight, and what the properties have to remember. Frames are one byte
// long; a payload is the byte's value, each used once.
type world struct {
	list List
	gen  uint64

	nodes   [3]node
	writers [2]*actor
	recs    [2]*actor
	net     []message

	// The remaining budget of each kind of fault.
	submits                                    [2]int
	crashes, dups, fails, unknowns, cuts, seqs int

	// What the properties remember.
	next  byte
	acked []placed
	sent  []placed // every byte of an extent that was ever sent
	info  [16]payload

	trail *trail
	wrong string
}

type trail struct {
	before *trail
	what   string
	args   []any
}

// placed is a payload at a position, of an extent or of the log.
type placed struct {
	seq uint64
	pos int64
	p   byte
}

// payload is the writer that submitted it, and the highest epoch of a recovery that had fenced a
// replica of each open extent before.
type payload struct{ epoch, ready uint64 }

type node struct {
	r    Replica
	data []content // in the order of r.Extents
}

// content is the bytes of an extent; those beyond Durable are in memory.
type content struct {
	seq uint64
	b   string
}

// actor is a writer or a recovery, and the number of its last request to the lock service.
type actor struct {
	w       *Writer
	r       *Recoverer
	op      int
	payload string // of the writer: submitted payloads, from first on
	first   int64
}

type messageKind uint8

const (
	mOpen messageKind = iota
	mAppend
	mFence
	mCut
	mSave
	mLoad
	mOpened
	mDurable
	mFailed
	mFenced
	mRefused
	mSaved
	mUnsaved
	mLoaded
)

var messageNames = []string{"open", "append", "fence", "cut", "save", "load", "opened", "durable", "failed", "fenced", "refused", "saved", "unsaved", "loaded"}

// message is in flight between an actor and a node or the lock service. Actors 0 and 1 are writers,
// 2 and 3 recoveries.
type message struct {
	kind                    messageKind
	actor, node             int
	op                      int
	seq, epoch, gen         uint64
	start, pos, end, length int64
	data                    string
	list                    *List
	states                  []State
	k                       string // its key
}

func (m message) String() string {
	s := fmt.Sprintf("%s actor=%d node=%d seq=%d epoch=%d", messageNames[m.kind], m.actor, m.node, m.seq, m.epoch)
	if m.kind == mAppend || m.kind == mCut || m.kind == mDurable {
		s += fmt.Sprintf(" start=%d [%d,%d) length=%d", m.start, m.pos, m.end, m.length)
	}
	if m.list != nil {
		s += fmt.Sprintf(" gen=%d list=%+v", m.gen, *m.list)
	}
	if m.states != nil {
		s += fmt.Sprintf(" states=%+v", m.states)
	}
	return s
}

func (w *world) clone(what string, args ...any) *world {
	c := *w
	c.trail = &trail{w.trail, what, args}
	for i := range c.nodes {
		n := &c.nodes[i]
		n.data = slices.Clone(n.data)
		n.r.Extents = slices.Clone(n.r.Extents)
		for j, x := range n.r.Extents {
			y := *x
			n.r.Extents[j] = &y
		}
	}
	for i, a := range c.writers {
		c.writers[i] = a.clone()
	}
	for i, a := range c.recs {
		c.recs[i] = a.clone()
	}
	c.net = slices.Clone(w.net)
	c.acked = slices.Clip(w.acked)
	c.sent = slices.Clip(w.sent)
	return &c
}

func (a *actor) clone() *actor {
	if a == nil {
		return nil
	}
	c := *a
	if a.w != nil {
		w := *a.w
		w.frames, w.effects = slices.Clone(w.frames), nil
		w.cur, w.old, w.next, w.preparing = w.cur.clone(), w.old.clone(), w.next.clone(), w.preparing.clone()
		c.w = &w
	}
	if a.r != nil {
		r := *a.r
		r.answers, r.effects = slices.Clip(r.answers), nil
		c.r = &r
	}
	return &c
}

func (x *openExtent) clone() *openExtent {
	if x == nil {
		return nil
	}
	c := *x
	c.slots = slices.Clone(x.slots)
	return &c
}

// key encodes everything that determines the future of a state.
func (w *world) key(b []byte) []byte {
	u := func(vs ...uint64) {
		for _, v := range vs {
			b = binary.AppendUvarint(b, v)
		}
	}
	b = appendList(b, &w.list)
	u(w.gen, uint64(w.next), uint64(w.crashes), uint64(w.dups), uint64(w.fails), uint64(w.unknowns), uint64(w.cuts), uint64(w.submits[0]), uint64(w.submits[1]))
	for i := range w.nodes {
		b = w.nodes[i].key(b)
	}
	for _, a := range append(w.writers[:], w.recs[:]...) {
		b = a.key(b)
	}
	u(uint64(len(w.net)))
	for i := range w.net {
		b = append(b, w.net[i].k...)
	}
	for _, p := range w.acked {
		u(uint64(p.pos), uint64(p.p))
	}
	b = append(b, 0xff)
	for _, p := range w.sent {
		u(p.seq, uint64(p.pos), uint64(p.p))
	}
	for _, i := range w.info[:w.next] {
		u(i.epoch, i.ready)
	}
	return b
}

func appendList(b []byte, l *List) []byte {
	if l == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, l.Epoch)
	b = binary.AppendUvarint(b, l.Owner<<1|uint64(flag(l.Closed)))
	b = binary.AppendVarint(b, l.Start)
	for _, x := range l.Extents {
		b = binary.AppendUvarint(b, x.Seq)
		b = binary.AppendVarint(b, x.Length)
	}
	return append(b, 0xfe)
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// key encodes what the node has on disk and in memory.
func (n *node) key(b []byte) []byte {
	b = binary.AppendUvarint(b, n.r.Fence)
	for i, x := range n.r.Extents {
		b = binary.AppendUvarint(b, x.Seq)
		b = binary.AppendUvarint(b, x.Epoch)
		b = binary.AppendUvarint(b, x.Fence)
		b = append(b, flag(x.Started), flag(x.Sealed), flag(x.Closed), byte(x.Start), byte(x.Length), byte(x.Durable), byte(x.Queued))
		b = append(b, n.data[i].b...)
	}
	return append(b, 0xfd)
}

func (a *actor) key(b []byte) []byte {
	if a == nil {
		return append(b, 0)
	}
	b = append(b, 1, byte(a.op))
	b = append(b, a.payload...)
	if w := a.w; w != nil {
		b = appendList(b, &w.list)
		b = appendList(b, w.pending)
		b = append(b, byte(w.gen), byte(w.acked), byte(w.end), byte(w.sent), byte(w.seq), flag(w.idle), flag(w.closed), flag(w.closing), flag(w.err != nil), byte(w.released))
		for _, x := range []*openExtent{w.cur, w.old, w.next, w.preparing} {
			if x == nil {
				b = append(b, 0)
				continue
			}
			b = append(b, byte(x.seq), byte(x.start), byte(x.sent), byte(x.length), flag(x.failed), byte(x.opening))
			for _, s := range x.slots {
				b = append(b, flag(s.opened), byte(s.durable))
			}
		}
	}
	if r := a.r; r != nil {
		b = appendList(b, &r.list)
		b = appendList(b, r.pending)
		b = append(b, byte(r.phase), byte(r.gen), flag(r.keep), flag(r.err != nil))
		// The order of their answers makes no difference.
		var heard []string
		for _, h := range r.answers {
			heard = append(heard, h.node+string(appendStates(nil, h.states)))
		}
		slices.Sort(heard)
		b = append(b, strings.Join(heard, "")...)
	}
	return append(b, 0xfc)
}

func appendStates(b []byte, states []State) []byte {
	for _, s := range states {
		b = append(b, byte(s.Seq), flag(s.Started), byte(s.Start), byte(s.Length), flag(s.Scanned))
	}
	return append(b, 0xfb)
}

func (m *message) key(b []byte) []byte {
	b = append(b, byte(m.kind), byte(m.actor), byte(m.node), byte(m.op), byte(m.seq), byte(m.epoch), byte(m.gen), byte(m.start), byte(m.pos), byte(m.end), byte(m.length))
	b = append(b, m.data...)
	if m.list != nil {
		b = appendList(b, m.list)
	}
	return appendStates(b, m.states)
}

// send adds a message in flight, unless the same one is there already: duplicates have a budget.
// Messages are kept in an order of their own. All orders of delivery are tried, so the order of
// sending must not matter.
func (w *world) send(m message) {
	if m.kind == mCut {
		m.actor, m.op = 0, 0 // it expects no answer
	}
	m.k = string(m.key(nil))
	i, there := slices.BinarySearchFunc(w.net, m.k, func(o message, k string) int { return cmp.Compare(o.k, k) })
	if !there {
		w.net = slices.Insert(w.net, i, m)
	}
}

// tidy removes messages that change nothing.
func (w *world) tidy() {
	w.net = slices.DeleteFunc(w.net, func(m message) bool {
		if m.kind < mOpened {
			return m.kind == mCut && w.cuts == 0
		}
		a := w.actor(m.actor)
		switch {
		case m.kind >= mSaved && m.op != a.op:
			return true
		case a.w != nil && (a.w.err != nil || a.w.closed):
			return true
		case a.r != nil && a.r.phase == phaseFailed:
			return true
		case m.kind == mFenced || m.kind == mRefused:
			return a.r.phase != phaseFencing || m.epoch < a.r.Epoch()
		case m.kind == mDurable:
			if a.w.cur == nil || a.w.cur.seq != m.seq {
				return true
			}
			s := a.w.cur.slot(nodeNames[m.node : m.node+1])
			return s == nil || s.durable >= m.length
		case m.kind == mOpened:
			return a.w.preparing == nil || a.w.preparing.seq != m.seq
		}
		return false
	})
}
