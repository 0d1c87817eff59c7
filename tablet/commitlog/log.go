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
	Ops    uint32  // entries in Body; none makes the commit a barrier, which is not written
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

	// Retryable says whether a failed append left the log as it was, as a full
	// disk does. Such a batch fails alone, with the append's error. Nil means never.
	Retryable func(error) bool
}

// Log is a commit log that is being written. Its methods are safe for
// concurrent use.
type Log struct {
	cfg      Config
	appender Appender
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
	}
	notEmpty chan struct{} // capacity 1, sent to under mu: filling has something
	room     sync.Cond     // on mu: a batch was taken, or the log ended

	written chan *batch // writer to applier; capacity 1
	done    chan struct{}
	free    chan *batch

	marks marks
	stats struct {
		batches, commits, bytes atomic.Int64
		appendNanos             atomic.Int64
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
	if cfg.Retryable == nil {
		cfg.Retryable = func(error) bool { return false }
	}
	l := &Log{
		cfg: cfg, appender: a,
		notEmpty: make(chan struct{}, 1),
		written:  make(chan *batch, 1),
		done:     make(chan struct{}),
		free:     make(chan *batch, 3),
	}
	l.ctx, l.abandon = context.WithCancel(context.Background())
	l.room.L = &l.mu
	l.mu.filling = &batch{}
	l.mu.next = next
	go l.write()
	go l.apply()
	return l
}

// Commit gives c its place in the log and returns; c.Done is called later. It
// blocks while the filling batch is full. The error is ErrClosed, and Done is not
// called then.
func (l *Log) Commit(c *Commit) error {
	l.mu.Lock()
	for l.mu.err == nil && len(l.mu.filling.buf) > 0 &&
		len(l.mu.filling.buf)+headerLen+len(c.Body) > l.cfg.BatchBytesMax {
		l.room.Wait()
	}
	if err := l.mu.err; err != nil {
		l.mu.Unlock()
		return err
	}
	c.First = l.mu.next
	l.mu.next += uint64(c.Ops)
	if c.Stamp != nil {
		c.Time = c.Stamp.Stamp()
	}
	b := l.mu.filling
	if c.Ops > 0 {
		r := Record{Table: c.Table, Tablet: c.Tablet, First: c.First, Ops: c.Ops, Time: c.Time, Body: c.Body}
		b.buf = appendRecord(b.buf, &r)
	}
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

// Busy says that a Commit would have to wait for room now.
func (l *Log) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.filling.buf) >= l.cfg.BatchBytesMax
}

// Barrier waits until every commit that was accepted before it is done, and
// calls f on the applier at that place of the order. The error is as Commit's.
func (l *Log) Barrier(f func()) error {
	reached := make(chan struct{})
	c := &Commit{Done: func(_ *Commit, _ error) {
		f()
		close(reached)
	}}
	if err := l.Commit(c); err != nil {
		return err
	}
	<-reached
	return nil
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
	l.room.Broadcast()
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
	l.room.Broadcast()
	return b
}

func (l *Log) append(b *batch) error {
	l.mu.Lock()
	err, failed := l.mu.err, l.mu.failed
	l.mu.Unlock()
	if failed {
		return err
	}
	if len(b.buf) == 0 { // barriers only
		return nil
	}
	start := time.Now()
	pos, err := l.appender.Append(l.ctx, b.buf)
	l.stats.appendNanos.Add(int64(time.Since(start)))
	if err != nil {
		if l.cfg.Retryable(err) {
			return err
		}
		l.mu.Lock()
		l.mu.err, l.mu.failed = fmt.Errorf("%w, since it failed: %w", ErrClosed, err), true
		l.room.Broadcast()
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
	for b := range l.written {
		for i, c := range b.commits {
			b.commits[i] = nil
			c.Done(c, b.err)
		}
		l.recycle(b)
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
