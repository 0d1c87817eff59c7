package logproto

import (
	"fmt"
	"slices"
)

// noteSent records the bytes of an extent, and checks that they never change.
func (x *explorer) noteSent(w *world, m message) {
	for i := m.pos; i < m.end; i++ {
		p := placed{seq: m.seq, pos: i - m.start, p: m.data[i-m.pos]}
		at := slices.IndexFunc(w.sent, func(q placed) bool { return q.seq == p.seq && q.pos == p.pos })
		switch {
		case at < 0:
			w.sent = append(w.sent, p)
			slices.SortFunc(w.sent, func(a, b placed) int { return int(a.seq*100) + int(a.pos) - int(b.seq*100) - int(b.pos) })
		case w.sent[at].p != p.p:
			w.wrong = fmt.Sprintf("byte %d of extent %d is sent as payload %d and %d", p.pos, p.seq, w.sent[at].p, p.p)
		}
	}
}

// noteAcked records what is acknowledged. L2.
func (x *explorer) noteAcked(w *world, a *actor, to int64) {
	from := a.first
	for _, p := range w.acked {
		from = max(from, p.pos+1)
	}
	for i := from; i < to; i++ {
		p := a.payload[i-a.first]
		w.acked = append(w.acked, placed{pos: i, p: p})
		if in := w.info[p]; in.ready > in.epoch {
			w.wrong = fmt.Sprintf("L2: payload %d of epoch %d, submitted after recovery %d had fenced, is acknowledged", p, in.epoch, in.ready)
		}
	}
}

// checkLists checks a list that replaces the current one. L3.
func (x *explorer) checkLists(w *world, l *List) {
	if err := l.Validate(); err != nil {
		w.wrong = err.Error()
	}
	if l.Epoch < w.list.Epoch || w.list.Closed && !l.Closed {
		w.wrong = fmt.Sprintf("L3: list of epoch %d follows one of %d", l.Epoch, w.list.Epoch)
	}
	end := w.list.Start
	for _, e := range w.list.Extents {
		if e.Length == Open {
			continue
		}
		end += e.Length
		if f := l.find(e.Seq); f == nil && end <= l.Start {
			continue // released
		} else if f == nil || f.Length != e.Length {
			w.wrong = fmt.Sprintf("L3: extent %d of length %d is now %+v", e.Seq, e.Length, f)
		}
	}
}

// checkForward checks that a node's epochs do not decrease. L3.
func (x *explorer) checkForward(w *world, before, n *node) {
	if n.r.Fence < before.r.Fence {
		w.wrong = fmt.Sprintf("L3: the fence of a node goes from %d to %d", before.r.Fence, n.r.Fence)
	}
	for _, e := range n.r.Extents {
		if before.r.Find(e.Seq) == nil && e.Epoch < before.r.Fence {
			w.wrong = fmt.Sprintf("L3: a node fenced at %d takes an extent of epoch %d", before.r.Fence, e.Epoch)
		}
	}
	for _, e := range before.r.Extents {
		f := n.r.Find(e.Seq)
		if f == nil || f.Epoch < e.Epoch || f.Fence < e.Fence || e.Sealed && (!f.Sealed || f.Length != e.Length || f.Queued > f.Length) {
			w.wrong = fmt.Sprintf("L3: a replica of extent %d goes from %+v to %+v", e.Seq, e, f)
		}
	}
}

// check checks a state: what can be read, and what a recovery would find now.
func (x *explorer) check(w *world) {
	x.checkReads(w)
	if w.wrong != "" {
		return
	}
	b := appendList(x.buf[:0], &w.list)
	for i := range w.nodes {
		b = w.nodes[i].key(b)
	}
	for _, p := range w.acked {
		b = append(b, byte(p.pos), p.p)
	}
	x.buf = b
	h := hash(b)
	if _, ok := x.checked[h]; ok {
		return
	}
	x.checked[h] = struct{}{}
	x.checkRecovery(w)
}

// checkReads checks what the nodes serve. L4.
func (x *explorer) checkReads(w *world) {
	start := w.list.Start
	for _, e := range w.list.Extents {
		for i := range w.nodes {
			n := &w.nodes[i]
			r := n.r.Find(e.Seq)
			if r == nil {
				continue
			}
			if e.Length == Open {
				if r.Sealed {
					w.wrong = fmt.Sprintf("L4: node %d has cut extent %d, which is open", i, e.Seq)
				}
				continue
			}
			if r.Read(start, e.Length) != nil {
				continue
			}
			if got, want := n.content(e.Seq).b, w.extent(e.Seq, e.Length); got != want {
				w.wrong = fmt.Sprintf("L4: node %d serves extent %d as %q instead of %q", i, e.Seq, got, want)
			}
		}
		start += max(e.Length, 0)
	}
}

// extent returns the bytes of an extent of that length.
func (w *world) extent(seq uint64, length int64) string {
	var b []byte
	for _, p := range w.sent {
		if p.seq == seq && p.pos < length {
			b = append(b, p.p)
		}
	}
	return string(b)
}

// checkRecovery recovers the log from every set of reachable nodes. L1, L5.
func (x *explorer) checkRecovery(w *world) {
	for set := 1; set < 8; set++ {
		r := NewRecoverer(99, false)
		r.Loaded(w.list, w.gen)
		r.Saved(w.gen + 1)
		for i := range w.nodes {
			if set&(1<<i) != 0 && !r.Done() {
				var states []State
				for _, e := range w.nodes[i].r.Extents {
					states = append(states, e.State())
				}
				r.Fenced(nodeNames[i:i+1], states)
			}
		}
		r.Decide()
		if r.phase == phaseRecording {
			r.Saved(w.gen + 2)
		}
		if !r.Done() {
			continue
		}
		if why := w.misses(&r.list, set); why != "" {
			w.wrong = fmt.Sprintf("L1: recovery by nodes %03b finds %+v: %s", set, r.list, why)
			return
		}
	}
}

// misses describes what is wrong with the recovered log.
func (w *world) misses(l *List, set int) string {
	var log string
	for _, e := range l.Extents {
		want := w.extent(e.Seq, e.Length)
		if int64(len(want)) != e.Length {
			return fmt.Sprintf("extent %d is longer than what was sent", e.Seq)
		}
		whole := e.Length == 0
		for i := range w.nodes {
			c := w.nodes[i].content(e.Seq)
			if c == nil {
				continue
			}
			d := min(w.nodes[i].r.Find(e.Seq).Durable, e.Length)
			if int64(len(c.b)) < d || c.b[:d] != want[:d] {
				return fmt.Sprintf("node %d has %q of extent %d, which is %q", i, c.b, e.Seq, want)
			}
			whole = whole || d == e.Length
		}
		if !whole {
			return fmt.Sprintf("no node has all of extent %d", e.Seq)
		}
		log += want
	}
	for i := range len(log) {
		if slices.Contains([]byte(log[:i]), log[i]) {
			return fmt.Sprintf("payload %d is in it twice", log[i])
		}
	}
	for _, p := range w.acked {
		at := p.pos - l.Start
		if at < 0 || at >= int64(len(log)) || log[at] != p.p {
			return fmt.Sprintf("payload %d, acknowledged at %d, is not in %q", p.p, p.pos, log)
		}
	}
	return ""
}
