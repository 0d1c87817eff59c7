package raftmeta

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/lease"
)

// closeTimeout bounds Close, because a hung disk would block it forever.
const closeTimeout = 15 * time.Second

// Group is one server of the group that replicates the namespace. Its methods are safe for
// concurrent use. It consists of parts, which share a core.
type Group struct {
	*core
	*dataDir
	bridge *logBridge

	leader    *leaderWatch
	detector  *failureDetector
	verifier  *verifier
	proposer  *proposer
	changer   *memberChanger
	admission *admission
	snapshots *snapshotter
	service   *lease.Service

	disk  diskSpace
	count counters

	closeOnce sync.Once
	closeErr  error
}

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
func (g *Group) release() error { return errors.Join(g.trans.close(), g.dataDir.close()) }
