package replog

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	crand "crypto/rand"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/moment"
)

// Writer appends to a replicated log. It is safe for concurrent use; payloads are in the
// log in the order in which their Appends began. A logproto.Writer decides what it does.
type Writer struct {
	logs *Logs
	id   local.ID
	// server owns the log; path is the file of its list.
	server, path string

	ctx    context.Context // canceled by Close and with the store
	cancel context.CancelFunc

	// appendTurn is held while a payload's frames are submitted; its capacity is one.
	appendTurn chan struct{}

	// mu guards what follows. Never held across I/O. Queueing frames for the local disk is no I/O.
	mu        sync.Mutex
	m         *logproto.Writer
	err       error // sticky
	window    window
	salts     map[uint64]uint64 // of the extents that have nodes and no length in the list
	seq       uint64            // of the extent that frames are encoded for
	links     links
	opening   openings
	placement *placement
	// withdrawn is why frames of the payload being submitted were withdrawn, if any were. The
	// payload then fails even if there is space again.
	withdrawn error
	listErr   error         // why the last save of the list failed
	began     chan struct{} // closed when the first list was saved, or failed
	begun     bool
	sealed    chan struct{} // closed when the log is closed
	after     []func()      // calls to make after mu is released
	timer     appendTimer
	retried   time.Duration // when nodes were last requested again
	switcher  switcher
	checker   checker
	stats     WriterStats

	weak weakness
	slowness
	space
}

// WriterStats counts the work of a writer.
type WriterStats struct {
	Appends, Extents int64
	// Slow and Failed count the replicas dropped because they were slow or failed.
	Slow, Failed int64
	Deadline     time.Duration // current append deadline
}

// Create creates a log of a server durably and opens it for appending. It waits until ctx ends for
// a node that answers and may store it. It returns local.ErrLogExists, local.ErrDiskFull if all
// nodes are full, local.ErrFenced, or the error of the lists.
func (logs *Logs) Create(ctx context.Context, server string, id local.ID) (*Writer, error) {
	return logs.create(ctx, server, id, false)
}

// CreateHighPriority is Create for a high-priority log, which may use up to half of the
// disks' reserve if there is no other space.
func (logs *Logs) CreateHighPriority(ctx context.Context, server string, id local.ID) (*Writer, error) {
	return logs.create(ctx, server, id, true)
}

func (logs *Logs) create(ctx context.Context, server string, id local.ID, highPriority bool) (*Writer, error) {
	if err := logs.usable(ctx); err != nil {
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	w := &Writer{
		logs: logs, id: id, server: server, path: listPath(server, id),
		appendTurn: make(chan struct{}, 1), began: make(chan struct{}), sealed: make(chan struct{}),
		salts: map[uint64]uint64{}, links: links{}, opening: openings{},
	}
	w.placement = newPlacement(logs, id, highPriority, w.opening)
	w.switcher.w, w.checker.w, w.slowness.writer, w.space.writer = w, w, w, w
	_, gen, err := logs.load(ctx, w.path)
	if err == nil && gen != 0 {
		err = local.ErrLogExists
	}
	if err != nil {
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	w.ctx, w.cancel = context.WithCancel(logs.ctx)
	w.timer.init(logs.cfg)
	w.event(func() { w.m = logproto.NewWriter(logproto.List{Epoch: 1, Owner: rand.Uint64()}, 0) })
	if !logs.deps.Work.Go(w.watch) {
		w.cancel()
		return nil, fmt.Errorf("create log %s: %w", id, local.ErrClosed)
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
	moment.Pass("a log is created", "")
	logs.writers.add(w)
	return w, nil
}

// ID returns the log's ID.
func (w *Writer) ID() local.ID { return w.id }

func (w *Writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Stats returns the writer's counters.
func (w *Writer) Stats() WriterStats {
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
// local.ErrDiskFull means that no node has space for the next extent, or the lock service none for the
// list, or the list none for another extent, and *local.TooLargeError that p is longer than local.LogPayloadMax; the writer stays usable after both.
// local.ErrFenced, local.ErrSealed, local.ErrLogFailed and local.ErrClosed are sticky. After an error a recovery may find p
// whole or not at all. If ctx ends Append returns, and p may still be appended.
func (w *Writer) Append(ctx context.Context, p []byte) (pos int64, err error) {
	pos, err = w.append(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("append to log %s: %w", w.id, err)
	}
	return pos, nil
}

func (w *Writer) append(ctx context.Context, p []byte) (int64, error) {
	if len(p) > local.LogPayloadMax {
		return 0, &local.TooLargeError{Limit: local.LogPayloadMax, Got: int64(len(p))}
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

func (w *Writer) closedError() error {
	if err := w.failure(); err != nil {
		return err
	}
	return local.ErrClosed
}

// frameMax returns the longest frame that fits into every extent.
func (w *Writer) frameMax() int64 {
	return min(local.LogFrameBytesMax, w.logs.deps.Disks.ExtentBytes()-local.LogPageBytes)
}

// submit submits a payload's frames as the window has space for them.
func (w *Writer) submit(ctx context.Context, p []byte) (*waitingAppend, error) {
	parts, each := local.LogFrameParts(len(p), w.frameMax())
	waiter := &waitingAppend{done: make(chan error, 1)}
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
				w.window.waiters = append(w.window.waiters, waiter)
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
func (w *Writer) refusal() error {
	if w.err != nil {
		return w.err
	}
	return w.full()
}

// full returns a local.ErrDiskFull if there is no space for the extent or the list that must be
// written first, or none in the list. Called with mu held.
func (w *Writer) full() error {
	switch {
	case w.m.Stuck() && w.listFull():
		return listFullError()
	case w.m.Stuck() && errors.Is(w.placement.lastErr(), local.ErrDiskFull):
		return w.placement.lastErr()
	case w.m.Halted() && errors.Is(w.listErr, local.ErrDiskFull):
		return w.listErr
	}
	return nil
}

// addFrame encodes a frame. Called with mu held.
func (w *Writer) addFrame(p []byte, i, parts, each, size int) {
	pos := w.m.End()
	f := &frame{pos: pos, end: pos + int64(size), b: w.logs.frames.get(size), salt: w.salts[w.seq], sent: w.now()}
	local.EncodeLogFrame(f.b, p, i, parts, each, f.salt, pos, pos-w.m.Acked())
	w.window.add(f)
}

// awaitSpace waits until the window has space for size bytes.
func (w *Writer) awaitSpace(ctx context.Context, size int) error {
	for {
		w.mu.Lock()
		if err := w.refusal(); err != nil {
			w.mu.Unlock()
			return err
		}
		space := w.window.awaitSpace(size, w.logs.cfg.WindowBytes)
		w.mu.Unlock()
		if space == nil {
			return nil
		}
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
func (w *Writer) Release(pos int64) {
	w.event(func() { w.m.Release(pos) })
}

// Seal ends the log and closes its list. It returns the errors of Append.
func (w *Writer) Seal(ctx context.Context) error {
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
		if errors.Is(err, local.ErrSealed) {
			err = nil
		}
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.ctx.Done():
		if err = w.closedError(); errors.Is(err, local.ErrSealed) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("seal log %s: %w", w.id, err)
	}
	return nil
}

// Close ends the writer and leaves the log unsealed, as a crash would.
func (w *Writer) Close() error {
	w.event(func() { w.stop(local.ErrClosed) })
	return nil
}

// stop makes err sticky, fails all appends and ends the writer. Called with mu held.
func (w *Writer) stop(err error) {
	if w.err == nil {
		w.err = err
	}
	w.window.fail(w.err)
	for _, l := range w.links {
		l.stop()
	}
	w.begin()
	w.cancel()
}

// begin lets Create return.
func (w *Writer) begin() {
	if !w.begun {
		w.begun = true
		close(w.began)
	}
}

// now returns the time on the clock of the logs.
func (w *Writer) now() time.Duration { return w.logs.now() }

func newSalt() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}
