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

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/seldom"
	"golang.org/x/sync/semaphore"
)

// closeTimeout bounds Close: a disk that hangs would hold it for good.
const closeTimeout = 15 * time.Second

// Group is this server's part in the group of servers that keep the namespace.
// Its methods may be called by several goroutines at once.
type Group struct {
	cfg     Config
	log     *slog.Logger
	bridge  *logBridge
	lock    io.Closer
	bolt    boltStore
	store   *logStore
	snaps   *snapshotStore
	machine *machine
	trans   *transport
	raft    *raft.Raft

	lead     *leadership
	leader   *leaderWatch
	contacts *contacts
	members  membership
	service  *service
	// knowsID is set when the folder says whose it is; old ones do not. joined
	// is set when it still says that it waits for a group, but has one.
	knowsID, joined bool
	// changing is held by the one change of the members under way.
	changing sync.Mutex
	// suspected asks whether the leader of that id is still there. It holds
	// one request.
	suspected chan string

	reads readRounds
	disk  diskSpace
	count counters

	proposals chan *proposal
	flights   chan flight
	landed    chan struct{} // a batch of flights was answered
	inFlight  *semaphore.Weighted

	// logBytes is the size of the log since the last snapshot.
	logBytes atomic.Int64
	// snapshotDue asks for a snapshot. It holds one request.
	snapshotDue chan struct{}
	// damage logs damaged snapshots.
	damage seldom.Warner

	// opened is set when Open is about to succeed. Before that a failure is
	// what Open returns.
	opened atomic.Bool
	// failure is why this server cannot go on; failed is closed once it is
	// set.
	failure atomic.Pointer[error]
	failed  chan struct{}
	// closing is closed when Close begins, raftStopped when raft has ended.
	closing, raftStopped chan struct{}
	closeOnce            sync.Once
	closeErr             error
	// workers are the goroutines that call raft; they end before it does.
	// watcher is the one that ends after it.
	workers, watcher sync.WaitGroup
}

// usable returns nil while calls may be served: ErrClosed after that, and
// ErrNotReady with the reason once this server has failed.
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

// fail ends this server's service because of err, and tells the node so. It
// does not block, and may be called from raft's goroutines with any lock held.
func (g *Group) fail(err error) {
	if !g.failure.CompareAndSwap(nil, &err) {
		return
	}
	close(g.failed)
	// The others must miss this server at once: raft would go on to send
	// heartbeats, which keep them from electing another.
	go func() { _ = g.trans.cut() }()
	// Open returns what it finds; but a disk that stalls under it would keep
	// it from returning at all.
	if !g.opened.Load() && !errors.Is(err, ErrStalled) {
		return
	}
	if g.cfg.OnFatal == nil {
		g.log.Error("raftmeta cannot go on", "error", err)
		return
	}
	go g.cfg.OnFatal(err)
}

// entryStored counts a write of the log and asks for a snapshot when one is
// due. Raft's main goroutine calls it.
func (g *Group) entryStored(bytes int64) {
	if g.logBytes.Add(bytes) < max(g.cfg.SnapshotBytes, g.machine.bytes.Load()) {
		return
	}
	select {
	case g.snapshotDue <- struct{}{}:
	default:
	}
}

// snapshotDamaged asks for a new snapshot, of the state in memory, because the
// newest one on disk cannot be read. A leader finds that when it sends it.
func (g *Group) snapshotDamaged(err error) {
	g.damage.Warn(g.log, "raftmeta: snapshot is damaged, writing a new one", "err", err)
	select {
	case g.snapshotDue <- struct{}{}:
	default:
	}
}

// snapshotRetry is the pause after a snapshot failed, most likely for want of
// room on the disk.
const snapshotRetry = 30 * time.Second

// snapshotLoop takes snapshots when they are due. Raft's own rule counts
// entries, which says little of their size, and looks now and then.
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
			g.log.Debug("raftmeta took a snapshot", "took", time.Since(start))
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

// Close stops this server and releases its folder. Calls under way end with
// their result, or ErrClosed. Close waits until they have, at most 15 s, and
// for the disk: when that hangs, Close returns an error that is ErrStalled, and
// the goroutines and the folder's lock stay until the process ends. Closing
// again returns what the first call did.
func (g *Group) Close() error {
	g.closeOnce.Do(func() { g.closeErr = g.close() })
	return g.closeErr
}

func (g *Group) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	close(g.closing)
	defer g.lead.set(false) // who waits for a change looks for another group
	// Raft forgets to answer some of what it has been asked when it stops, so
	// whoever asks stops first.
	if !waitFor(ctx, g.workers.Wait) {
		return &DiskError{"close group", closeTimeout, ErrStalled}
	}
	err := g.trans.cut()
	if !waitFor(ctx, func() { err = errors.Join(err, g.raft.Shutdown().Error()) }) {
		return &DiskError{"stop raft", closeTimeout, ErrStalled}
	}
	close(g.raftStopped)
	g.watcher.Wait()
	return errors.Join(err, g.release())
}

// waitFor runs f, and tells whether it returned before ctx ended.
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

// release gives back what Open took, without raft.
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
