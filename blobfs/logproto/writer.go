package logproto

import (
	"slices"

	"github.com/steledb/stele/internal/invariant"
)

// EffectKind is the kind of an effect.
type EffectKind uint8

const (
	// EffectPlace: choose nodes for extent Seq and call Place.
	EffectPlace EffectKind = iota + 1
	// EffectOpen: open a replica of Seq on Node; then Opened or Failed.
	EffectOpen
	// EffectAppend: send positions Pos to End of extent Seq, which starts at Start, to
	// Node; then Durable or Failed. Those to one node keep their order.
	EffectAppend
	// EffectAcked: everything up to Pos is acknowledged.
	EffectAcked
	// EffectSave: replace the list, if it is at generation Gen, by List; then Saved or Unsaved.
	EffectSave
	// EffectLoad: read the list; then Loaded.
	EffectLoad
	// EffectFence: fence the log on Node; then Fenced.
	EffectFence
	// EffectCut: cut extent Seq on Node. The writer expects no answer.
	EffectCut
	// EffectDrop: drop Node's replica of extent Seq. The writer expects no answer.
	EffectDrop
	// EffectListFull: frames wait for an extent, and the list is full: call Withdraw.
	EffectListFull
	// EffectFailed: the state machine has failed, see its Err.
	EffectFailed
	// EffectDone: the log is closed.
	EffectDone
)

// Effect is an action that a state machine requests. Kind determines which fields are used.
type Effect struct {
	Kind       EffectKind
	Node       string
	Seq, Epoch uint64
	Start      int64
	Pos, End   int64
	Length     int64
	List       List
	Gen        uint64
}

// Writer is the state machine of an appender. It is not safe for concurrent use. Each method that
// reports an event may add effects, which Take returns.
type Writer struct {
	list List // as last saved
	gen  uint64
	// pending is the list being saved, nil if none is.
	pending *List

	acked  int64   // everything before this position is acknowledged
	end    int64   // position after the last submitted frame
	sent   int64   // position after all that was ever sent to any replica
	frames []int64 // ends of the frames between acked and end

	cur       *openExtent // the current extent; nil before the first is saved
	old       *openExtent // the extent before cur, whose length is not saved yet
	next      *openExtent // the registered standby
	preparing *openExtent // the extent being opened as the next standby
	seq       uint64      // last number given to an extent

	idle     bool // no nodes were available: Retry tries again
	released int64
	closing  bool
	closed   bool
	err      error
	effects  []Effect
}

// openExtent is an open extent of the writer.
type openExtent struct {
	seq      uint64
	start    int64
	sent     int64 // position after what was sent to its replicas
	capacity int64 // bytes of frames that fit into each of its replicas
	length   int64 // final length, or Open
	failed   bool
	slots    []slot
	opening  int // replicas that are not open yet
}

// slot is the writer's state of one replica.
type slot struct {
	node    string
	opened  bool
	durable int64 // bytes of frames
}

// NewWriter returns the writer of a log whose list is at generation gen in the lock service; 0 if
// it has none yet. All extents of the list must be sealed, and the caller must be its owner.
func NewWriter(list List, gen uint64) *Writer {
	n, end := list.Sealed()
	if n != len(list.Extents) || list.Closed {
		panic("BUG: writer of a log that is not recovered")
	}
	w := &Writer{list: list, gen: gen, acked: end, end: end, sent: end, released: list.Start}
	if n > 0 {
		w.seq = list.Extents[n-1].Seq
	}
	w.advance()
	return w
}

// Take returns the effects since the last call, in order. The slice is valid until the next event.
func (w *Writer) Take() []Effect {
	e := w.effects
	w.effects = w.effects[:0]
	return e
}

// Err returns why the writer has failed: a *FencedError; nil if it has not.
func (w *Writer) Err() error { return w.err }

// End returns the position after the submitted frames, Acked the one after the acknowledged frames.
func (w *Writer) End() int64   { return w.end }
func (w *Writer) Acked() int64 { return w.acked }

// List returns the list as last saved, and its generation.
func (w *Writer) List() (List, uint64) { return w.list, w.gen }

// Stuck reports whether frames submitted now wait until nodes are found for an extent, or extents
// are released from a full list.
func (w *Writer) Stuck() bool {
	return (w.idle || w.list.Full(w.Stranded())) && w.preparing == nil && (w.cur == nil || w.mustSwitch()) && (w.next == nil || w.next.failed)
}

// Stranded reports whether frames were sent that only another extent, which does not exist yet, can
// get acknowledged. Such frames cannot be withdrawn.
func (w *Writer) Stranded() bool {
	return w.sent > w.acked && (w.cur == nil || w.mustSwitch()) && (w.next == nil || w.next.failed)
}

// Halted reports whether frames submitted now wait until the list is saved.
func (w *Writer) Halted() bool { return w.pending != nil && (w.cur == nil || w.mustSwitch()) }

// Waiting reports whether submitted frames wait until an extent is open.
func (w *Writer) Waiting() bool {
	return len(w.frames) > 0 && w.preparing != nil && (w.cur == nil || w.mustSwitch()) && (w.next == nil || w.next.failed)
}

// Current returns the current extent and its nodes; 0 if there is none.
func (w *Writer) Current() (seq uint64, nodes []string) {
	if w.cur == nil {
		return 0, nil
	}
	return w.cur.seq, w.cur.nodes()
}

// Standby returns the standby and its nodes; 0 if none is usable.
func (w *Writer) Standby() (seq uint64, nodes []string) {
	if w.next == nil || w.next.failed {
		return 0, nil
	}
	return w.next.seq, w.next.nodes()
}

func (x *openExtent) nodes() (nodes []string) {
	for _, s := range x.slots {
		nodes = append(nodes, s.node)
	}
	return nodes
}

// Held returns the bytes of acknowledged frames in the current extent.
func (w *Writer) Held() int64 {
	if w.cur == nil {
		return 0
	}
	return w.acked - w.cur.start
}

// Opening reports whether the extent is still being opened.
func (w *Writer) Opening(seq uint64) bool {
	return w.err == nil && !w.closed && w.preparing != nil && w.preparing.seq == seq && !w.preparing.failed
}

// Submit adds a frame of n bytes to the log and returns its position.
func (w *Writer) Submit(n int64) int64 {
	pos := w.end
	w.end += n
	w.frames = append(w.frames, w.end)
	w.advance()
	return pos
}

// Withdraw removes the frames that were sent to no replica, and returns the new end.
func (w *Writer) Withdraw() int64 {
	for len(w.frames) > 0 && w.end > w.sent {
		w.frames = w.frames[:len(w.frames)-1]
		w.end = w.acked
		if n := len(w.frames); n > 0 {
			w.end = w.frames[n-1]
		}
	}
	return w.end
}

// Place answers EffectPlace with the nodes for the extent; none if no nodes are available.
func (w *Writer) Place(seq uint64, nodes []string) {
	x := w.preparing
	if x == nil || x.seq != seq || len(x.slots) > 0 {
		return
	}
	if len(nodes) == 0 {
		w.preparing, w.idle = nil, true
		return
	}
	for _, n := range nodes {
		x.slots = append(x.slots, slot{node: n})
		w.do(Effect{Kind: EffectOpen, Seq: seq, Node: n, Epoch: w.list.Epoch})
	}
	x.opening = len(nodes)
	w.advance()
}

// Retry requests nodes again if none were available.
func (w *Writer) Retry() {
	w.idle = false
	w.advance()
}

// Opened reports that a replica is open and has space for capacity bytes of frames.
func (w *Writer) Opened(seq uint64, node string, capacity int64) {
	x := w.preparing
	if x == nil || x.seq != seq {
		return
	}
	s := x.slot(node)
	if s == nil || s.opened {
		return
	}
	s.opened = true
	x.opening--
	x.capacity = min(x.capacity, capacity)
	w.advance()
}

// Durable reports that a replica has length durable bytes of an extent.
func (w *Writer) Durable(seq uint64, node string, length int64) {
	x := w.cur
	if x == nil || x.seq != seq {
		return
	}
	if s := x.slot(node); s != nil {
		s.durable = max(s.durable, min(length, x.sent-x.start))
	}
	w.advance()
}

// Failed reports that a replica failed or is too slow. If fenced is not 0, the replica reported
// that the log was taken over at that epoch.
func (w *Writer) Failed(seq uint64, node string, fenced uint64) {
	if fenced > w.list.Epoch {
		w.fail(&FencedError{Epoch: fenced})
		return
	}
	for _, x := range []*openExtent{w.cur, w.next, w.preparing} {
		if x != nil && x.seq == seq && x.slot(node) != nil {
			x.failed = true
		}
	}
	w.advance()
}

// Renew switches to the standby, if there is one, although the current extent is good.
func (w *Writer) Renew() {
	if w.cur != nil && w.next != nil && !w.next.failed {
		w.cur.failed = true
		w.advance()
	}
}

// Saved reports that the list was replaced and is at generation gen.
func (w *Writer) Saved(gen uint64) {
	if w.pending == nil {
		return
	}
	before := w.list
	invariant.Check(w.pending.Epoch == before.Epoch, "a writer of epoch %d saves a list of epoch %d", int64(before.Epoch), int64(w.pending.Epoch))
	invariant.Check(w.pending.Start >= before.Start, "a log that starts at %d is saved with start %d", before.Start, w.pending.Start)
	w.list, w.gen, w.pending = *w.pending, gen, nil
	w.settle(before)
	w.advance()
}

// Unsaved reports that the outcome of the save is unknown, or that it failed because the list was
// at another generation.
func (w *Writer) Unsaved() {
	if w.pending != nil {
		w.do(Effect{Kind: EffectLoad})
	}
}

// Loaded reports the list as read, after EffectLoad. gen is 0 if there is none.
func (w *Writer) Loaded(list List, gen uint64) {
	switch {
	case w.pending == nil:
	case gen == w.gen:
		w.do(Effect{Kind: EffectSave, List: *w.pending, Gen: w.gen})
	case gen != 0 && list.Equal(w.pending):
		w.Saved(gen)
	default:
		w.fail(&FencedError{Epoch: list.Epoch})
	}
}

// Release reports that data before pos will not be read again.
func (w *Writer) Release(pos int64) {
	w.released = max(w.released, min(pos, w.acked))
	w.advance()
}

// Close seals the log once everything is acknowledged.
func (w *Writer) Close() {
	w.closing = true
	w.advance()
}

func (w *Writer) do(e Effect) { w.effects = append(w.effects, e) }

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
		w.do(Effect{Kind: EffectFailed})
	}
}

func (x *openExtent) slot(node string) *slot {
	for i := range x.slots {
		if x.slots[i].node == node {
			return &x.slots[i]
		}
	}
	return nil
}

// advance takes all steps that are possible.
func (w *Writer) advance() {
	if w.err != nil || w.closed {
		return
	}
	w.ack()
	w.switchToStandby()
	w.send()
	w.make()
	w.save()
}

// ack acknowledges the frames that every replica has. It does nothing in an extent whose length was
// proposed, since the list may record it at any time.
func (w *Writer) ack() {
	x := w.cur
	if x == nil || (x.length != Open && !planted(flawAckAfterSeal)) {
		return
	}
	least := x.slots[0].durable
	for _, s := range x.slots[1:] {
		if planted(flawAckSome) {
			least = max(least, s.durable)
		}
		least = min(least, s.durable)
	}
	if planted(flawAckSome) {
		for _, s := range x.slots {
			least = max(least, s.durable)
		}
	}
	to, n := w.acked, 0
	for n < len(w.frames) && w.frames[n] <= x.start+least {
		to = w.frames[n]
		n++
	}
	if to > w.acked {
		x.checkAck(to)
		w.acked = to
		w.frames = slices.Delete(w.frames, 0, n)
		w.do(Effect{Kind: EffectAcked, Pos: to})
	}
}

// checkAck asserts that every replica of the extent has all bytes before position to, which were sent.
func (x *openExtent) checkAck(to int64) {
	invariant.Check(to <= x.sent, "position %d is acknowledged, and %d was sent", to, x.sent)
	for i := range x.slots {
		has := x.start + x.slots[i].durable
		invariant.Check(has >= to || planted(flawAckSome), "position %d is acknowledged, and a replica ends at %d", to, has)
	}
}

// checkSealed asserts that the extent, sealed with that length, has all that was acknowledged.
func (x *openExtent) checkSealed(length, acked int64) {
	end := x.start + length
	invariant.Check(end >= acked || planted(flawAckAfterSeal), "an extent is sealed at %d, and %d is acknowledged", end, acked)
}

// fits reports whether a frame that ends at position end fits the extent.
func (x *openExtent) fits(end int64) bool { return end-x.start <= x.capacity }

// mustSwitch reports whether the writer has to leave the current extent: it failed, or it is full
// and all its frames are acknowledged.
func (w *Writer) mustSwitch() bool {
	x := w.cur
	return x.failed || x.length != Open || (len(w.frames) > 0 && x.sent == w.acked && !x.fits(w.frames[0]))
}

// switchToStandby switches to the standby without saving the list. A recovery sees from the
// replicas that the standby was started, and at which position, and so the length of the extent
// before it.
func (w *Writer) switchToStandby() {
	next := w.next
	if next == nil || next.failed || w.old != nil || w.finishing() {
		return
	}
	if w.cur != nil {
		if !w.mustSwitch() {
			return
		}
		w.cur.length = w.acked - w.cur.start
		w.old = w.cur
	}
	next.start, next.sent = w.acked, w.acked
	if planted(flawKeepSent) && w.old != nil {
		next.start, next.sent = w.old.sent, w.old.sent
	}
	w.cur, w.next = next, nil
}

// finishing reports whether only closing the log is left to do.
func (w *Writer) finishing() bool { return w.closing && len(w.frames) == 0 }

// send sends the unsent frames that fit into the current extent.
func (w *Writer) send() {
	x := w.cur
	if x == nil || x.failed || x.length != Open {
		return
	}
	to := x.sent
	for _, end := range w.frames {
		if x.fits(end) {
			to = max(to, end)
		}
	}
	if to == x.sent {
		return
	}
	for _, s := range x.slots {
		w.do(Effect{Kind: EffectAppend, Seq: x.seq, Node: s.node, Epoch: w.list.Epoch, Start: x.start, Pos: x.sent, End: to})
	}
	x.sent = to
	w.sent = max(w.sent, to)
}

// make requests a new standby if there is none.
func (w *Writer) make() {
	if w.preparing != nil && w.preparing.failed && w.pending == nil {
		w.drop(w.preparing)
		w.preparing = nil
	}
	if w.preparing != nil || w.idle || w.finishing() || w.pending != nil || (w.next != nil && !w.next.failed) {
		return
	}
	if w.list.Full(w.Stranded()) {
		if w.end > w.sent && w.Stuck() {
			w.do(Effect{Kind: EffectListFull})
		}
		return
	}
	w.seq++
	w.preparing = &openExtent{seq: w.seq, length: Open, capacity: 1<<63 - 1}
	w.do(Effect{Kind: EffectPlace, Seq: w.seq})
}

func (w *Writer) drop(x *openExtent) {
	for _, s := range x.slots {
		w.do(Effect{Kind: EffectDrop, Seq: x.seq, Node: s.node})
	}
}

// save saves pending changes of the list: a new standby together with the length of the extent
// before the last switch, released extents, and the end.
func (w *Writer) save() {
	if w.pending != nil {
		return
	}
	ready := w.preparing != nil && !w.preparing.failed && len(w.preparing.slots) > 0 && w.preparing.opening == 0
	if !ready && !w.finishing() && !w.releasable() {
		return
	}
	l := w.desired(ready && !w.finishing())
	w.pending = &l
	w.do(Effect{Kind: EffectSave, List: l, Gen: w.gen})
	if planted(flawGoOnUnsaved) && (w.next == nil || w.next.failed) && ready {
		w.next, w.preparing = w.preparing, nil
		w.switchToStandby()
		w.send()
	}
}

func (w *Writer) releasable() bool {
	n, _ := w.list.Sealed()
	return n > 0 && w.list.Start+w.list.Extents[0].Length <= w.released
}

// desired returns the list to save.
func (w *Writer) desired(ready bool) List {
	l := w.list.Clone()
	n, _ := l.Sealed()
	l.Extents = l.Extents[:n]
	for len(l.Extents) > 0 && l.Start+l.Extents[0].Length <= w.released {
		l.Start += l.Extents[0].Length
		l.Extents = l.Extents[1:]
	}
	add := func(x *openExtent) {
		e := Extent{Seq: x.seq, Length: x.length}
		for _, s := range x.slots {
			e.Replicas = append(e.Replicas, s.node)
		}
		l.Extents = append(l.Extents, e)
	}
	if w.old != nil {
		add(w.old)
	}
	if x := w.cur; x != nil {
		if x.length == Open && (x.failed && ready || w.finishing()) {
			x.length = w.acked - x.start
		}
		add(x)
	}
	if x := w.next; x != nil && !x.failed && !w.finishing() {
		add(x)
	}
	if ready {
		add(w.preparing)
	}
	l.Closed = w.finishing()
	return l
}

// settle takes the steps that follow from a saved list.
func (w *Writer) settle(before List) {
	start := w.list.Start
	for _, x := range w.list.Extents {
		if x.Length == Open {
			break
		}
		if was := before.find(x.Seq); was == nil || was.Length == Open {
			for _, n := range x.Replicas {
				w.do(Effect{Kind: EffectCut, Seq: x.Seq, Node: n, Epoch: w.list.Epoch, Start: start, Length: x.Length})
			}
		}
		start += x.Length
	}
	for _, x := range before.Extents {
		if w.list.find(x.Seq) == nil {
			for _, n := range x.Replicas {
				w.do(Effect{Kind: EffectDrop, Seq: x.Seq, Node: n})
			}
		}
	}
	if w.old != nil && w.list.find(w.old.seq) != nil && w.list.find(w.old.seq).Length != Open {
		w.old = nil
	}
	if w.next != nil && w.list.find(w.next.seq) == nil {
		w.next = nil
	}
	if w.preparing != nil && w.list.find(w.preparing.seq) != nil {
		w.next, w.preparing = w.preparing, nil
	}
	if x := w.cur; x != nil && w.list.find(x.seq) != nil && w.list.find(x.seq).Length != Open {
		x.checkSealed(w.list.find(x.seq).Length, w.acked)
		w.cur = nil // switchToStandby makes it current
	}
	if w.list.Closed {
		w.closed = true
		if w.preparing != nil {
			w.drop(w.preparing)
		}
		w.do(Effect{Kind: EffectDone})
	}
}
