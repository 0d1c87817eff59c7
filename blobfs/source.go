package blobfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/place"
)

// source reads one extent of a blob: here while it is good, and else from other nodes.
type source struct {
	s    *Store
	ref  api.Ref
	here *local.ExtentReader // nil if it was not here when opened
	// rotten is set once bytes here were found wrong: from then on others are read.
	rotten atomic.Bool
	hints  []string

	// mu guards best, the node that answered last. Never held across I/O.
	mu   sync.Mutex
	best string
}

// openSource finds an extent here, or on any other node.
func (s *Store) openSource(ctx context.Context, blob ID, ref ExtentRef) (*source, error) {
	x := &source{s: s, ref: api.Ref{Extent: ExtentID{Blob: blob, Index: ref.Index}, CRC: ref.CRC}, hints: ref.Replicas}
	here, errHere := s.disks.OpenRef(ctx, blob, ref)
	if errHere == nil {
		x.here = here
		return x, nil
	}
	s.judgeRead(x.ref.Extent, errHere)
	if ctx.Err() != nil {
		return nil, errHere
	}
	// To read its last byte proves that it is as long as the handle says.
	p := make([]byte, min(ref.Length, 1))
	err := x.search(ctx, p, ref.Length-int64(len(p)))
	if err == nil {
		return x, nil
	}
	if !errors.Is(errHere, local.ErrNoExtent) || errors.Is(err, local.ErrNoExtent) {
		err = errors.Join(errHere, err)
	}
	return nil, fmt.Errorf("extent %d: %w", ref.Index, err)
}

// good tells whether to read here.
func (x *source) good() bool { return x.here != nil && !x.rotten.Load() }

// ReadRaw implements local.ExtentSource.
func (x *source) ReadRaw(p []byte, off int64) bool {
	if x.good() {
		return x.here.ReadRaw(p, off)
	}
	return x.read(p, off) == nil
}

// ReadVerified implements local.ExtentSource.
func (x *source) ReadVerified(p []byte, off int64) error {
	var errHere error
	if x.good() {
		if errHere = x.here.ReadVerified(p, off); errHere == nil {
			return nil
		}
		x.rotten.Store(true)
		x.s.judgeRead(x.ref.Extent, errHere)
	}
	if err := x.read(p, off); err != nil {
		return errors.Join(errHere, err)
	}
	return nil
}

// Close implements local.ExtentSource.
func (x *source) Close() error {
	if x.here != nil {
		return x.here.Close()
	}
	return nil
}

// read reads from other nodes, verified by them.
func (x *source) read(p []byte, off int64) error {
	for len(p) > 0 {
		part := p[:min(len(p), api.PieceBytesMax)]
		if err := x.readPart(part, off); err != nil {
			return err
		}
		p, off = p[len(part):], off+int64(len(part))
	}
	return nil
}

// readPart asks the node that answered last time, and all others if it does not.
func (x *source) readPart(p []byte, off int64) error {
	x.mu.Lock()
	best := x.best
	x.mu.Unlock()
	if best != "" && !x.s.peers.suspected(best) {
		ctx, cancel := context.WithTimeout(x.s.ctx, x.s.cluster.HedgeAfter)
		err := x.ask(ctx, best, p, off)
		cancel()
		if err == nil {
			return nil
		}
	}
	return x.search(x.s.ctx, p, off)
}

func (x *source) ask(ctx context.Context, node string, p []byte, off int64) error {
	peer, err := x.s.peer(ctx, node)
	if err != nil {
		return err
	}
	return peer.Read(ctx, x.ref, p, off)
}

// candidates returns the other nodes in the order in which to ask them: those that the handle
// names, then by rank, those that live before the others.
func (x *source) candidates() []string {
	nodes := x.s.nodes()
	rank := slices.Clone(x.hints)
	for _, n := range place.Rank(placeKey(x.ref.Extent), nodes) {
		rank = append(rank, n.ID)
	}
	doubtful := map[string]bool{}
	for _, m := range x.s.cluster.Fleet.Members() {
		doubtful[m.ID] = !m.Alive || x.s.peers.suspected(m.ID)
	}
	var ids, last []string
	for _, id := range rank {
		if id == x.s.self || slices.Contains(ids, id) || slices.Contains(last, id) {
			continue
		}
		if doubt, member := doubtful[id]; doubt || !member {
			last = append(last, id)
		} else {
			ids = append(ids, id)
		}
	}
	return append(ids, last...)
}

// search reads from the first node that has the bytes. All are asked one after the other, the
// next when one has failed or was silent for a while.
func (x *source) search(ctx context.Context, p []byte, off int64) error {
	ids := x.candidates()
	type answer struct {
		node string
		p    []byte
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(ids))
	var errs []error
	for asked, open := 0, 0; asked < len(ids) || open > 0; {
		var fired <-chan time.Time
		stop := func() {}
		if asked < len(ids) {
			node := ids[asked]
			asked++
			started := x.s.spawn(func() {
				buf := make([]byte, len(p))
				ctx, cancel := context.WithTimeout(ctx, x.s.cluster.ReplyTimeout)
				defer cancel()
				answers <- answer{node, buf, x.ask(ctx, node, buf, off)}
			})
			if !started {
				return ErrClosed
			}
			open++
			fired, stop = x.s.cluster.Clock.Timer(x.s.cluster.HedgeAfter)
		}
		select {
		case a := <-answers:
			open--
			if a.err == nil {
				stop()
				copy(p, a.p)
				x.s.peers.trust(a.node)
				x.mu.Lock()
				x.best = a.node
				x.mu.Unlock()
				return nil
			}
			errs = append(errs, x.failed(a.node, a.err))
		case <-fired:
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
		stop()
	}
	return verdict(errs)
}

// failed notes why a node did not give the bytes.
func (x *source) failed(node string, err error) error {
	if errors.Is(err, api.ErrUnreachable) {
		x.s.peers.suspect(node)
	}
	return &api.ReplicaError{Node: node, Err: err}
}

// verdict is what the errors of all nodes come to: nobody has it only if all say so.
func verdict(errs []error) error {
	var said []error
	for _, err := range errs {
		if !errors.Is(err, local.ErrNoExtent) {
			said = append(said, err)
		}
	}
	if len(said) == 0 {
		return local.ErrNoExtent
	}
	return errors.Join(said...)
}
