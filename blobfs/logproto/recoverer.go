package logproto

import (
	"slices"

	"github.com/steledb/stele/internal/invariant"
)

// phase is the progress of a recovery.
type phase uint8

const (
	phaseLoading phase = iota
	phaseClaiming
	phaseFencing
	phaseRecording
	phaseDone
	phaseFailed
)

// Recoverer is the state machine of a takeover: it raises the epoch, fences the replicas,
// determines the lengths of the open extents and records them in the list. It is not safe for
// concurrent use.
type Recoverer struct {
	owner uint64
	keep  bool // leave the log open
	phase phase
	list  List // as last read or saved
	gen   uint64
	// pending is the list being saved, nil if none is.
	pending *List
	answers []nodeAnswer
	err     error
	effects []Effect
}

// nodeAnswer is the answer of a fenced node.
type nodeAnswer struct {
	node   string
	states []State
}

// NewRecoverer returns a recovery of a log. owner is a random number. With keep the log stays open,
// and the caller continues as its writer.
func NewRecoverer(owner uint64, keep bool) *Recoverer {
	r := &Recoverer{owner: owner, keep: keep}
	r.do(Effect{Kind: EffectLoad})
	return r
}

// Take returns the effects since the last call, in order. The slice is valid until the next event.
func (r *Recoverer) Take() []Effect {
	e := r.effects
	r.effects = r.effects[:0]
	return e
}

// Err returns why the recovery failed: ErrLost, after which another may be tried, or ErrClosed if
// the log was to stay open but is closed.
func (r *Recoverer) Err() error { return r.err }

// Done reports whether the list has the lengths of all extents.
func (r *Recoverer) Done() bool { return r.phase == phaseDone }

// Epoch returns the current epoch of the log.
func (r *Recoverer) Epoch() uint64 { return r.list.Epoch }

// List returns the list, with its generation, once Done.
func (r *Recoverer) List() (List, uint64) { return r.list, r.gen }

func (r *Recoverer) do(e Effect) { r.effects = append(r.effects, e) }

func (r *Recoverer) fail(err error) {
	r.phase, r.err = phaseFailed, err
	r.do(Effect{Kind: EffectFailed})
}

func (r *Recoverer) save(l List) {
	r.pending = &l
	r.do(Effect{Kind: EffectSave, List: l, Gen: r.gen})
}

// Loaded reports the list as read.
func (r *Recoverer) Loaded(list List, gen uint64) {
	switch {
	case r.phase == phaseDone || r.phase == phaseFailed:
	case r.pending != nil && (list.Equal(r.pending) || planted(flawClaimSame) && list.Epoch == r.pending.Epoch):
		r.list = *r.pending
		r.Saved(gen)
	case list.Closed:
		r.list, r.gen, r.pending = list, gen, nil
		if r.keep {
			r.fail(ErrClosed)
			return
		}
		r.done()
	case r.phase == phaseLoading:
		r.list, r.gen = list, gen
		r.claim()
	case gen == r.gen && r.pending != nil:
		r.save(*r.pending)
	case r.pending != nil:
		r.fail(ErrLost)
	}
}

// claim raises the epoch. After that the old writer cannot change the list.
func (r *Recoverer) claim() {
	r.phase = phaseClaiming
	l := r.list.Clone()
	l.Epoch++
	l.Owner = r.owner
	if planted(flawRecoverUnclaimed) {
		r.list = l
		r.phase = phaseFencing
		r.fence()
		return
	}
	r.save(l)
}

// Saved reports that the list was replaced and is at generation gen.
func (r *Recoverer) Saved(gen uint64) {
	if r.pending == nil {
		return
	}
	r.list, r.gen, r.pending = *r.pending, gen, nil
	switch r.phase {
	case phaseClaiming:
		r.phase = phaseFencing
		if n, _ := r.list.Sealed(); n == len(r.list.Extents) && r.keep {
			r.done()
			return
		}
		r.fence()
	case phaseRecording:
		n, _ := r.list.Sealed()
		invariant.Check(n == len(r.list.Extents), "a recovery recorded %d of %d extents", int64(n), int64(len(r.list.Extents)))
		r.done()
	}
}

// Unsaved reports that the outcome of the save is unknown, or that it failed because the list was
// at another generation.
func (r *Recoverer) Unsaved() {
	if r.pending != nil {
		r.do(Effect{Kind: EffectLoad})
	}
}

// fence fences every replica of the open extents.
func (r *Recoverer) fence() {
	var nodes []string
	n, _ := r.list.Sealed()
	for _, x := range r.list.Extents[n:] {
		for _, node := range x.Replicas {
			if !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
				r.do(Effect{Kind: EffectFence, Node: node, Epoch: r.list.Epoch})
			}
		}
	}
}

// Fenced reports that a node has durably fenced the log at this epoch, and the states of its
// replicas. States of lost or corrupt replicas are left out.
func (r *Recoverer) Fenced(node string, states []State) {
	if r.phase != phaseFencing || slices.ContainsFunc(r.answers, func(h nodeAnswer) bool { return h.node == node }) {
		return
	}
	r.answers = append(r.answers, nodeAnswer{node, states})
}

// Refused reports that a node was fenced at a higher epoch.
func (r *Recoverer) Refused(epoch uint64) {
	if r.phase == phaseFencing && epoch > r.list.Epoch {
		r.fail(ErrLost)
	}
}

// Ready reports whether a replica of each open extent has answered, so that Decide may be called.
// One is enough, since every replica has all that was acknowledged.
func (r *Recoverer) Ready() bool {
	if r.phase != phaseFencing {
		return false
	}
	n, _ := r.list.Sealed()
	for i := n; i < len(r.list.Extents); i++ {
		if planted(flawIgnoreStandby) && i > n {
			break
		}
		if _, ok := r.found(i); !ok {
			return false
		}
	}
	return true
}

// Waiting reports whether any replica of an open extent has not answered.
func (r *Recoverer) Waiting() bool {
	n, _ := r.list.Sealed()
	for _, x := range r.list.Extents[n:] {
		for _, node := range x.Replicas {
			if !slices.ContainsFunc(r.answers, func(h nodeAnswer) bool { return h.node == node }) {
				return true
			}
		}
	}
	return false
}

// Sure reports whether, for each open extent, a replica that was not restarted has answered.
func (r *Recoverer) Sure() bool {
	n, _ := r.list.Sealed()
	for i := n; i < len(r.list.Extents); i++ {
		if s, ok := r.found(i); !ok || s.Scanned {
			return false
		}
	}
	return true
}

// found returns the state that determines the length of an extent; false if no replica has
// answered. Among replicas that were not restarted the shortest counts: its bytes are on all of
// them. Restarted replicas may have lost acknowledged bytes to corruption without noticing. If only
// such replicas answered, the longest counts.
func (r *Recoverer) found(i int) (best State, ok bool) {
	x := &r.list.Extents[i]
	for _, h := range r.answers {
		if !slices.Contains(x.Replicas, h.node) {
			continue
		}
		for _, s := range h.states {
			if s.Seq != x.Seq {
				continue
			}
			better := s.less(best)
			switch {
			case best.Scanned != s.Scanned:
				better = best.Scanned
			case s.Scanned:
				better = best.less(s)
			}
			if !ok || better {
				best, ok = s, true
			}
		}
	}
	return best, ok
}

func (s State) less(t State) bool {
	if s.Started != t.Started {
		return t.Started
	}
	return s.Length < t.Length
}

// Decide records the lengths of the open extents, once Ready.
//
// The length of an extent is the shortest among its fenced replicas, as found returns it. If the
// next extent was started on all of its replicas that answered, something in it may have been
// acknowledged, and its start determines the length instead. If all replicas of the next extent
// were restarted, one started replica is enough.
func (r *Recoverer) Decide() {
	if !r.Ready() {
		return
	}
	l := r.list.Clone()
	n, start := l.Sealed()
	over := false // the log ends before the extent
	for i := n; i < len(l.Extents); i++ {
		x := &l.Extents[i]
		s, _ := r.found(i)
		x.Length = s.Length
		if over || !s.Started {
			x.Length = 0
		}
		over = true
		if i+1 < len(l.Extents) {
			if next, ok := r.found(i + 1); ok && next.Started && !planted(flawIgnoreStandby) {
				x.Length, over = next.Start-start, false
			}
		}
		if x.Length < 0 {
			r.fail(ErrMismatch)
			return
		}
		start += x.Length
	}
	l.Closed = !r.keep
	r.phase = phaseRecording
	if planted(flawCutUnsaved) {
		r.cut(&l)
	}
	r.save(l)
}

// done cuts the replicas to the recorded lengths.
func (r *Recoverer) done() {
	r.phase = phaseDone
	r.cut(&r.list)
	r.do(Effect{Kind: EffectDone})
}

func (r *Recoverer) cut(l *List) {
	start := l.Start
	for _, x := range l.Extents {
		for _, n := range x.Replicas {
			r.do(Effect{Kind: EffectCut, Seq: x.Seq, Node: n, Epoch: l.Epoch, Start: start, Length: x.Length})
		}
		start += x.Length
	}
}
