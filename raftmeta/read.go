package raftmeta

import (
	"context"
	"fmt"
	"sync"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
)

// File is a file as returned by Get.
type File struct {
	Path string
	// Data is the content, at most api.FileBytesMax bytes. The caller owns it.
	Data []byte
	// Generation is the content generation. It grows with each Set, and is never reused, even if
	// the file is deleted and created again.
	Generation uint64
	// Instance grows each time that a node is created at this path.
	Instance uint64
}

// readRounds lets all waiting readers share one verification.
type readRounds struct {
	mu struct {
		sync.Mutex
		// next is the round that can still be joined, nil if none is waiting.
		next *readRound
	}
	// wake wakes readLoop. Its capacity is one.
	wake chan struct{}
}

// readRound is one verification of leadership. term and err are set before done is closed.
type readRound struct {
	done chan struct{}
	term uint64
	err  error
}

// join returns a round whose verification has not begun.
func (r *readRounds) join() *readRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.next == nil {
		r.mu.next = &readRound{done: make(chan struct{})}
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	return r.mu.next
}

// take returns the waiting round, if any, and closes it to further readers.
func (r *readRounds) take() *readRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	round := r.mu.next
	r.mu.next = nil
	return round
}

// readLoop verifies leadership for one round after another. A round ends when this server no longer
// leads; callers wait for it with their own deadlines.
func (g *Group) readLoop() {
	as := termPollers{}
	defer func() { g.requestTerms(as, nil) }()
	for {
		select {
		case <-g.reads.wake:
			if round := g.reads.take(); round != nil {
				round.term, round.err = g.verifyRound(as)
				close(round.done)
			}
		case <-g.closing:
			return
		}
	}
}

// linearize returns once the state machine includes every change that any server acknowledged
// before linearize began.
//
// Proof: let T be the term that verify returns. No server was elected in a later term before
// linearize began, so no change had been acknowledged in one. Changes of earlier terms were applied
// here before the barrier of T was answered. Changes of T were acknowledged by this server, which
// applies them first. Raft's AppliedIndex cannot replace the barrier: it is the index passed to the
// state machine, not the index that the state machine has applied.
func (g *Group) linearize(ctx context.Context) error {
	_, err := g.verify(ctx)
	return err
}

// verify returns the term in which this server has caught up, and in which it led when verify began
// or later: no server was elected in a later term before that. The error is ErrNotReady, a
// *NotLeaderError, ErrClosed or ctx's.
func (g *Group) verify(ctx context.Context) (term uint64, err error) {
	if err := g.usable(); err != nil {
		return 0, err
	}
	if _, _, term, _ = g.lead.state(); term == 0 {
		return 0, g.notLeading()
	}
	round := g.reads.join()
	select {
	case <-round.done:
		return round.term, round.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-g.closing:
		return 0, g.usable()
	case <-g.failed:
		return 0, g.usable()
	}
}

// notLeading returns the error for a server that does not serve: ErrNotReady while it leads and has
// not caught up, and otherwise a *NotLeaderError with the leader as far as this server knows.
func (g *Group) notLeading() error {
	_, id := g.raft.LeaderWithID()
	if id == raft.ServerID(g.cfg.ID) {
		return ErrNotReady
	}
	e := &NotLeaderError{Leader: string(id)}
	if id != "" && g.cfg.AddressOf != nil {
		e.Address = g.cfg.AddressOf(string(id))
	}
	return e
}

// Get returns the file at path. It is linearizable: it sees every Set and Delete that was
// acknowledged before it began. The error is a *PathError, ErrNotFound, ErrIsDirectory,
// ErrNotReady, ErrClosed or ctx's. Cancelling has no side effects.
func (g *Group) Get(ctx context.Context, path string) (File, error) {
	g.count.gets.Add(1)
	f, err := g.get(ctx, path)
	if err != nil {
		return File{}, fmt.Errorf("get %s: %w", path, err)
	}
	return f, nil
}

func (g *Group) get(ctx context.Context, path string) (File, error) {
	if err := fsm.CheckDir(path); err != nil {
		return File{}, err
	}
	if err := g.linearize(ctx); err != nil {
		return File{}, err
	}
	var n *fsm.NodeView
	g.machine.View(func(ns *fsm.Namespace, _ uint64) { n = ns.Lookup(path) })
	f, err := n.File()
	if err != nil {
		return File{}, err
	}
	return File{Path: f.Path, Data: f.Data, Generation: f.Generation, Instance: f.Instance}, nil
}

// List returns the names of the files and directories in the directory dir, in byte order, without
// the path of dir. It is linearizable, as Get is. The error is a *PathError, ErrNotFound,
// ErrNotDirectory, ErrNotReady, ErrClosed or ctx's. Cancelling has no side effects.
func (g *Group) List(ctx context.Context, dir string) ([]string, error) {
	g.count.lists.Add(1)
	names, err := g.list(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return names, nil
}

func (g *Group) list(ctx context.Context, dir string) ([]string, error) {
	if err := fsm.CheckDir(dir); err != nil {
		return nil, err
	}
	if err := g.linearize(ctx); err != nil {
		return nil, err
	}
	var names []string
	err := ErrNotFound
	g.machine.View(func(ns *fsm.Namespace, _ uint64) {
		switch n := ns.Get(dir); {
		case n == nil:
		case !n.Dir:
			err = ErrNotDirectory
		default:
			names, err = ns.List(n), nil
		}
	})
	return names, err
}
