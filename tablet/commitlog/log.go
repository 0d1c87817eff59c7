package commitlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Appender is the log blob that batches go to.
type Appender interface {
	// Append makes p durable and returns the position after it. After an error
	// that is not Retryable the log takes no more; p may or may not be durable.
	Append(ctx context.Context, p []byte) (pos int64, err error)
}

// ErrClosed means that the log was closed, or had failed, before the commit was written.
// It is in no log, and never will be.
var ErrClosed = errors.New("commit log closed")

// ErrBusy means that the filling batch stayed full for as long as the caller was ready to wait: the
// log blob makes no progress, or not enough. The commit is in no log, and never will be.
var ErrBusy = errors.New("commit log is busy: retry later")

// FailedError means that the append that carried the commit failed: it may or may not
// survive. None is accepted any more.
type FailedError struct{ Cause error }

func (e *FailedError) Error() string { return fmt.Sprintf("commit log failed: %v", e.Cause) }

// Unwrap returns the cause.
func (e *FailedError) Unwrap() error { return e.Cause }

// Stamper gives the server timestamps of one tablet. Its calls come under the
// log's lock, in sequence order.
type Stamper interface {
	// Stamp returns a time in µs above any that it returned before.
	Stamp() int64
}

// Commit is one mutation on its way through the log.
type Commit struct {
	Table  uint64
	Tablet uint64
	Ops    uint32  // entries in Body, at least one
	Body   []byte  // must not change until Done
	Stamp  Stamper // gives Time when not nil

	// Done is called once, on the applier, after the record is durable or the
	// log has failed: with a *FailedError if the record may be in it, with ErrClosed or
	// a Retryable error if it is not. It must not block: every later commit waits behind it.
	Done func(c *Commit, err error)

	First uint64 // given by the log: the first sequence number
	Time  int64  // given by Stamp, µs
}

// Config says how the log batches.
type Config struct {
	// BatchBytesMax is how many bytes a batch takes before callers wait for the
	// next. Zero means 4 MiB: about 3 ms of a disk that writes 1.4 GB/s, and
	// below it group commit gains nothing more. A larger commit has a batch of
	// its own.
	BatchBytesMax int

	// CommitWait bounds how long Commit waits while the filling batch is full. Zero means 2 s: four
	// times what a batch takes on a disk that writes 8 MB/s.
	CommitWait time.Duration

	// Retryable says whether a failed append left the log as it was, as a full
	// disk does. Such a batch fails alone, with the append's error. Nil means never.
	Retryable func(error) bool
}

// Log is a commit log that is being written. Its methods are safe for
// concurrent use.
type Log struct {
	cfg      Config
	appender Appender
	began    time.Time
	ctx      context.Context // of appends; ends with Abandon
	abandon  context.CancelFunc

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		filling *batch
		next    uint64 // next sequence number
		err     error  // an ErrClosed: no commit is accepted
		failed  bool   // and what is left in batches is not written
		closed  bool
		room    chan struct{} // closed when a batch was taken, or the log ended; nil if no caller waits
	}
	notEmpty chan struct{} // capacity 1, sent to under mu: filling has something

	written chan *batch // writer to applier; capacity 1
	between chan func() // to the applier, see Between
	done    chan struct{}
	free    chan *batch

	marks marks
	stats struct {
		batches, commits, bytes atomic.Int64
		appendNanos             atomic.Int64
		appending               atomic.Int64 // when the append under way began, in ns after Log.began; 0 if none is
	}
}

type batch struct {
	buf     []byte
	commits []*Commit
	err     error
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

// Commit gives c its place in the log and returns; c.Done is called later. While the filling batch
// is full it waits, for Config.CommitWait at most. The error is ErrClosed or ErrBusy, and Done is not called then.
func (l *Log) Commit(c *Commit) error {
	l.mu.Lock()
	if l.mu.err == nil && !l.fits(c) {
		l.awaitRoom(c)
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
	if len(b.commits) == 1 {
		select {
		case l.notEmpty <- struct{}{}:
		default: // the writer has been told of an earlier batch and will see this one
		}
	}
	l.mu.Unlock()
	return nil
}

// fits reports whether the filling batch takes c. mu is held.
func (l *Log) fits(c *Commit) bool {
	n := len(l.mu.filling.buf)
	return n == 0 || n+headerLen+len(c.Body) <= l.cfg.BatchBytesMax
}

// awaitRoom waits until c fits, the log has ended, or the time is over. mu is held when it is called and when it
// returns, not meanwhile.
func (l *Log) awaitRoom(c *Commit) {
	timer := time.NewTimer(l.cfg.CommitWait)
	defer timer.Stop()
	for late := false; !late && l.mu.err == nil && !l.fits(c); {
		if l.mu.room == nil {
			l.mu.room = make(chan struct{})
		}
		room := l.mu.room
		l.mu.Unlock()
		select {
		case <-room:
		case <-timer.C:
			late = true
		}
		l.mu.Lock()
	}
}

// signalRoom wakes the callers that wait for room. mu is held.
func (l *Log) signalRoom() {
	if l.mu.room != nil {
		close(l.mu.room)
		l.mu.room = nil
	}
}

// Busy reports whether a Commit would have to wait for room now.
func (l *Log) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.filling.buf) >= l.cfg.BatchBytesMax
}

// Between calls f on the applier, between two batches, and returns when f has: while f runs no commit is done. It waits neither
// for commits that are under way nor for the log blob, which may make no progress. ErrClosed means that the log
// has ended: then no commit will be done any more, and f was not called.
func (l *Log) Between(f func()) error {
	ran := make(chan struct{})
	select {
	case l.between <- func() { f(); close(ran) }:
		<-ran
		return nil
	case <-l.done:
		return ErrClosed
	}
}

// Next returns the sequence number that the next commit will get.
func (l *Log) Next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.next
}

// Raise makes the next commit's sequence number at least next.
func (l *Log) Raise(next uint64) {
	l.mu.Lock()
	l.mu.next = max(l.mu.next, next)
	l.mu.Unlock()
}

// Close lets the commits that were accepted finish and stops the log. It does
// not close the log blob.
func (l *Log) Close() {
	l.mu.Lock()
	if l.mu.err == nil {
		l.mu.err = ErrClosed
	}
	if !l.mu.closed {
		l.mu.closed = true
		close(l.notEmpty)
	}
	l.signalRoom()
	l.mu.Unlock()
	<-l.done
	l.abandon()
}

// Abandon ends the append under way, which may wait for replicas that do not come back: its
// commits fail, and so do all after them, though they may be in the log when it is recovered.
func (l *Log) Abandon() { l.abandon() }

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

// take swaps the filling batch for an empty one, or returns nil if it is empty.
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
	l.signalRoom()
	return b
}

func (l *Log) append(b *batch) error {
	l.mu.Lock()
	err, failed := l.mu.err, l.mu.failed
	l.mu.Unlock()
	if failed {
		return err
	}
	start := time.Now()
	l.stats.appending.Store(int64(start.Sub(l.began)))
	pos, err := l.appender.Append(l.ctx, b.buf)
	l.stats.appending.Store(0)
	l.stats.appendNanos.Add(int64(time.Since(start)))
	if err != nil {
		if l.cfg.Retryable(err) {
			return err
		}
		l.mu.Lock()
		l.mu.err, l.mu.failed = fmt.Errorf("%w, since it failed: %w", ErrClosed, err), true
		l.signalRoom()
		l.mu.Unlock()
		return &FailedError{Cause: err}
	}
	l.stats.batches.Add(1)
	l.stats.commits.Add(int64(len(b.commits)))
	l.stats.bytes.Add(int64(len(b.buf)))
	last := b.commits[len(b.commits)-1]
	l.marks.add(mark{pos: pos, next: last.First + uint64(last.Ops)})
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
			for i, c := range b.commits {
				b.commits[i] = nil
				c.Done(c, b.err)
			}
			l.recycle(b)
		}
	}
}

func (l *Log) recycle(b *batch) {
	if cap(b.buf) > 2*l.cfg.BatchBytesMax { // of a commit that had it to itself
		b.buf = nil
	}
	b.buf, b.commits, b.err = b.buf[:0], b.commits[:0], nil
	select {
	case l.free <- b:
	default:
	}
}

// Covered returns the largest position of the log blob below which every record
// has a sequence number below redo, so that recovery from redo needs none of it.
func (l *Log) Covered(redo uint64) int64 { return l.marks.covered(redo) }

// Pending returns how many bytes of the log blob hold records that recovery from
// redo needs, roughly.
func (l *Log) Pending(redo uint64) int64 { return l.marks.end() - l.marks.covered(redo) }

// AppendAge returns for how long the append under way has been; 0 if none is.
func (l *Log) AppendAge() time.Duration {
	if since := l.stats.appending.Load(); since > 0 {
		return time.Since(l.began) - time.Duration(since)
	}
	return 0
}

// Stats says what the log has done since it was started.
type Stats struct {
	Batches, Commits, Bytes int64
	AppendTime              time.Duration // all appends together
}

// Stats returns the log's counters.
func (l *Log) Stats() Stats {
	return Stats{
		Batches: l.stats.batches.Load(), Commits: l.stats.commits.Load(), Bytes: l.stats.bytes.Load(),
		AppendTime: time.Duration(l.stats.appendNanos.Load()),
	}
}
