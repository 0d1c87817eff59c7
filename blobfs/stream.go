package blobfs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

const (
	// streamsMax is the most streams that a node accepts at a time.
	streamsMax = 256
	// streamOpsMax and streamBytesMax bound the queue of one stream: twice the sender's window.
	streamOpsMax   = 4 * windowBytes / pieceBytes
	streamBytesMax = 2 * windowBytes
)

// streams are the streams that this node receives.
type streams struct {
	s *Store
	// mu guards the maps. Never held across I/O. Order: streams.mu, then stream.mu.
	mu       sync.Mutex
	byID     map[api.StreamID]*stream
	byExtent map[ExtentID]*stream
	closed   bool
}

func (t *streams) init(s *Store) {
	t.s = s
	t.byID = make(map[api.StreamID]*stream)
	t.byExtent = make(map[ExtentID]*stream)
}

// stream is the receiving side of an extent that another node writes. Its goroutine runs the queued
// operations one at a time.
type stream struct {
	s     *Store
	begin api.Begin

	// mu guards what follows. Never held across I/O.
	mu         sync.Mutex
	queue      []streamOp
	bytes      int // of the pieces in queue
	busy       bool
	lastQueued time.Duration // when the last operation was queued
	ended      bool
	wake       chan struct{} // capacity 1: something was queued, or the stream has ended
	before     *stream       // an older stream of the same extent, which has to end first
	gone       chan struct{} // closed when the goroutine has ended

	// These fields belong to the goroutine.
	w       *local.ExtentWriter
	err     error   // why the stream accepts nothing more
	next    *branch // nil: the chain ends here, or the nodes behind failed
	nextErr error   // why the nodes behind failed
}

// streamOp is one operation of a stream. refuse is called instead of do if the stream has ended.
type streamOp struct {
	bytes  int
	do     func(x *stream)
	refuse func(error)
}

// begin starts a stream and ends an older one of the same extent. It returns api.ErrBusy if there
// are streamsMax streams.
func (t *streams) begin(b api.Begin) (*stream, error) {
	x := &stream{s: t.s, begin: b, lastQueued: t.s.cluster.Clock.Now(), wake: make(chan struct{}, 1), gone: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, ErrClosed
	case len(t.byID) >= streamsMax:
		return nil, fmt.Errorf("%w: %d streams are open", api.ErrBusy, len(t.byID))
	}
	if x.before = t.byExtent[b.Extent]; x.before != nil {
		x.before.end()
	}
	if !t.s.work.Go(x.run) {
		return nil, ErrClosed
	}
	t.byID[b.Stream], t.byExtent[b.Extent] = x, x
	return x, nil
}

func (t *streams) find(id api.StreamID) (*stream, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.byID[id]; x != nil {
		return x, nil
	}
	return nil, api.ErrNoStream
}

// endOrphan ends the idle stream of an extent that was sealed elsewhere and waits until it is gone.
// A writer that lost this node could not abort the stream. A live writer sends to all its streams
// when it seals, so a stream without traffic for ReplyTimeout is an orphan.
func (t *streams) endOrphan(ctx context.Context, id ExtentID) bool {
	t.mu.Lock()
	x := t.byExtent[id]
	t.mu.Unlock()
	if x == nil || !x.endIdle(t.s.cluster.Clock.Now()-t.s.cluster.ReplyTimeout) {
		return false
	}
	select {
	case <-x.gone:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *streams) forget(x *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[x.begin.Stream] == x {
		delete(t.byID, x.begin.Stream)
	}
	if t.byExtent[x.begin.Extent] == x {
		delete(t.byExtent, x.begin.Extent)
	}
}

// close ends all streams. Store.Close waits for their goroutines.
func (t *streams) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, x := range t.byID {
		x.end()
	}
}

// put queues an operation, or calls its refuse.
func (x *stream) put(op streamOp) {
	x.mu.Lock()
	var err error
	switch {
	case x.ended:
		err = api.ErrNoStream
	case len(x.queue) >= streamOpsMax || x.bytes+op.bytes > streamBytesMax:
		err = fmt.Errorf("%w: the queue exceeds the window", api.ErrBusy)
	default:
		x.queue = append(x.queue, op)
		x.bytes += op.bytes
		x.lastQueued = x.s.cluster.Clock.Now()
	}
	x.mu.Unlock()
	if err != nil {
		op.refuse(err)
		return
	}
	x.signal()
}

func (x *stream) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// end makes the goroutine end after its current operation.
func (x *stream) end() {
	x.mu.Lock()
	x.ended = true
	x.mu.Unlock()
	x.signal()
}

// endIdle ends the stream if it is idle and nothing was queued after since.
func (x *stream) endIdle(since time.Duration) bool {
	x.mu.Lock()
	idle := !x.busy && len(x.queue) == 0 && x.lastQueued < since
	x.ended = x.ended || idle
	x.mu.Unlock()
	if idle {
		x.signal()
	}
	return idle
}

// take returns the next operation; nil if the stream has ended.
func (x *stream) take() func(*stream) {
	for {
		x.mu.Lock()
		x.busy = false
		if x.ended {
			x.mu.Unlock()
			return nil
		}
		if len(x.queue) > 0 {
			op := x.queue[0]
			x.queue[0] = streamOp{}
			x.queue = x.queue[1:]
			x.bytes -= op.bytes
			x.busy = true
			x.mu.Unlock()
			return op.do
		}
		x.mu.Unlock()
		select {
		case <-x.wake:
			continue
		default:
		}
		x.idle()
	}
}

// idle waits for an operation. If the nodes behind owe an answer for too long, they are dropped
// first: the writer, whose timeout is longer, then learns which node is silent.
func (x *stream) idle() {
	timeout, owing := x.s.cluster.StreamIdle, false
	if x.next != nil {
		var left time.Duration
		if left, owing = x.next.timeLeft(); owing {
			timeout = max(left, time.Millisecond)
		}
	}
	fired, stop := x.s.cluster.Clock.Timer(timeout)
	defer stop()
	select {
	case <-x.wake:
	case <-fired:
		if owing {
			x.next.expire()
			return
		}
		x.s.log.Warn("idle stream dropped", "extent", x.begin.Extent.String())
		x.end()
	}
}

func (x *stream) run() {
	defer close(x.gone)
	if x.before != nil {
		<-x.before.gone
		x.before = nil
	}
	for do := x.take(); do != nil; do = x.take() {
		do(x)
	}
	x.s.streams.forget(x)
	x.mu.Lock()
	unfinished := x.queue
	x.queue = nil
	x.mu.Unlock()
	for _, op := range unfinished {
		op.refuse(api.ErrNoStream)
	}
	if x.w != nil {
		x.w.Abort() // no effect if sealed
	}
}

// start is the first operation of a stream.
func (x *stream) start() error {
	x.w, x.err = x.s.createExtent(x.begin.Extent, x.begin.Offset, x.begin.HighPriority)
	if x.err != nil {
		return x.err // the writer connects to the nodes behind directly
	}
	if len(x.begin.Chain) > 0 {
		x.next, x.nextErr = x.s.newBranch(x.begin, x.begin.Chain)
		x.dropNext(x.nextErr)
	}
	return x.nextErr
}

// dropNext drops the nodes behind if err is not nil.
func (x *stream) dropNext(err error) {
	if err == nil {
		return
	}
	var r *api.ReplicaError
	if !errors.As(err, &r) {
		err = &api.ReplicaError{Node: x.begin.Chain[0], Err: err}
	}
	x.next, x.nextErr = nil, err
}

// pieceState joins the local write of a piece and its acknowledgement by the nodes behind.
type pieceState struct {
	left atomic.Int32
	mu   sync.Mutex
	err  error
	done func(error)
}

func (s *pieceState) halfDone(err error) {
	if err != nil {
		s.mu.Lock()
		if s.err == nil {
			s.err = err
		}
		s.mu.Unlock()
	}
	if s.left.Add(-1) == 0 {
		s.done(s.err)
	}
}

func (x *stream) piece(off int64, p []byte, done func(error)) {
	if x.err != nil {
		done(x.err)
		return
	}
	switch have := x.w.Length(); {
	case off+int64(len(p)) <= have:
		done(x.nextErr) // a duplicate
		return
	case off != have:
		done(fmt.Errorf("%w: piece at offset %d, want %d", api.ErrBadStream, off, have))
		return
	}
	state := &pieceState{done: done}
	state.left.Store(2)
	x.forward(p, off, state)
	if err := x.w.Write(p); err != nil {
		x.err = err
		state.halfDone(err)
		return
	}
	state.halfDone(nil)
}

// forward sends a piece to the nodes behind.
func (x *stream) forward(p []byte, off int64, state *pieceState) {
	chain := x.begin.Chain
	if x.next != nil {
		err := x.next.send(p, off, func(err error) {
			if err != nil {
				err = asReplica(chain[0], err)
			}
			state.halfDone(err)
		})
		if err == nil {
			return
		}
		x.dropNext(err)
	}
	state.halfDone(x.nextErr)
}

// asReplica wraps err in an api.ReplicaError that names node, unless it is one already.
func asReplica(node string, err error) error {
	var r *api.ReplicaError
	if errors.As(err, &r) {
		return err
	}
	return &api.ReplicaError{Node: node, Err: err}
}

// seal seals the local replica and those behind, and ends the stream.
func (x *stream) seal(s api.Seal, done func([]string, error)) {
	if x.next != nil {
		x.next.startSeal(s)
	}
	errLocal := x.sealLocal(s)
	var nodes []string
	err := x.nextErr
	if x.next != nil {
		nodes, err = x.next.awaitSeal()
		if err != nil {
			err = asReplica(x.begin.Chain[0], err)
		}
	}
	if errLocal == nil {
		nodes = append([]string{x.s.self}, nodes...)
	} else {
		err = &api.ReplicaError{Node: x.s.self, Err: errLocal}
	}
	x.end()
	done(nodes, err)
}

func (x *stream) sealLocal(s api.Seal) error {
	if x.err != nil {
		return x.err
	}
	if x.w.Length() != s.Length || x.w.CRC() != s.CRC {
		return fmt.Errorf("%w: got %d bytes with table checksum %08x, want %d with %08x", api.ErrBadStream, x.w.Length(), x.w.CRC(), s.Length, s.CRC)
	}
	_, err := x.w.Seal(context.Background(), s.Last, s.Holders)
	if err == nil {
		x.s.repairer.ListChanged(x.begin.Extent, s.Holders)
	}
	return err
}
