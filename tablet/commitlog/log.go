package commitlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
)

// Appender is the log blob to which batches are appended.
type Appender interface {
	// Append makes p durable and returns the position after it. After an error that is not
	// Retryable the log accepts no more appends; p may or may not be durable.
	Append(ctx context.Context, p []byte) (pos int64, err error)
}

// ErrClosed means that the log was closed or failed before the commit was written. The commit is in
// no log, and never will be.
var ErrClosed = errors.New("commit log closed")

// ErrBusy means that the filling batch stayed full for Config.CommitWait: the log blob makes no
// progress, or not enough. The commit is in no log, and never will be.
var ErrBusy = errors.New("commit log is busy: retry later")

// FailedError means that the append of the commit's batch failed. The commit may or may not
// survive, and the log accepts no more commits.
type FailedError struct{ Cause error }

func (e *FailedError) Error() string { return fmt.Sprintf("commit log failed: %v", e.Cause) }

// Unwrap returns the cause.
func (e *FailedError) Unwrap() error { return e.Cause }

// Stamper assigns the server timestamps of one tablet. It is called under the log's lock, in
// sequence order.
type Stamper interface {
	// Stamp returns a time in µs that is greater than all that it returned before or, in a table of
	// milliseconds, not less.
	Stamp() int64
}

// Commit is a mutation to be logged.
type Commit struct {
	Table  uint64
	Tablet uint64
	Ops    uint32  // entries in Body, at least one
	Body   []byte  // must not change until Done
	Stamp  Stamper // assigns Time if not nil

	// Done is called once, by the applier, when the record is durable or the log has failed. The
	// error is a *FailedError if the record may be in the log, ErrClosed or a Retryable error if it
	// is not. Done must not block: all later commits wait for it.
	Done func(c *Commit, err error)

	// AppendBegan and AppendEnded are when the batch with the record was appended to the log blob; zero if it was not.
	AppendBegan, AppendEnded time.Time
	// Slowest is the replica that the append waited for; nil if it is unknown.
	Slowest *string

	First uint64 // assigned by the log: the first sequence number
	Time  int64  // assigned by Stamp, µs
}

// Config is the configuration of a Log.
type Config struct {
	// BatchBytesMax is the batch size, in bytes, from which callers wait for the next batch. Zero
	// means 4 MiB: about 3 ms of a disk that writes 1.4 GB/s; larger batches do not improve group
	// commit. A larger commit has a batch of its own.
	BatchBytesMax int

	// CommitWait bounds how long Commit waits while the filling batch is full. Zero means 2 s: four
	// times the duration of a batch on a disk that writes 8 MB/s.
	CommitWait time.Duration

	// Retryable reports whether a failed append left the log unchanged, as on a full disk. Such a
	// batch fails alone, with the append's error. Nil means never.
	Retryable func(error) bool

	// Slowest, if not nil, returns the name of the replica that the last append waited for; nil if it is unknown. It is called after each append.
	Slowest func() *string

	// Extent, if not nil, returns the number of the log blob's extent that is appended to. Space is released in whole extents. It is
	// called after each append.
	Extent func() uint64
}

// Log is an open commit log. It is safe for concurrent use.
type Log struct {
	cfg      Config
	appender Appender
	began    time.Time
	ctx      context.Context // of appends; ends with CancelAppend
	abandon  context.CancelFunc

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		filling *batch
		next    uint64 // next sequence number
		err     error  // wraps ErrClosed; if set, no commit is accepted
		failed  bool   // an append failed: batches are no longer written
		closed  bool
		space   chan struct{} // closed when the filling batch is taken or the log ends; nil if no caller waits
		pending int           // commits that were accepted and have not completed
	}
	notEmpty chan struct{} // capacity 1, sent to under mu: filling is not empty

	written chan *batch // writer to applier; capacity 1
	between chan func() // to the applier, see Between
	done    chan struct{}
	free    chan *batch

	marks marks
	stats struct {
		batches, commits, bytes atomic.Int64
		appendNanos             atomic.Int64
		appending               atomic.Int64 // start of the append in progress, in ns after Log.began; 0 if none
	}
}

type batch struct {
	buf     []byte
	commits []*Commit
	err     error

	began, ended time.Time // of the append
	slowest      *string
}

// checkOrder asserts that the batch's records have ascending sequence numbers.
func (b *batch) checkOrder() {
	next := uint64(0)
	for _, c := range b.commits {
		invariant.Check(c.Ops > 0 && c.First >= next, "record %d of %d entries precedes entry %d", int64(c.First), int64(c.Ops), int64(next))
		next = c.First + uint64(c.Ops)
	}
}

// New starts a log whose first commit gets sequence number next.
func New(a Appender, next uint64, cfg Config) *Log {
	if cfg.BatchBytesMax == 0 {
		cfg.BatchBytesMax = 4 << 20
	}
	if cfg.CommitWait == 0 {
		cfg.CommitWait = 2 * time.Second
	}
	if cfg.Retryable == nil {
		cfg.Retryable = func(error) bool { return false }
	}
	if cfg.Extent == nil {
		cfg.Extent = func() uint64 { return 0 }
	}
	l := &Log{
		cfg: cfg, appender: a, began: time.Now(),
		notEmpty: make(chan struct{}, 1),
		written:  make(chan *batch, 1),
		between:  make(chan func()),
		done:     make(chan struct{}),
		free:     make(chan *batch, 3),
	}
	l.ctx, l.abandon = context.WithCancel(context.Background())
	l.mu.filling = &batch{}
	l.mu.next = next
	go l.write()
	go l.apply()
	return l
}

// Commit adds c to the log and returns; c.Done is called later. While the filling batch is full it
// waits for at most Config.CommitWait. The error is ErrClosed or ErrBusy; then Done is not called.
func (l *Log) Commit(c *Commit) error {
	l.mu.Lock()
	if l.mu.err == nil && !l.fits(c) {
		l.awaitSpace(c)
	}
	err := l.mu.err
	if err == nil && !l.fits(c) {
		err = ErrBusy
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	c.First = l.mu.next
	l.mu.next += uint64(c.Ops)
	if c.Stamp != nil {
		c.Time = c.Stamp.Stamp()
	}
	b := l.mu.filling
	r := Record{Table: c.Table, Tablet: c.Tablet, First: c.First, Ops: c.Ops, Time: c.Time, Body: c.Body}
	b.buf = appendRecord(b.buf, &r)
	b.commits = append(b.commits, c)
	l.mu.pending++
	if len(b.commits) == 1 {
		select {
		case l.notEmpty <- struct{}{}:
		default: // a signal is pending, and the writer will see this batch
		}
	}
	l.mu.Unlock()
	return nil
}

// fits reports whether c fits the filling batch. mu must be held.
func (l *Log) fits(c *Commit) bool {
	n := len(l.mu.filling.buf)
	return n == 0 || n+headerLen+len(c.Body) <= l.cfg.BatchBytesMax
}

// awaitSpace waits until c fits, the log has ended, or CommitWait has passed. mu must be held; it is
// released while waiting.
func (l *Log) awaitSpace(c *Commit) {
	timer := time.NewTimer(l.cfg.CommitWait)
	defer timer.Stop()
	for late := false; !late && l.mu.err == nil && !l.fits(c); {
		if l.mu.space == nil {
			l.mu.space = make(chan struct{})
		}
		space := l.mu.space
		l.mu.Unlock()
		select {
		case <-space:
		case <-timer.C:
			late = true
		}
		l.mu.Lock()
	}
}

// signalSpace wakes the callers that wait for space. mu must be held.
func (l *Log) signalSpace() {
	if l.mu.space != nil {
		close(l.mu.space)
		l.mu.space = nil
	}
}

// Idle reports whether all accepted commits have completed.
func (l *Log) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.pending == 0
}

// Busy reports whether a Commit would have to wait for space now.
func (l *Log) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.filling.buf) >= l.cfg.BatchBytesMax
}

// Between runs f on the applier, between two batches, and returns after f. No commit completes
// while f runs. It waits neither for pending commits nor for the log blob, which may be stalled.
// ErrClosed means that the log has ended: no commit will complete any more, and f was not called.
func (l *Log) Between(f func()) error {
	if planted.On(planted.ControlBehindLog) {
		l.awaitAppend()
	}
	ran := make(chan struct{})
	select {
	case l.between <- func() { f(); close(ran) }:
		<-ran
		return nil
	case <-l.done:
		return ErrClosed
	}
}

// awaitAppend waits until the append under way has ended, or the log: see planted.ControlBehindLog.
func (l *Log) awaitAppend() {
	for began := l.stats.appending.Load(); began != 0 && l.stats.appending.Load() == began; {
		select {
		case <-l.done:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// Next returns the sequence number of the next commit.
func (l *Log) Next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.next
}

// Reserve returns a sequence number that no commit gets. It is above those of all commits before, and below those of all later ones.
func (l *Log) Reserve() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.next++
	return l.mu.next - 1
}

// Raise makes the next commit's sequence number at least next.
func (l *Log) Raise(next uint64) {
	l.mu.Lock()
	l.mu.next = max(l.mu.next, next)
	l.mu.Unlock()
}

// Close completes the accepted commits and stops the log. It does not close the log blob.
func (l *Log) Close() {
	l.mu.Lock()
	if l.mu.err == nil {
		l.mu.err = ErrClosed
	}
	if !l.mu.closed {
		l.mu.closed = true
		close(l.notEmpty)
	}
	l.signalSpace()
	l.mu.Unlock()
	<-l.done
	l.abandon()
}

// CancelAppend cancels the append in progress, which may wait for lost replicas. Its commits and all
// later ones fail, though they may be in the log when it is recovered.
func (l *Log) CancelAppend() { l.abandon() }

func (l *Log) write() {
	defer close(l.written)
	for open := true; open; {
		_, open = <-l.notEmpty
		for {
			b := l.take()
			if b == nil {
				break
			}
			b.err = l.append(b)
			l.written <- b
		}
	}
}

// take swaps the filling batch for an empty one. It returns nil if the batch is empty.
func (l *Log) take() *batch {
	var fresh *batch
	select {
	case fresh = <-l.free:
	default:
		fresh = &batch{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.mu.filling
	if len(b.commits) == 0 {
		l.recycle(fresh)
		return nil
	}
	l.mu.filling = fresh
	l.signalSpace()
	return b
}

func (l *Log) append(b *batch) error {
	l.mu.Lock()
	err, failed := l.mu.err, l.mu.failed
	l.mu.Unlock()
	if failed {
		return err
	}
	if invariant.On {
		b.checkOrder()
	}
	start := time.Now()
	l.stats.appending.Store(int64(start.Sub(l.began)))
	pos, err := l.appender.Append(l.ctx, b.buf)
	l.stats.appending.Store(0)
	b.began, b.ended = start, time.Now()
	if l.cfg.Slowest != nil {
		b.slowest = l.cfg.Slowest()
	}
	l.stats.appendNanos.Add(int64(b.ended.Sub(start)))
	if err != nil {
		if l.cfg.Retryable(err) {
			return err
		}
		l.mu.Lock()
		l.mu.err, l.mu.failed = fmt.Errorf("%w after a failed append: %w", ErrClosed, err), true
		l.signalSpace()
		l.mu.Unlock()
		return &FailedError{Cause: err}
	}
	l.stats.batches.Add(1)
	l.stats.commits.Add(int64(len(b.commits)))
	l.stats.bytes.Add(int64(len(b.buf)))
	last := b.commits[len(b.commits)-1]
	l.marks.add(mark{pos: pos, next: last.First + uint64(last.Ops)}, l.cfg.Extent())
	return nil
}

func (l *Log) apply() {
	defer close(l.done)
	for {
		select {
		case f := <-l.between:
			f()
		case b, open := <-l.written:
			if !open {
				return
			}
			moment.Pass("commits are durable", "")
			for i, c := range b.commits {
				b.commits[i] = nil
				c.AppendBegan, c.AppendEnded, c.Slowest = b.began, b.ended, b.slowest
				c.Done(c, b.err)
			}
			l.mu.Lock()
			l.mu.pending -= len(b.commits)
			l.mu.Unlock()
			l.recycle(b)
		}
	}
}

func (l *Log) recycle(b *batch) {
	if cap(b.buf) > 2*l.cfg.BatchBytesMax { // of a single large commit
		b.buf = nil
	}
	b.buf, b.commits, b.err = b.buf[:0], b.commits[:0], nil
	b.began, b.ended = time.Time{}, time.Time{}
	select {
	case l.free <- b:
	default:
	}
}

// Covered returns a position of the log blob below which all records have sequence numbers below
// redo, the first one that recovery needs. The position is at most a batch and about 1 MiB too low, and
// in no earlier extent than it could be but for a batch.
// For a lower redo than before it returns the earlier result, and it discards what it would need for
// a better one.
func (l *Log) Covered(redo uint64) int64 { return l.marks.covered(redo) }

// Pending returns approximately how many bytes of the log blob have records needed for recovery
// from redo.
func (l *Log) Pending(redo uint64) int64 { return l.marks.end() - l.marks.covered(redo) }

// AppendAge returns how long the append in progress has taken; 0 if there is none.
func (l *Log) AppendAge() time.Duration {
	if since := l.stats.appending.Load(); since > 0 {
		return time.Since(l.began) - time.Duration(since)
	}
	return 0
}

// Stats are counters since the log was started.
type Stats struct {
	Batches, Commits, Bytes int64
	AppendTime              time.Duration // sum over all appends
}

// Stats returns the log's counters.
func (l *Log) Stats() Stats {
	return Stats{
		Batches: l.stats.batches.Load(), Commits: l.stats.commits.Load(), Bytes: l.stats.bytes.Load(),
		AppendTime: time.Duration(l.stats.appendNanos.Load()),
	}
}
