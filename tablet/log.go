package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/storage"
)

// serverLog is the commit log of one run of a server. Load recovers from the logs of earlier runs,
// which are sorted by then.
type serverLog struct {
	cfg    *Config
	life   *lifetime
	served *TabletMap

	commits *commitlog.Log
	blob    *storage.LogBlob

	// appliedNext is above the sequence number of every applied commit and at or below that of
	// every other.
	appliedNext atomic.Uint64

	failure sync.Once
}

// begin begins the commit log with the sequence number next. abandon is called with a log that could
// not be used.
func (l *serverLog) begin(ctx context.Context, next uint64, abandon func(blobfs.ID)) error {
	w := storage.NewLogBlob(l.cfg.Blobs, abandon, ErrClosed)
	l.blob = w
	if !l.cfg.LogLater {
		if err := l.open(ctx); err != nil {
			return err
		}
	}
	l.appliedNext.Store(next)
	l.commits = commitlog.New(&reportingAppender{LogWriter: w, log: l}, next, commitlog.Config{
		BatchBytesMax: int(l.cfg.LogBatchBytes),
		CommitWait:    l.cfg.OverloadWait,
		Retryable:     func(err error) bool { return errors.Is(err, blobfs.ErrDiskFull) },
		Slowest:       w.Slowest,
		Extent:        w.Extent,
	})
	return nil
}

// open creates the log on disk, if that has not been done and there is space. Errors: ErrClosed,
// those of Blobs.
func (l *serverLog) open(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.life.ctx, cancel)()
	err := l.blob.Open(ctx)
	if err != nil && !errors.Is(err, blobfs.ErrDiskFull) {
		return fmt.Errorf("create commit log: %w", err)
	}
	return nil
}

// close closes the log, which accepts nothing any more.
func (l *serverLog) close() error { return l.blob.Close() }

// pending returns the bytes of log that a recovery would read.
func (l *serverLog) pending() int64 { return l.commits.Pending(l.firstNeeded()) }

// tooLong reports whether memtables have to be written out so that the log gets shorter: a recovery
// would read too much of it, its extents occupy too much disk space, or they are too many for its list.
func (l *serverLog) tooLong() bool {
	pending := l.pending()
	unused, crowded := l.blob.Unused(l.commits.Covered(l.firstNeeded()))
	return crowded || pending > l.cfg.LogBytesMax || pending+unused > l.cfg.LogSpaceMax
}

// firstNeeded returns the first sequence number that the log is needed for: every commit with a lower
// one is in files. A Meta.Redo is the last number that is in files, so it is one below.
func (l *serverLog) firstNeeded() uint64 {
	// Loaded first: a commit that is applied meanwhile is then above it.
	applied := l.appliedNext.Load()
	if first := firstUnflushed(l.served.tables.Load); first != 0 {
		return min(applied, first)
	}
	return applied
}

// trim releases the log space that no tablet needs.
func (l *serverLog) trim() {
	l.blob.Release(l.commits.Covered(l.firstNeeded()))
}

// isWeak reports whether memtable entries are in a part of the log that lacks redundancy.
func (l *serverLog) isWeak() bool {
	weak := l.blob.Weak()
	return weak > 0 && l.commits.Covered(l.firstNeeded()) < weak
}

// trimWeak releases the part of the log that lacks redundancy if no commit needs it. It may end with bytes of an append that failed, of
// which Covered knows only after the next append: an idle log would keep them.
func (l *serverLog) trimWeak() {
	weak := l.blob.Weak() // loaded first: later appends lie above it
	if weak > 0 && l.commits.Idle() && firstUnflushed(l.served.tables.Load) == 0 {
		l.blob.Release(weak)
	}
}

// notCommitted returns why the commit log did not accept a commit. If it is busy because no disk
// has space, that is the error.
func (l *serverLog) notCommitted(err error) error {
	if errors.Is(err, commitlog.ErrBusy) {
		if full := l.blob.Full(); full != nil {
			return fmt.Errorf("commit log has not finished earlier writes: %w", full)
		}
	}
	return closedError(err)
}

// closedError converts an error of a commit log that accepts nothing, or nothing now, to that of a
// closed or overloaded server. Nothing was written.
func closedError(err error) error {
	if errors.Is(err, commitlog.ErrBusy) {
		return &api.OverloadedError{Reason: "the commit log has not finished earlier writes", RetryAfter: overloadRetry}
	}
	if errors.Is(err, commitlog.ErrClosed) {
		return fmt.Errorf("%w: %s", ErrClosed, err.Error())
	}
	return err
}

// reportingAppender reports a permanent failure of the log.
type reportingAppender struct {
	storage.LogWriter
	log *serverLog
}

func (a *reportingAppender) Append(ctx context.Context, p []byte) (int64, error) {
	pos, err := a.LogWriter.Append(ctx, p)
	if err != nil && !errors.Is(err, blobfs.ErrDiskFull) && ctx.Err() == nil {
		a.log.failure.Do(func() {
			a.log.cfg.Logger.Error("commit log failed, no more writes accepted", "err", err)
			if f := a.log.cfg.OnFailure; f != nil {
				go f(err)
			}
		})
	}
	return pos, err
}
