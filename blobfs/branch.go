package blobfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
)

const (
	// pieceBytes is the unit of sending, two chunks. A message of this size is received into one
	// buffer without growing it.
	pieceBytes = 128 << 10
	// windowBytes is the most unacknowledged bytes of a branch: 70 ms at 1 Gbit/s.
	windowBytes = 8 << 20
)

// branch is a replication chain: the writer sends to the first node, and each node forwards to the
// next. One goroutine sends.
type branch struct {
	s      *Store
	stream api.StreamID
	peer   api.Peer
	nodes  []string

	// mu guards what follows. Never held across I/O.
	mu       sync.Mutex
	pending  []*branchCall // calls without an answer
	bytes    int64         // of the pieces in pending
	since    time.Duration // of the last answer, or when the first of pending was sent
	err      error         // the first failure
	seal     sealOutcome
	progress chan struct{} // capacity 1: an answer arrived
}

// branchCall is a Begin or Piece that is not answered yet.
type branchCall struct {
	bytes int64
	done  func(error) // may be nil
	ended bool        // answered or canceled
}

// sealOutcome is the answer to Seal.
type sealOutcome struct {
	arrived bool
	nodes   []string
	err     error
}

// newBranch begins a stream on the nodes. It does not wait for the answer.
func (s *Store) newBranch(start api.Begin, nodes []string) (*branch, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cluster.ReplyTimeout)
	defer cancel()
	b, err := s.joinBranch(ctx, start.Stream, nodes)
	if err != nil {
		return nil, err
	}
	start.Chain = nodes[1:]
	call := b.add(0, nil)
	b.peer.Begin(ctx, start, func(err error) { b.answered(call, err) })
	return b, nil
}

// joinBranch is newBranch for nodes that already have the stream.
func (s *Store) joinBranch(ctx context.Context, stream api.StreamID, nodes []string) (*branch, error) {
	p, err := s.peers.Peer(ctx, nodes[0])
	if err != nil {
		return nil, err
	}
	return &branch{s: s, stream: stream, peer: p, nodes: nodes, progress: make(chan struct{}, 1)}, nil
}

func (b *branch) add(n int64, done func(error)) *branchCall {
	c := &branchCall{bytes: n, done: done}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) == 0 {
		b.since = b.s.cluster.Clock.Now()
	}
	b.pending = append(b.pending, c)
	b.bytes += n
	return c
}

// answered records the answer to a call. It does not block.
func (b *branch) answered(c *branchCall, err error) {
	b.mu.Lock()
	if c.ended {
		b.mu.Unlock()
		return
	}
	c.ended = true
	b.pending = slices.DeleteFunc(b.pending, func(o *branchCall) bool { return o == c })
	b.bytes -= c.bytes
	b.since = b.s.cluster.Clock.Now()
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	if c.done != nil {
		c.done(err)
	}
	b.signal()
}

// timeLeft returns how much longer the nodes may be silent, and false if they owe no answer.
func (b *branch) timeLeft() (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.timeout() - (b.s.cluster.Clock.Now() - b.since), len(b.pending) > 0
}

// expire fails the branch if the nodes were silent for too long.
func (b *branch) expire() {
	if left, owing := b.timeLeft(); owing && left <= 0 {
		b.failPending(b.silentError(b.timeout()))
	}
}

// failPending fails all unanswered calls, since other nodes may be waiting for this node's answer to
// them.
func (b *branch) failPending(err error) {
	b.mu.Lock()
	if b.err == nil {
		b.err = err
	}
	owed := slices.Clone(b.pending)
	b.mu.Unlock()
	for _, c := range owed {
		b.answered(c, err)
	}
}

func (b *branch) silentError(d time.Duration) error {
	return fmt.Errorf("%w: no answer from %s within %v", api.ErrUnreachable, b.nodes[0], d)
}

func (b *branch) signal() {
	select {
	case b.progress <- struct{}{}:
	default:
	}
}

// send sends a piece once the window has space for it. done is called with the answer, but not if
// send returns an error.
func (b *branch) send(p []byte, off int64, done func(error)) error {
	err := b.wait(func() bool { return b.bytes == 0 || b.bytes+int64(len(p)) <= b.s.cluster.WindowBytes })
	if err != nil {
		return err
	}
	call := b.add(int64(len(p)), done)
	ctx, cancel := context.WithTimeout(b.s.ctx, b.timeout())
	defer cancel()
	b.peer.Piece(ctx, b.stream, off, p, func(err error) { b.answered(call, err) })
	return nil
}

// timeout returns how long the nodes may be silent. It grows with the length of the chain, so that
// a node drops those behind it before it is dropped itself.
func (b *branch) timeout() time.Duration {
	return b.s.cluster.ReplyTimeout * time.Duration(len(b.nodes))
}

// wait waits until ok returns true, the branch has failed, or the nodes were silent for too long.
// ok is called with mu held.
func (b *branch) wait(ok func() bool) error {
	for {
		b.mu.Lock()
		err, done := b.err, ok()
		b.mu.Unlock()
		if err != nil || done {
			return err
		}
		left, _ := b.timeLeft()
		if err := b.await(max(left, 0)); err != nil {
			b.failPending(err)
		}
	}
}

// await waits until an answer arrives.
func (b *branch) await(timeout time.Duration) error {
	select {
	case <-b.progress:
		return nil
	default:
	}
	fired, stop := b.s.cluster.Clock.Timer(timeout)
	defer stop()
	select {
	case <-b.progress:
		return nil
	case <-fired:
		return b.silentError(timeout)
	case <-b.s.ctx.Done():
		return ErrClosed
	}
}

// drain waits until everything sent is acknowledged.
func (b *branch) drain() error {
	return b.wait(func() bool { return len(b.pending) == 0 })
}

// startSeal asks the nodes to seal.
func (b *branch) startSeal(s api.Seal) {
	ctx, cancel := context.WithTimeout(b.s.ctx, b.timeout())
	defer cancel()
	b.peer.Seal(ctx, s, func(nodes []string, err error) {
		b.mu.Lock()
		b.seal = sealOutcome{true, nodes, err}
		b.mu.Unlock()
		b.signal()
	})
}

// awaitSeal returns the nodes that have sealed, and the first failure. Sealing may be slow: it
// waits up to SealTimeout per node, as long as the first node answers probes.
func (b *branch) awaitSeal() ([]string, error) {
	err := b.drain()
	timeout := b.timeout()
	if node, _ := b.blame(err); err != nil && node == b.nodes[0] {
		timeout = 0 // otherwise the nodes before the failed one answer soon
	}
	clock := b.s.cluster.Clock
	until := clock.Now() + b.s.cluster.SealTimeout*time.Duration(len(b.nodes))
	for {
		b.mu.Lock()
		out := b.seal
		b.mu.Unlock()
		if out.arrived {
			return out.nodes, cmp.Or(err, out.err)
		}
		silent := b.await(max(0, min(timeout, until-clock.Now())))
		switch {
		case silent == nil:
			continue
		case err != nil:
			return nil, err
		case clock.Now() >= until:
			return nil, silent
		}
		if err := b.probe(); err != nil {
			return nil, err
		}
	}
}

// probe returns an error if the first node does not answer at all.
func (b *branch) probe() error {
	ctx, cancel := context.WithTimeout(b.s.ctx, b.s.cluster.ReplyTimeout)
	defer cancel()
	_, err := b.peer.List(ctx, ExtentID{Index: -1}, 0)
	if errors.Is(err, api.ErrUnreachable) {
		return err
	}
	return nil
}

// abortInBackground aborts a stream on nodes in the background. A node that is not reached drops
// the stream after StreamIdle.
func (s *Store) abortInBackground(nodes []string, stream api.StreamID) {
	s.peers.EachInBackground(nodes, func(ctx context.Context, p api.Peer) { p.Abort(ctx, stream, func(error) {}) })
}

// failure returns why the branch failed.
func (b *branch) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// blame returns the node that caused an error. sure is true if that node reported the error itself
// or did not answer this one. If it did not answer the node before it, either may be cut off.
func (b *branch) blame(err error) (node string, sure bool) {
	var r *api.ReplicaError
	if errors.As(err, &r) {
		return r.Node, !errors.Is(r.Err, api.ErrUnreachable)
	}
	return b.nodes[0], true
}
