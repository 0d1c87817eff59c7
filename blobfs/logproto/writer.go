package logproto

import "slices"

// EffectKind says what is to be done.
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
	// EffectCut: cut extent Seq on Node. The writer wants no answer.
	EffectCut
	// EffectDrop: Node's replica of extent Seq is of no use any more. No answer.
	EffectDrop
	// EffectFailed: the machine is of no more use, see its Err.
	EffectFailed
	// EffectDone: the log is closed.
	EffectDone
)

// Effect is something that a machine wants done. Which fields count depends on Kind.
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

// Writer is the machine of who appends to a log. It is not safe for concurrent use. Each of its
// methods that takes an event may leave effects, which Take returns.
type Writer struct {
	list List // as last saved
	gen  uint64
	// pending is the list that is being saved, nil if none is.
	pending *List

	acked  int64   // everything before is acknowledged
	end    int64   // after what was submitted last
	sent   int64   // after what any replica was ever sent
	frames []int64 // ends of the frames between acked and end

	cur  *openExtent // appended to; nil before the first is saved
	old  *openExtent // the one before cur, whose length is not saved yet
	next *openExtent // the standby, registered
	made *openExtent // being opened, to become the standby
	seq  uint64      // last one given to an extent

	idle     bool // no nodes were to be had: Retry tries again
	released int64
	closing  bool
	closed   bool
	err      error
	effects  []Effect
}

// openExtent is an extent that the writer has open.
type openExtent struct {
	seq    uint64
	start  int64
	sent   int64 // position after what its replicas were sent
	room   int64 // bytes of frames that each of its replicas can take
	length int64 // for good, or Open
	failed bool
	slots  []slot
	wait   int // replicas that are not open yet
}

// slot is what the writer knows of one replica.
type slot struct {
	node    string
	opened  bool
	durable int64 // bytes of frames
}

// NewWriter returns the writer of a log of which the lock service has the list at generation
// gen; 0 if it has none yet. All extents of the list are sealed, and its owner is the caller.
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

// Take returns what is to be done, in order, since the last call. The slice is valid
// until the next event.
func (w *Writer) Take() []Effect {
	e := w.effects
	w.effects = w.effects[:0]
	return e
}

// Err returns why the writer is of no more use: a *FencedError, ErrListFull or
// ErrMismatch; nil while it is.
func (w *Writer) Err() error { return w.err }

// End returns the position after what was submitted, Acked that after what is acknowledged.
func (w *Writer) End() int64   { return w.end }
func (w *Writer) Acked() int64 { return w.acked }

// List returns the list as it was last saved, and its generation.
func (w *Writer) List() (List, uint64) { return w.list, w.gen }

// Stuck tells whether what is submitted now waits until an extent is found.
func (w *Writer) Stuck() bool {
	return w.idle && (w.cur == nil || w.mustTurn()) && (w.next == nil || w.next.failed)
}

// Stranded reports whether replicas were sent something that nothing but another extent, which is not there yet, can have
// acknowledged: it cannot be taken back.
func (w *Writer) Stranded() bool {
	return w.sent > w.acked && (w.cur == nil || w.mustTurn()) && (w.next == nil || w.next.failed)
}

// Halted tells whether what is submitted now waits until the list is saved.
func (w *Writer) Halted() bool { return w.pending != nil && (w.cur == nil || w.mustTurn()) }

// Waiting tells whether what was submitted waits until an extent is open.
func (w *Writer) Waiting() bool {
	return len(w.frames) > 0 && w.made != nil && (w.cur == nil || w.mustTurn()) && (w.next == nil || w.next.failed)
}

// Current returns the extent that is appended to, and its nodes; 0 if there is none.
func (w *Writer) Current() (seq uint64, nodes []string) {
	if w.cur == nil {
		return 0, nil
	}
	return w.cur.seq, w.cur.nodes()
}

// Standby returns the standby and its nodes; 0 if there is none that is usable.
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

// Held returns the bytes of frames that are acknowledged in the extent that is appended to.
func (w *Writer) Held() int64 {
	if w.cur == nil {
		return 0
	}
	return w.acked - w.cur.start
}

// Opening tells whether the extent is being opened still.
func (w *Writer) Opening(seq uint64) bool {
	return w.err == nil && !w.closed && w.made != nil && w.made.seq == seq && !w.made.failed
}

// Submit adds a frame of n bytes to the log and returns its position.
func (w *Writer) Submit(n int64) int64 {
	pos := w.end
	w.end += n
	w.frames = append(w.frames, w.end)
	w.advance()
	return pos
}

// Withdraw takes back the frames that no replica was sent, and returns the new end.
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

// Place gives the nodes for the extent that was asked for; none if there are none.
func (w *Writer) Place(seq uint64, nodes []string) {
	x := w.made
	if x == nil || x.seq != seq || len(x.slots) > 0 {
		return
	}
	if len(nodes) == 0 {
		w.made, w.idle = nil, true
		return
	}
	for _, n := range nodes {
		x.slots = append(x.slots, slot{node: n})
		w.do(Effect{Kind: EffectOpen, Seq: seq, Node: n, Epoch: w.list.Epoch})
	}
	x.wait = len(nodes)
	w.advance()
}

// Retry asks for nodes again, if there were none.
func (w *Writer) Retry() {
	w.idle = false
	w.advance()
}

// Opened notes that a replica is open and takes that many bytes of frames.
func (w *Writer) Opened(seq uint64, node string, room int64) {
	x := w.made
	if x == nil || x.seq != seq {
		return
	}
	s := x.slot(node)
	if s == nil || s.opened {
		return
	}
	s.opened = true
	x.wait--
	x.room = min(x.room, room)
	w.advance()
}

// Durable notes that a replica has that many bytes of an extent on disk.
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

// Failed notes that a replica does not do as it is told, or not in time. If fenced is
// not 0, it says that the log was taken over at that epoch.
func (w *Writer) Failed(seq uint64, node string, fenced uint64) {
	if fenced > w.list.Epoch {
		w.fail(&FencedError{Epoch: fenced})
		return
	}
	for _, x := range []*openExtent{w.cur, w.next, w.made} {
		if x != nil && x.seq == seq && x.slot(node) != nil {
			x.failed = true
		}
	}
	w.advance()
}

// Renew has the writer go on in its standby, if there is one. What it appended to is as good as it was.
func (w *Writer) Renew() {
	if w.cur != nil && w.next != nil && !w.next.failed {
		w.cur.failed = true
		w.advance()
	}
}

// Saved notes that the list was replaced and is at generation gen.
func (w *Writer) Saved(gen uint64) {
	if w.pending == nil {
		return
	}
	before := w.list
	w.list, w.gen, w.pending = *w.pending, gen, nil
	w.settle(before)
	w.advance()
}

// Unsaved notes that it is not known whether the list was replaced, or that it was
// not, for it was at another generation.
func (w *Writer) Unsaved() {
	if w.pending != nil {
		w.do(Effect{Kind: EffectLoad})
	}
}

// Loaded gives the list as it is, after EffectLoad. Gen is 0 if there is none.
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

// Release notes that nothing before pos will be read again.
func (w *Writer) Release(pos int64) {
	w.released = max(w.released, min(pos, w.acked))
	w.advance()
}

// Close seals the log, once everything is acknowledged.
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

// advance does what can be done.
func (w *Writer) advance() {
	if w.err != nil || w.closed {
		return
	}
	w.ack()
	w.turn()
	w.send()
	w.make()
	w.save()
}

// ack acknowledges what every replica has. Not in an extent whose length was proposed: the
// list may get it at any time.
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
		w.acked = to
		w.frames = slices.Delete(w.frames, 0, n)
		w.do(Effect{Kind: EffectAcked, Pos: to})
	}
}

// fits tells whether a frame that ends at position end fits the extent.
func (x *openExtent) fits(end int64) bool { return end-x.start <= x.room }

// mustTurn tells whether the writer cannot go on in its extent: it failed, or it is full
// and all that is in it is acknowledged.
func (w *Writer) mustTurn() bool {
	x := w.cur
	return x.failed || x.length != Open || (len(w.frames) > 0 && x.sent == w.acked && !x.fits(w.frames[0]))
}

// turn goes on in the standby, without asking anybody: who recovers the log
// finds that the standby was started, and where, and so how long the extent before it is.
func (w *Writer) turn() {
	next := w.next
	if next == nil || next.failed || w.old != nil || w.finishing() {
		return
	}
	if w.cur != nil {
		if !w.mustTurn() {
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

// finishing tells that nothing is left to do but to close the log.
func (w *Writer) finishing() bool { return w.closing && len(w.frames) == 0 }

// send sends what the extent can take and was not sent yet.
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

// make sees to it that there is a standby.
func (w *Writer) make() {
	if w.made != nil && w.made.failed && w.pending == nil {
		w.drop(w.made)
		w.made = nil
	}
	if w.made != nil || w.idle || w.finishing() || w.pending != nil || (w.next != nil && !w.next.failed) {
		return
	}
	if len(w.list.Extents)+openMax >= ExtentsMax {
		w.fail(ErrListFull)
		return
	}
	w.seq++
	w.made = &openExtent{seq: w.seq, length: Open, room: 1<<63 - 1}
	w.do(Effect{Kind: EffectPlace, Seq: w.seq})
}

func (w *Writer) drop(x *openExtent) {
	for _, s := range x.slots {
		w.do(Effect{Kind: EffectDrop, Seq: x.seq, Node: s.node})
	}
}

// save saves what the list does not say yet: a new standby and with it the length of
// the extent before the last turn; what was released; the end.
func (w *Writer) save() {
	if w.pending != nil {
		return
	}
	ready := w.made != nil && !w.made.failed && len(w.made.slots) > 0 && w.made.wait == 0
	if !ready && !w.finishing() && !w.releasable() {
		return
	}
	l := w.desired(ready && !w.finishing())
	w.pending = &l
	w.do(Effect{Kind: EffectSave, List: l, Gen: w.gen})
	if planted(flawGoOnUnsaved) && (w.next == nil || w.next.failed) && ready {
		w.next, w.made = w.made, nil
		w.turn()
		w.send()
	}
}

func (w *Writer) releasable() bool {
	n, _ := w.list.Sealed()
	return n > 0 && w.list.Start+w.list.Extents[0].Length <= w.released
}

// desired returns the list that is to be saved.
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
		add(w.made)
	}
	l.Closed = w.finishing()
	return l
}

// settle does what the list that was saved allows.
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
	if w.made != nil && w.list.find(w.made.seq) != nil {
		w.next, w.made = w.made, nil
	}
	if x := w.cur; x != nil && w.list.find(x.seq) != nil && w.list.find(x.seq).Length != Open {
		w.cur = nil // turn takes the standby
	}
	if w.list.Closed {
		w.closed = true
		if w.made != nil {
			w.drop(w.made)
		}
		w.do(Effect{Kind: EffectDone})
	}
}

func (l *List) find(seq uint64) *Extent {
	for i := range l.Extents {
		if l.Extents[i].Seq == seq {
			return &l.Extents[i]
		}
	}
	return nil
}
