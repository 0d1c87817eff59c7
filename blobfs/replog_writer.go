package blobfs

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	crand "crypto/rand"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// SpreadLogWriter appends to a replicated log. It is safe for concurrent use; payloads are in the
// log in the order in which their Appends began. A logproto.Writer decides what it does.
type SpreadLogWriter struct {
	s  *Store
	id ID
	// server owns the log; path is the file of its list.
	server, path string
	// highPriority means that the log may use up to half of the disks' reserve.
	highPriority bool

	ctx    context.Context // canceled by Close and with the store
	cancel context.CancelFunc

	// appendTurn is held while a payload's frames are submitted; its capacity is one.
	appendTurn chan struct{}

	// mu guards what follows. Never held across I/O. Queueing frames for the local disk is no I/O.
	mu        sync.Mutex
	m         *logproto.Writer
	err       error // sticky
	frames    []*logFrame
	waiters   []*logWaiter  // by position
	bytes     int           // of unacknowledged frames
	space     chan struct{} // closed and replaced when bytes shrinks; nil if no append waits
	salts     map[uint64]uint64
	reserved  map[uint64]bool // extents that may use disk reserves although the log has no high priority
	seq       uint64          // of the extent that frames are encoded for
	links     map[linkKey]*logLink
	opening   map[linkKey]*openingReplica
	excluded  map[string]exclusion // nodes that failed and get no replicas
	slowNodes map[string]slowNode  // nodes that get none if there are enough others
	placeErr  error                // why no nodes were found
	// withdrawn is why frames of the payload being submitted were withdrawn, if any were. The
	// payload then fails even if there is space again.
	withdrawn  error
	listErr    error         // why the last save of the list failed
	began      chan struct{} // closed when the first list was saved, or failed
	begun      bool
	sealed     chan struct{} // closed when the log is closed
	after      []func()      // calls to make after mu is released
	timer      appendTimer
	retried    time.Duration // when nodes were last requested again
	lastWiden  time.Duration // when the writer last switched for more replicas
	widenPause time.Duration // how long it pauses before the next such switch
	stats      LogWriterStats

	weakChecked, shortSince time.Duration // when weigh last ran, and since when extents are under-replicated; 0: none is

	currentSeq   uint64        // the current extent
	currentSince time.Duration // when it was first seen to hold data

	weak atomic.Int64
}

// LogWriterStats counts the work of a writer.
type LogWriterStats struct {
	Appends, Extents int64
	// Slow and Failed count the replicas dropped because they were slow or failed.
	Slow, Failed int64
	Deadline     time.Duration // current append deadline
}

// logFrame is an unacknowledged frame.
type logFrame struct {
	pos, end int64
	b        []byte
	salt     uint64
	shared   bool // a link may be sending it: b must not change
	sent     time.Duration
}

// logWaiter is a waiting Append.
type logWaiter struct {
	end  int64
	done chan error // capacity 1
}

// CreateSpreadLog creates a log of a server durably and opens it for appending. It waits until ctx
// ends for a node that answers and may store it. It returns ErrLogExists, ErrDiskFull if all nodes
// are full, ErrFenced, or the error of the lists.
func (s *Store) CreateSpreadLog(ctx context.Context, server string, id ID) (*SpreadLogWriter, error) {
	return s.createSpreadLog(ctx, server, id, false)
}

// CreateHighPriorityLog is CreateSpreadLog for a high-priority log, which may use up to half of the
// disks' reserve if there is no other space.
func (s *Store) CreateHighPriorityLog(ctx context.Context, server string, id ID) (*SpreadLogWriter, error) {
	return s.createSpreadLog(ctx, server, id, true)
}

func (s *Store) createSpreadLog(ctx context.Context, server string, id ID, highPriority bool) (*SpreadLogWriter, error) {
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	w := &SpreadLogWriter{
		s: s, id: id, server: server, path: logPath(server, id), highPriority: highPriority,
		appendTurn: make(chan struct{}, 1), began: make(chan struct{}), sealed: make(chan struct{}),
		salts: map[uint64]uint64{}, reserved: map[uint64]bool{}, links: map[linkKey]*logLink{}, opening: map[linkKey]*openingReplica{}, excluded: map[string]exclusion{},
		slowNodes: map[string]slowNode{},
	}
	_, gen, err := s.loadLogList(ctx, w.path)
	if err == nil && gen != 0 {
		err = ErrLogExists
	}
	if err != nil {
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	w.ctx, w.cancel = context.WithCancel(s.ctx)
	w.timer.init(s.cluster.Logs)
	w.event(func() { w.m = logproto.NewWriter(logproto.List{Epoch: 1, Owner: rand.Uint64()}, 0) })
	if !s.work.Go(w.watch) {
		w.cancel()
		return nil, fmt.Errorf("create log %s: %w", id, ErrClosed)
	}
	select {
	case <-w.began:
		err = w.failure()
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.ctx.Done():
		err = w.closedError()
	}
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	s.openLogs.add(w)
	return w, nil
}

// ID returns the log's ID.
func (w *SpreadLogWriter) ID() ID { return w.id }

func (w *SpreadLogWriter) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Stats returns the writer's counters.
func (w *SpreadLogWriter) Stats() LogWriterStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.stats
	st.Deadline = w.timer.deadline()
	return st
}

// Append adds p to the log and returns the position after it, once p is durable on every replica of
// its extent. It does not retain p. Replicas that fail or are slow are replaced, which delays
// Append.
//
// ErrDiskFull means that no node has space for the next extent, or the lock service none for the
// list, and *TooLargeError that p is longer than LogPayloadMax; the writer stays usable after both.
// ErrFenced, ErrSealed, ErrLogFailed and ErrClosed are sticky. After an error a recovery may find p
// whole or not at all. If ctx ends Append returns, and p may still be appended.
func (w *SpreadLogWriter) Append(ctx context.Context, p []byte) (pos int64, err error) {
	pos, err = w.append(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("append to log %s: %w", w.id, err)
	}
	return pos, nil
}

func (w *SpreadLogWriter) append(ctx context.Context, p []byte) (int64, error) {
	if len(p) > LogPayloadMax {
		return 0, &TooLargeError{Limit: LogPayloadMax, Got: int64(len(p))}
	}
	if err := ctx.Err(); err != nil {
		return 0, err // nothing is appended
	}
	select {
	case w.appendTurn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-w.ctx.Done():
		return 0, w.closedError()
	}
	waiter, err := w.submit(ctx, p)
	<-w.appendTurn
	if err != nil {
		return 0, err
	}
	select {
	case err = <-waiter.done:
		return waiter.end, err
	default:
	}
	select {
	case err = <-waiter.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return waiter.end, err
}

func (w *SpreadLogWriter) closedError() error {
	if err := w.failure(); err != nil {
		return err
	}
	return ErrClosed
}

// frameMax returns the longest frame that fits into every extent.
func (w *SpreadLogWriter) frameMax() int64 {
	return min(local.LogFrameBytesMax, w.s.ExtentBytes()-local.LogPageBytes)
}

// submit submits a payload's frames as the window has space for them.
func (w *SpreadLogWriter) submit(ctx context.Context, p []byte) (*logWaiter, error) {
	parts, each := local.LogFrameParts(len(p), w.frameMax())
	waiter := &logWaiter{done: make(chan error, 1)}
	for i := range parts {
		size := int(local.LogFrameBytes(min(each, len(p)-i*each)))
		if err := w.awaitSpace(ctx, size); err != nil {
			return nil, err
		}
		var refused error
		w.event(func() {
			if i == 0 {
				w.withdrawn = nil
			}
			if refused = cmp.Or(w.withdrawn, w.refusal()); refused != nil {
				return
			}
			w.addFrame(p, i, parts, each, size)
			if i == parts-1 {
				waiter.end = w.m.End() + int64(size)
				w.waiters = append(w.waiters, waiter)
				w.stats.Appends++
			}
			w.m.Submit(int64(size))
		})
		if refused != nil {
			return nil, refused
		}
	}
	return waiter, nil
}

// refusal returns why the writer accepts no appends; nil if it does. Called with mu held.
func (w *SpreadLogWriter) refusal() error {
	if w.err != nil {
		return w.err
	}
	return w.full()
}

// full returns an ErrDiskFull if there is no space for the extent or the list that must be written
// first. Called with mu held.
func (w *SpreadLogWriter) full() error {
	switch {
	case w.m.Stuck() && errors.Is(w.placeErr, ErrDiskFull):
		return w.placeErr
	case w.m.Halted() && errors.Is(w.listErr, ErrDiskFull):
		return w.listErr
	}
	return nil
}

// addFrame encodes a frame. Called with mu held.
func (w *SpreadLogWriter) addFrame(p []byte, i, parts, each, size int) {
	pos := w.m.End()
	f := &logFrame{pos: pos, end: pos + int64(size), b: w.s.frames.get(size), salt: w.salts[w.seq], sent: w.s.cluster.Clock.Now()}
	local.EncodeLogFrame(f.b, p, i, parts, each, f.salt, pos, pos-w.m.Acked())
	w.frames = append(w.frames, f)
	w.bytes += size
}

// awaitSpace waits until the window has space for size bytes.
func (w *SpreadLogWriter) awaitSpace(ctx context.Context, size int) error {
	for {
		w.mu.Lock()
		if err := w.refusal(); err != nil {
			w.mu.Unlock()
			return err
		}
		if w.bytes == 0 || w.bytes+size <= w.s.cluster.Logs.WindowBytes {
			w.mu.Unlock()
			return nil
		}
		if w.space == nil {
			w.space = make(chan struct{})
		}
		space := w.space
		w.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			return ctx.Err()
		case <-w.ctx.Done():
			return w.closedError()
		}
	}
}

// Release reports that data before pos will not be read again. Extents that lie wholly before it
// are removed in the background.
func (w *SpreadLogWriter) Release(pos int64) {
	w.event(func() { w.m.Release(pos) })
}

// Seal ends the log and closes its list. It returns the errors of Append.
func (w *SpreadLogWriter) Seal(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("seal log %s: %w", w.id, err)
	}
	w.event(func() {
		if w.err == nil {
			w.m.Close()
		}
	})
	var err error
	select {
	case <-w.sealed:
		err = w.failure()
		if errors.Is(err, ErrSealed) {
			err = nil
		}
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.ctx.Done():
		if err = w.closedError(); errors.Is(err, ErrSealed) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("seal log %s: %w", w.id, err)
	}
	return nil
}

// Close ends the writer and leaves the log unsealed, as a crash would.
func (w *SpreadLogWriter) Close() error {
	w.event(func() { w.stop(ErrClosed) })
	return nil
}

// stop makes err sticky, fails all appends and ends the writer. Called with mu held.
func (w *SpreadLogWriter) stop(err error) {
	if w.err == nil {
		w.err = err
	}
	for _, x := range w.waiters {
		x.done <- w.err
	}
	w.waiters, w.frames = nil, nil
	for _, l := range w.links {
		l.stop()
	}
	w.begin()
	w.cancel()
}

// begin lets CreateSpreadLog return.
func (w *SpreadLogWriter) begin() {
	if !w.begun {
		w.begun = true
		close(w.began)
	}
}

func newSalt() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// frameBuffers is a pool of frame buffers.
type frameBuffers struct{ pool sync.Pool }

// framePooledMax is the capacity of the largest buffer that is pooled, in bytes.
const framePooledMax = 128 << 10

func (f *frameBuffers) get(size int) []byte {
	if b, ok := f.pool.Get().(*[]byte); ok {
		if cap(*b) >= size {
			return (*b)[:size]
		}
	}
	return make([]byte, size)
}

func (f *frameBuffers) put(b []byte) {
	if cap(b) <= framePooledMax {
		f.pool.Put(&b)
	}
}
