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

// SpreadLogWriter appends to a log that is on several nodes. Its methods may be called from
// several goroutines; payloads are in the log in the order in which their Appends began. What is
// to be done it is told by a logproto.Writer.
type SpreadLogWriter struct {
	s  *Store
	id ID
	// server is whose log it is, and path where its list is.
	server, path string
	// vital means that it may take disks down to half of their reserve.
	vital bool

	ctx    context.Context // ends with Close and with the store
	cancel context.CancelFunc

	// turn is held while a payload's frames are put in; it has room for one.
	turn chan struct{}

	// mu guards what follows. Never held across I/O but the queueing of frames here, which is none.
	mu       sync.Mutex
	m        *logproto.Writer
	err      error // sticky
	frames   []*logFrame
	waiters  []*logWaiter  // by position
	bytes    int           // of frames that are not acknowledged
	room     chan struct{} // closed and made anew when bytes shrinks; nil if nobody waits
	salts    map[uint64]uint64
	reserved map[uint64]bool // extents that may take of the reserve, though the log is not vital
	seq      uint64          // of the extent that frames are encoded for
	links    map[linkKey]*logLink
	opening  map[linkKey]*openingReplica
	avoid    map[string]avoidance // nodes that failed and get no replicas
	slow     map[string]slowness  // nodes that get none if there are others
	placeErr error                // why there are no nodes, if there are none
	// withdrawn is why frames were taken back since the payload under way began, if any were: it cannot
	// go on then, even if there is room again.
	withdrawn error
	listErr   error         // why the list was not saved when it was last tried
	began     chan struct{} // closed when the first list was saved, or failed
	begun     bool
	sealed    chan struct{} // closed when the log is closed
	after     []func()      // what to do once mu is free
	pace      logPace
	retried   time.Duration // when nodes were last asked for again
	widened   time.Duration // when the writer last turned for more replicas
	rest      time.Duration // how long it then does not again
	stats     LogWriterStats

	weighed, shortSince time.Duration // when weigh last looked, and since when extents lack replicas; 0: none does

	present      uint64        // extent that is appended to
	presentSince time.Duration // when it was first seen to hold something

	weak atomic.Int64
}

// LogWriterStats counts what a writer did.
type LogWriterStats struct {
	Appends, Extents int64
	// Slow and Failed count replicas that the writer went on without.
	Slow, Failed int64
	Deadline     time.Duration // present one
}

// logFrame is a frame that is not acknowledged.
type logFrame struct {
	pos, end int64
	b        []byte
	salt     uint64
	shared   bool // a link may be sending it: b must stay as it is
	sent     time.Duration
}

// logWaiter is an Append.
type logWaiter struct {
	end  int64
	done chan error // room for one
}

// CreateSpreadLog begins a log of a server, durably, and opens it for appending. It waits, until ctx ends, for a node that
// answers and may have it. ErrLogExists; ErrDiskFull if no node has room; ErrFenced; what the lists return.
func (s *Store) CreateSpreadLog(ctx context.Context, server string, id ID) (*SpreadLogWriter, error) {
	return s.createSpreadLog(ctx, server, id, false)
}

// CreateVitalSpreadLog is CreateSpreadLog of one that may take disks down to half of their reserve, when there is no
// other room.
func (s *Store) CreateVitalSpreadLog(ctx context.Context, server string, id ID) (*SpreadLogWriter, error) {
	return s.createSpreadLog(ctx, server, id, true)
}

func (s *Store) createSpreadLog(ctx context.Context, server string, id ID, vital bool) (*SpreadLogWriter, error) {
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	w := &SpreadLogWriter{
		s: s, id: id, server: server, path: logPath(server, id), vital: vital,
		turn: make(chan struct{}, 1), began: make(chan struct{}), sealed: make(chan struct{}),
		salts: map[uint64]uint64{}, reserved: map[uint64]bool{}, links: map[linkKey]*logLink{}, opening: map[linkKey]*openingReplica{}, avoid: map[string]avoidance{},
		slow: map[string]slowness{},
	}
	_, gen, err := s.loadLogList(ctx, w.path)
	if err == nil && gen != 0 {
		err = ErrLogExists
	}
	if err != nil {
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	w.ctx, w.cancel = context.WithCancel(s.ctx)
	w.pace.init(s.cluster.Logs)
	w.event(func() { w.m = logproto.NewWriter(logproto.List{Epoch: 1, Owner: rand.Uint64()}, 0) })
	if !s.spawn(w.watch) {
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

// Stats returns what the writer did.
func (w *SpreadLogWriter) Stats() LogWriterStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.stats
	st.Deadline = w.pace.deadline()
	return st
}

// Append adds p to the log, keeps nothing of it, and returns the position after it once it is
// durable on every replica of its extent. Replicas that fail or are slow are replaced; Append then
// only takes longer.
//
// ErrDiskFull means that no node has room for the next extent, or the lists none for a change, and *TooLargeError that p is over
// LogPayloadMax: nothing is lost and the writer can be used on. ErrFenced, ErrSealed, ErrLogFailed and ErrClosed
// are sticky. After an error p may or may not be in the log when it is recovered, whole or not at all.
// When ctx ends Append returns, and p may still be appended.
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
		return 0, err // and nothing is appended
	}
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-w.ctx.Done():
		return 0, w.closedError()
	}
	waiter, err := w.submit(ctx, p)
	<-w.turn
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

// frameMax returns the longest frame that every extent takes.
func (w *SpreadLogWriter) frameMax() int64 {
	return min(local.LogFrameBytesMax, w.s.ExtentBytes()-local.LogPageBytes)
}

// submit puts a payload's frames in, as there is room in the window.
func (w *SpreadLogWriter) submit(ctx context.Context, p []byte) (*logWaiter, error) {
	parts, each := local.LogFrameParts(len(p), w.frameMax())
	waiter := &logWaiter{done: make(chan error, 1)}
	for i := range parts {
		size := int(local.LogFrameBytes(min(each, len(p)-i*each)))
		if err := w.awaitRoom(ctx, size); err != nil {
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

// refusal returns why nothing is taken. Called with mu held.
func (w *SpreadLogWriter) refusal() error {
	if w.err != nil {
		return w.err
	}
	return w.full()
}

// full returns that there is no room for what would have to be written first, if that is so: an
// extent, or the list. Called with mu held.
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

// awaitRoom waits until the window takes size bytes more.
func (w *SpreadLogWriter) awaitRoom(ctx context.Context, size int) error {
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
		if w.room == nil {
			w.room = make(chan struct{})
		}
		room := w.room
		w.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		case <-w.ctx.Done():
			return w.closedError()
		}
	}
}

// Release tells that nothing before pos will be read again. Extents that lie wholly before it are
// removed, soon and in the background.
func (w *SpreadLogWriter) Release(pos int64) {
	w.event(func() { w.m.Release(pos) })
}

// Seal ends the log: it takes no more, and its list says so. Errors are those of Append.
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

// Close lets go of the log and leaves it unsealed. To OpenSpreadLog that is the same as a crash.
func (w *SpreadLogWriter) Close() error {
	w.event(func() { w.stop(ErrClosed) })
	return nil
}

// stop makes err sticky and ends everything. Called with mu held.
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

// frameBuffers lends buffers for frames.
type frameBuffers struct{ pool sync.Pool }

// framePooledMax is the largest buffer that is kept.
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
