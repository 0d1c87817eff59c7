package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/lease"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/loglimit"
	"golang.org/x/sync/semaphore"
)

// closeTimeout bounds Close, because a hung disk would block it forever.
const closeTimeout = 15 * time.Second

// Group is one server of the group that replicates the namespace. Its methods are safe for
// concurrent use.
type Group struct {
	cfg     Config
	log     *slog.Logger
	bridge  *logBridge
	lock    io.Closer
	bolt    storage.Backend
	store   *storage.Log
	snaps   *storage.Snapshots
	machine *fsm.Machine
	trans   *transport
	raft    *raft.Raft

	lead     *leadership
	leader   *leaderWatch
	contacts *contacts
	members  membership
	service  *lease.Service
	// hasServerID is set if the log contains the id of its server; old logs do not. joined is set if
	// the log still says that the server is joining, but already has entries or a snapshot.
	hasServerID, joined bool
	// changing is held by the membership change in progress.
	changing sync.Mutex
	// suspected has the id of a leader whose process may have exited. Its capacity is one.
	suspected chan string

	reads readRounds
	disk  diskSpace
	count counters

	proposals   chan *proposal
	submissions chan submission
	batchDone   chan struct{} // receives once per answered batch
	inFlight    *semaphore.Weighted

	// logBytes is the size of the log since the last snapshot, in bytes.
	logBytes atomic.Int64
	// snapshotDue requests a snapshot. Its capacity is one.
	snapshotDue chan struct{}
	// damage logs corrupt snapshots.
	damage loglimit.Warner

	// opened is set just before Open succeeds. Earlier failures are returned by Open instead.
	opened atomic.Bool
	// failure is the error because of which this server cannot continue. failed is closed after it
	// is set.
	failure atomic.Pointer[error]
	failed  chan struct{}
	// closing is closed when Close begins, raftStopped when raft has stopped.
	closing, raftStopped chan struct{}
	closeOnce            sync.Once
	closeErr             error
	// workers are the goroutines that call raft; they end before raft does. watcher are those that
	// end after it.
	workers, watcher sync.WaitGroup
}

// usable returns nil while calls may be served, ErrClosed after Close, and ErrNotReady with the
// cause after this server has failed.
func (g *Group) usable() error {
	select {
	case <-g.closing:
		return ErrClosed
	default:
	}
	if p := g.failure.Load(); p != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, *p)
	}
	return nil
}

// fail stops this server's service because of err and notifies the node. It does not block, and may
// be called from raft's goroutines with any lock held.
func (g *Group) fail(err error) {
	if !g.failure.CompareAndSwap(nil, &err) {
		return
	}
	close(g.failed)
	// The others must notice the failure at once: raft would keep sending heartbeats, which prevent
	// another election.
	go func() { _ = g.trans.disconnect() }()
	// Open returns its errors. But if the disk stalls during Open, Open may never return.
	if !g.opened.Load() && !errors.Is(err, ErrStalled) {
		return
	}
	if g.cfg.OnFatal == nil {
		g.log.Error("raftmeta stopped on a fatal error", "err", err)
		return
	}
	go g.cfg.OnFatal(err)
}

// entryStored counts bytes written to the log and requests a snapshot when one is due. Raft's main
// goroutine calls it.
func (g *Group) entryStored(bytes int64) {
	if g.logBytes.Add(bytes) < max(g.cfg.SnapshotBytes, g.machine.NamespaceBytes()) {
		return
	}
	select {
	case g.snapshotDue <- struct{}{}:
	default:
	}
}

// snapshotDamaged requests a new snapshot of the state in memory, because the newest one on disk is
// corrupt. A leader detects this when it sends the snapshot.
func (g *Group) snapshotDamaged(err error) {
	g.damage.Warn(g.log, "raftmeta: snapshot is corrupt, writing a new one", "err", err)
	select {
	case g.snapshotDue <- struct{}{}:
	default:
	}
}

// snapshotRetry is the pause after a failed snapshot. The likely cause is a full disk.
const snapshotRetry = 30 * time.Second

// snapshotLoop takes snapshots when they are due. Raft's own trigger counts entries, whose sizes
// differ widely, and polls.
func (g *Group) snapshotLoop() {
	for {
		select {
		case <-g.snapshotDue:
		case <-g.closing:
			return
		}
		size := g.logBytes.Load()
		start := time.Now()
		err := g.raft.Snapshot().Error()
		if err == nil {
			g.logBytes.Add(-size)
			g.count.snapshots.Add(1)
			g.log.Debug("raftmeta wrote a snapshot", "took", time.Since(start))
			continue
		}
		// Raft has logged why.
		select {
		case <-time.After(snapshotRetry):
		case <-g.closing:
			return
		}
	}
}

// start runs f in a goroutine that Close waits for before it stops raft.
func (g *Group) start(f func()) { g.workers.Go(f) }

// Close stops this server and releases its data directory. Calls in progress end with their result,
// or with ErrClosed. Close waits for them and for the disk, at most 15 s. If the disk hangs, it
// returns an error that is ErrStalled; goroutines and the directory lock then remain until the
// process exits. Further calls return the result of the first one.
func (g *Group) Close() error {
	g.closeOnce.Do(func() { g.closeErr = g.close() })
	return g.closeErr
}

func (g *Group) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	close(g.closing)
	defer g.lead.set(false) // wakes waiters for leadership, which then see that the group is closed
	// Raft never resolves some of its futures when it stops, so the goroutines that wait for
	// futures stop first.
	if !waitFor(ctx, g.workers.Wait) {
		return &DiskError{Op: "close group", After: closeTimeout, Err: ErrStalled}
	}
	err := g.trans.disconnect()
	if !waitFor(ctx, func() { err = errors.Join(err, g.raft.Shutdown().Error()) }) {
		return &DiskError{Op: "stop raft", After: closeTimeout, Err: ErrStalled}
	}
	close(g.raftStopped)
	g.watcher.Wait()
	return errors.Join(err, g.release())
}

// waitFor runs f, and reports whether it returned before ctx ended.
func waitFor(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// release releases everything that Open acquired, except raft.
func (g *Group) release() error {
	var errs []error
	errs = append(errs, g.trans.close())
	if g.bolt != nil {
		errs = append(errs, g.bolt.Close())
	}
	if g.lock != nil {
		errs = append(errs, g.lock.Close())
	}
	return errors.Join(errs...)
}
