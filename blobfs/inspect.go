package blobfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// ReplicaState is the state of a replica on a node that should have it.
type ReplicaState uint8

// The states of a replica.
const (
	ReplicaGood        ReplicaState = iota + 1 // present, with the expected checksum
	ReplicaMissing                             // the node has no replica
	ReplicaCorrupt                             // corrupt
	ReplicaUnreachable                         // the node did not answer
)

// ReplicaReport is the result for one replica.
type ReplicaReport struct {
	Node  string
	State ReplicaState
	Err   error // why the replica is not good
}

// ExtentReport is the result for one extent.
type ExtentReport struct {
	Index    int   // in its blob or log
	Length   int64 // -1 for a log extent that is still open
	Wanted   int   // how many replicas there should be; 0 for a sealed extent of a log without data
	Replicas []ReplicaReport
}

// Count returns how many replicas are in a state.
func (r *ExtentReport) Count(state ReplicaState) int {
	n := 0
	for _, x := range r.Replicas {
		if x.State == state {
			n++
		}
	}
	return n
}

// Bounds of an inspection.
const (
	inspectExtents = 8               // extents inspected at a time
	verifyTimeout  = 2 * time.Minute // of one replica: 64 MiB from a disk that is busy
)

// Wanted returns how many replicas an extent should have: the replication factor, or the number of
// members that are not draining if that is lower.
func (s *Store) Wanted() int {
	if s.cluster.Membership == nil {
		return 1
	}
	n := 0
	for _, m := range s.peers.Members() {
		if !m.Draining {
			n++
		}
	}
	return max(1, min(s.cluster.Replicas, n))
}

// Inspect asks all nodes that have or should have an extent for the state of its replica. With deep
// each node reads its replica whole and verifies it. The result is in the order of refs.
func (s *Store) Inspect(ctx context.Context, blob ID, refs []ExtentRef, deep bool) []ExtentReport {
	reports := make([]ExtentReport, len(refs))
	var silent sync.Map
	s.inspect(ctx, len(refs), func(ctx context.Context, i int) {
		ref := &refs[i]
		q := &replicaQuery{s: s, silent: &silent, check: func(ctx context.Context, p api.Peer) (Holders, error) {
			return inspectExtent(ctx, p, api.Ref{Extent: ExtentID{Blob: blob, Index: ref.Index}, CRC: ref.CRC}, deep)
		}, deep: deep}
		reports[i] = ExtentReport{Index: ref.Index, Length: ref.Length, Wanted: s.Wanted(), Replicas: q.run(ctx, ref.Replicas)}
	})
	return reports
}

// inspectExtent returns the holder list of a node's replica, and an error if the replica is not
// good.
func inspectExtent(ctx context.Context, p api.Peer, ref api.Ref, deep bool) (Holders, error) {
	st, err := p.Stat(ctx, ref.Extent)
	switch {
	case err != nil:
		return Holders{}, err
	case st.CRC != ref.CRC:
		return st.Holders, &CorruptError{File: ref.Extent.String(), Got: st.CRC, Want: ref.CRC}
	case deep:
		return st.Holders, p.Verify(ctx, ref)
	}
	return st.Holders, nil
}

// InspectLog inspects the extents of a log in the same way; the log's list names their replicas.
func (s *Store) InspectLog(ctx context.Context, log ID, l *logproto.List, deep bool) []ExtentReport {
	reports := make([]ExtentReport, len(l.Extents))
	var silent sync.Map
	s.inspect(ctx, len(l.Extents), func(ctx context.Context, i int) {
		x := &l.Extents[i]
		q := &replicaQuery{s: s, silent: &silent, check: func(ctx context.Context, p api.Peer) (Holders, error) {
			return Holders{}, inspectLogExtent(ctx, p, log, x, deep)
		}, deep: deep, namedOnly: true}
		reports[i] = ExtentReport{Index: int(x.Seq), Length: x.Length, Wanted: s.Wanted(), Replicas: q.run(ctx, x.Replicas)}
		if x.Length == 0 { // sealed without data: nothing needs its replicas, and it gets no new ones
			reports[i].Wanted = 0
		}
	})
	return reports
}

func inspectLogExtent(ctx context.Context, p api.Peer, log ID, x *logproto.Extent, deep bool) error {
	info, err := p.StatLog(ctx, log, x.Seq)
	switch {
	case err != nil:
		return err
	case info.Damage != nil:
		return &CorruptError{File: fmt.Sprintf("%s.%d", log, x.Seq), Reason: info.Damage.Error()}
	case x.Length != logproto.Open && info.Sealed && info.Length != x.Length:
		return &CorruptError{File: fmt.Sprintf("%s.%d", log, x.Seq), Reason: fmt.Sprintf("%d bytes instead of %d", info.Length, x.Length)}
	case deep:
		return p.VerifyLog(ctx, log, x.Seq)
	}
	return nil
}

// inspect calls look for each of n extents, inspectExtents at a time.
func (s *Store) inspect(ctx context.Context, n int, look func(ctx context.Context, i int)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, inspectExtents)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			look(ctx, i)
		})
	}
	group.Wait()
}

// replicaQuery asks nodes about one extent.
type replicaQuery struct {
	s     *Store
	check func(ctx context.Context, p api.Peer) (Holders, error)
	deep  bool
	// silent are the nodes that did not answer during this inspection. They are not asked again.
	silent    *sync.Map
	namedOnly bool // ask only the nodes named at first

	found []ReplicaReport // one report per node asked

	mu   sync.Mutex // guards list
	list Holders    // the newest
}

// run asks the named nodes, then those on the holder lists that these return. If there are too few
// good replicas, it asks all nodes. It reports the nodes that should have a replica and any others
// that have one.
func (q *replicaQuery) run(ctx context.Context, named []string) []ReplicaReport {
	s := q.s
	expected := named
	if s.cluster.Membership == nil {
		expected = []string{s.self}
	}
	q.ask(ctx, expected)
	if !q.namedOnly {
		q.ask(ctx, []string{s.self})
		q.ask(ctx, q.list.Nodes)
		if x := (ExtentReport{Replicas: q.found}); x.Count(ReplicaGood) < s.Wanted() && s.cluster.Membership != nil {
			q.ask(ctx, s.peers.Others())
			q.ask(ctx, q.list.Nodes)
		}
	}
	if q.list.Epoch > 0 {
		expected = q.list.Nodes
	}
	var found []ReplicaReport
	for _, node := range expected {
		if i := q.index(node); i >= 0 {
			found = append(found, q.found[i])
		}
	}
	for _, r := range q.found {
		if !slices.Contains(expected, r.Node) && (r.State == ReplicaGood || r.State == ReplicaCorrupt) {
			found = append(found, r)
		}
	}
	return found
}

func (q *replicaQuery) index(node string) int {
	return slices.IndexFunc(q.found, func(r ReplicaReport) bool { return r.Node == node })
}

// ask asks the given nodes, except those asked before.
func (q *replicaQuery) ask(ctx context.Context, nodes []string) {
	first := len(q.found)
	for _, node := range nodes {
		if q.index(node) < 0 {
			q.found = append(q.found, ReplicaReport{Node: node})
		}
	}
	var group sync.WaitGroup
	for i := first; i < len(q.found); i++ {
		group.Go(func() {
			r := &q.found[i]
			var holders Holders
			holders, r.Err = q.askOne(ctx, r.Node)
			r.State = stateOf(r.Err)
			q.mu.Lock()
			defer q.mu.Unlock()
			if holders.Epoch > q.list.Epoch {
				q.list = holders
			}
		})
	}
	group.Wait()
}

func (q *replicaQuery) askOne(ctx context.Context, node string) (Holders, error) {
	s := q.s
	if node == s.self || s.cluster.Membership == nil {
		return q.check(ctx, s.Peer())
	}
	if !slices.Contains(s.peers.Others(), node) {
		return Holders{}, fmt.Errorf("%w: %s is no longer a member", local.ErrNoExtent, node)
	}
	if _, before := q.silent.Load(node); before || s.peers.Suspected(node) && !s.peers.BelievedAlive(node) {
		return Holders{}, fmt.Errorf("%w: it did not answer a moment ago", api.ErrUnreachable)
	}
	timeout := s.cluster.ReplyTimeout
	if q.deep {
		timeout = verifyTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p, err := s.peers.Peer(ctx, node)
	var holders Holders
	if err == nil {
		holders, err = q.check(ctx, p)
	}
	if errors.Is(err, api.ErrUnreachable) && !q.deep {
		s.peers.Suspect(node)
		q.silent.Store(node, true)
	}
	return holders, err
}

func stateOf(err error) ReplicaState {
	var corrupt *CorruptError
	switch {
	case err == nil:
		return ReplicaGood
	case errors.As(err, &corrupt):
		return ReplicaCorrupt
	case errors.Is(err, local.ErrNoExtent), errors.Is(err, logproto.ErrNoExtent):
		return ReplicaMissing
	}
	return ReplicaUnreachable
}

// Identify sets the checksum of ref, which lists do not have, to that of the first replica that
// answers.
func (s *Store) Identify(ctx context.Context, blob ID, ref *ExtentRef) error {
	var errs []error
	for _, node := range ref.Replicas {
		p, err := s.Peer(), error(nil)
		if node != s.self {
			p, err = s.peers.Peer(ctx, node)
		}
		var st local.ExtentStat
		if err == nil {
			st, err = p.Stat(ctx, ExtentID{Blob: blob, Index: ref.Index})
		}
		if err == nil {
			ref.CRC = st.CRC
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
