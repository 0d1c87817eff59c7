package logproto

import (
	"errors"
	"fmt"
	"slices"
)

// deliver delivers a message, for the last time unless it is kept.
func (x *explorer) deliver(w *world, m message, keep bool) {
	if !keep {
		i := slices.IndexFunc(w.net, func(o message) bool { return o.k == m.k })
		w.net = slices.Delete(w.net, i, i+1)
	}
	switch {
	case m.kind <= mCut:
		x.toNode(w, m)
	case m.kind <= mLoad:
		x.toLists(w, m)
	default:
		x.toActor(w, m)
	}
}

func (x *explorer) toNode(w *world, m message) {
	n := &w.nodes[m.node]
	before := n.clone()
	answer := message{actor: m.actor, node: m.node, op: m.op, seq: m.seq}
	switch m.kind {
	case mOpen:
		meta, fresh, err := n.r.NextOpen(OpenRequest{Seq: m.seq, Epoch: m.epoch})
		if err != nil {
			w.refuse(answer, err)
			return
		}
		if fresh {
			n.add(m.seq, meta)
		}
		answer.kind = mOpened
		w.send(answer)
	case mAppend:
		x.toExtent(w, n, m, answer)
	case mFence:
		f := FenceRequest{Epoch: m.epoch}
		if err := n.r.BeginFence(f); err != nil {
			var fenced *FencedError
			errors.As(err, &fenced)
			answer.kind, answer.epoch = mRefused, fenced.Epoch
			w.send(answer)
			return
		}
		for i, e := range n.r.Extents {
			if meta, need := e.NextFence(f); need {
				n.r.Commit(e, meta)
				n.data[i].b = n.data[i].b[:e.Queued]
			}
		}
		answer.kind, answer.states, answer.epoch = mFenced, n.r.States(f), m.epoch
		w.send(answer)
	case mCut:
		w.cuts--
		x.cutNode(w, n, m)
	}
	x.checkForward(w, before, n)
}

func (n *node) add(seq uint64, meta Meta) {
	n.r.Add(&ReplicaExtent{Seq: seq, Meta: meta})
	i := slices.IndexFunc(n.r.Extents, func(e *ReplicaExtent) bool { return e.Seq == seq })
	n.data = slices.Insert(n.data, i, content{seq: seq})
}

func (n *node) clone() *node {
	c := *n
	c.r.Extents = nil
	for _, e := range n.r.Extents {
		y := *e
		c.r.Extents = append(c.r.Extents, &y)
	}
	return &c
}

func (n *node) content(seq uint64) *content {
	for i := range n.data {
		if n.data[i].seq == seq {
			return &n.data[i]
		}
	}
	return nil
}

func (w *world) refuse(answer message, err error) {
	var fenced *FencedError
	if errors.As(err, &fenced) {
		answer.epoch = fenced.Epoch
	}
	answer.kind = mFailed
	w.send(answer)
}

func (x *explorer) toExtent(w *world, n *node, m, answer message) {
	e := n.r.Find(m.seq)
	if e == nil {
		w.refuse(answer, ErrNoExtent)
		return
	}
	again, err := e.Append(AppendRequest{Seq: m.seq, Epoch: m.epoch, Start: m.start, Pos: m.pos, End: m.end})
	switch {
	case errors.Is(err, ErrGap):
		return // as if it were lost
	case err != nil:
		w.refuse(answer, err)
	case again && e.Durable >= m.end-m.start:
		answer.kind, answer.length = mDurable, e.Durable
		w.send(answer)
	case !again:
		c := n.content(m.seq)
		c.b = c.b[:min(int64(len(c.b)), e.Queued-(m.end-m.pos))] + m.data
	}
}

// cutNode cuts a replica. One that is short is refilled from another that was cut.
func (x *explorer) cutNode(w *world, n *node, m message) {
	e := n.r.Find(m.seq)
	if e == nil {
		return
	}
	c := n.content(m.seq)
	cut := CutRequest{Seq: m.seq, Epoch: m.epoch, Start: m.start, Length: m.length}
	meta, need, err := e.NextCut(cut)
	var short *ShortError
	switch {
	case errors.As(err, &short):
		from := x.cutReplica(w, m)
		if from == nil {
			return
		}
		meta, at, need, err := e.NextRefill(cut)
		if err != nil || !need {
			return
		}
		b := from.content(m.seq).b
		c.b = c.b[:at] + b[at:m.length]
		n.r.Commit(e, meta)
	case errors.Is(err, ErrMismatch):
		w.wrong = fmt.Sprintf("node %d is cut to length %d of extent %d, then to %d", m.node, e.Length, m.seq, m.length)
	case need:
		n.r.Commit(e, meta)
		c.b = c.b[:min(int64(len(c.b)), m.length)]
	}
}

func (x *explorer) cutReplica(w *world, m message) *node {
	for i := range w.nodes {
		if e := w.nodes[i].r.Find(m.seq); e != nil && i != m.node && e.Read(m.start, m.length) == nil {
			return &w.nodes[i]
		}
	}
	return nil
}

func (x *explorer) toLists(w *world, m message) {
	answer := message{actor: m.actor, op: m.op}
	switch {
	case m.kind == mLoad:
		l := w.list
		answer.kind, answer.list, answer.gen = mLoaded, &l, w.gen
	case m.gen != w.gen:
		answer.kind = mUnsaved
	default:
		x.checkLists(w, m.list)
		w.list = *m.list
		w.gen++
		answer.kind, answer.gen = mSaved, w.gen
	}
	w.send(answer)
}

func (x *explorer) toActor(w *world, m message) {
	a := w.actor(m.actor)
	if m.kind >= mSaved && m.op != a.op {
		return // the actor has given up that request
	}
	name := nodeNames[m.node : m.node+1]
	switch m.kind {
	case mOpened:
		a.w.Opened(m.seq, name, 100)
	case mDurable:
		a.w.Durable(m.seq, name, m.length)
	case mFailed:
		a.w.Failed(m.seq, name, m.epoch)
	case mFenced:
		if m.epoch == a.r.Epoch() {
			a.r.Fenced(name, m.states)
		}
	case mRefused:
		a.r.Refused(m.epoch)
	case mSaved, mUnsaved, mLoaded:
		x.fromLists(a, m)
	}
	x.effects(w, m.actor)
}

func (x *explorer) fromLists(a *actor, m message) {
	a.op++
	switch {
	case m.kind == mSaved && a.w != nil:
		a.w.Saved(m.gen)
	case m.kind == mSaved:
		a.r.Saved(m.gen)
	case m.kind == mUnsaved && a.w != nil:
		a.w.Unsaved()
	case m.kind == mUnsaved:
		a.r.Unsaved()
	case a.w != nil:
		a.w.Loaded(*m.list, m.gen)
	default:
		a.r.Loaded(*m.list, m.gen)
	}
}
