package blobfs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/blobfs/place"
	"github.com/steledb/stele/internal/crc"
)

// sumBytes is the chunk size of an extent's checksums.
const sumBytes = local.ChunkBytes

// replicatedWrite is one extent being written to several nodes: to the local disk and down
// branches. At first there is one branch, a chain of all the other nodes. When it fails, each of
// its live nodes becomes a branch of its own, and a replacement node is filled from the bytes
// written so far.
type replicatedWrite struct {
	s             *Store
	id            ExtentID
	offset        int64
	priorityBytes int64 // see api.Begin
	stream        api.StreamID

	localReplica *local.ExtentWriter // nil if there is no local replica
	branches     []*branch
	sums         []uint32 // of the chunks written so far
	length       int64
	// tail is the last bytes sent, kept if there is no local replica. It covers what may be
	// unacknowledged when the only nodes that received it die.
	tail   [][]byte
	tailAt int64
	// tried are the other nodes that have or had a part in this extent. A node that failed is not
	// tried again.
	tried map[string]bool

	epoch   uint64   // of the holder list
	planned int      // nodes on the holder list last sent
	sealed  []string // nodes that have sealed the extent
	ref     ExtentRef
	last    bool
}

// createExtent begins a local extent. If priorityBytes is not 0 the extent has high priority
// and that expected length.
func (s *Store) createExtent(id ExtentID, offset, priorityBytes int64) (*local.ExtentWriter, error) {
	if priorityBytes > 0 {
		return s.disks.CreateHighPriorityExtent(context.Background(), id, offset, priorityBytes)
	}
	return s.disks.CreateExtent(context.Background(), id, offset)
}

func (s *Store) newReplicatedWrite(id ExtentID, offset, priorityBytes int64) (*replicatedWrite, error) {
	x := &replicatedWrite{s: s, id: id, offset: offset, priorityBytes: priorityBytes, tried: map[string]bool{}}
	rand.Read(x.stream[:]) // never fails
	nodes := s.peers.Nodes()
	errLocal := errDraining
	if !slices.ContainsFunc(nodes, func(n place.Node) bool { return n.ID == s.self && n.Draining }) {
		x.localReplica, errLocal = s.createExtent(id, offset, priorityBytes)
	}
	if errLocal != nil && !local.RefusesExtents(errLocal) {
		return nil, errLocal
	}
	if chain := x.choose(x.missing()); len(chain) > 0 {
		if b, err := s.newBranch(x.begin(), chain); err != nil {
			s.peers.Suspect(chain[0])
			x.replace()
		} else {
			x.branches = []*branch{b}
		}
	}
	if x.localReplica != nil {
		return x, nil
	}
	// All nodes may be full. That error must be returned before the caller writes.
	for !x.settle() {
	}
	if len(x.branches) > 0 {
		return x, nil
	}
	if errors.Is(errLocal, errDraining) {
		// Better a local replica that has to be moved than none.
		if x.localReplica, errLocal = s.createExtent(id, offset, priorityBytes); errLocal == nil {
			return x, nil
		}
	}
	return nil, fmt.Errorf("no other node accepts the extent: %w", errLocal)
}

// errDraining is why a draining node keeps no replica.
var errDraining = fmt.Errorf("%w: this node is draining", ErrDiskFull)

func (x *replicatedWrite) begin() api.Begin {
	return api.Begin{Stream: x.stream, Extent: x.id, Offset: x.offset, HighPriority: x.priorityBytes}
}

// choose returns up to n more nodes for the extent. A high-priority extent may go to full nodes if
// there are not enough others.
func (x *replicatedWrite) choose(n int) []string {
	nodes := x.s.peers.Nodes()
	taken := x.replicas()
	nodes = slices.DeleteFunc(nodes, func(n place.Node) bool {
		return !slices.Contains(taken, n.ID) && (n.ID == x.s.self || x.tried[n.ID])
	})
	chosen := place.Choose(members.PlaceKey(x.id), nodes, taken, n)
	if x.priorityBytes > 0 && len(chosen) < n {
		chosen = place.ChooseFull(members.PlaceKey(x.id), nodes, taken, chosen, n)
	}
	var ids []string
	for _, n := range chosen {
		ids = append(ids, n.ID)
		x.tried[n.ID] = true
	}
	return ids
}

// replicas returns the nodes that have the extent or a part of it.
func (x *replicatedWrite) replicas() []string {
	ids := slices.Clone(x.sealed)
	if x.localReplica != nil && !slices.Contains(ids, x.s.self) {
		ids = append(ids, x.s.self)
	}
	for _, b := range x.branches {
		ids = append(ids, b.nodes...)
	}
	return ids
}

func (x *replicatedWrite) missing() int { return x.s.cluster.Replicas - len(x.replicas()) }

// Write implements local.ExtentSink.
func (x *replicatedWrite) Write(p []byte) error {
	for chunk := range slices.Chunk(p, sumBytes) {
		x.sums = append(x.sums, crc.Sum(chunk))
	}
	for piece := range slices.Chunk(p, pieceBytes) {
		at := x.length
		x.length += int64(len(piece))
		x.keepTail(piece)
		var failed []*branch
		for _, b := range x.branches {
			if b.send(piece, at, nil) != nil {
				failed = append(failed, b)
			}
		}
		if x.localReplica != nil {
			if err := x.localReplica.Write(piece); err != nil {
				if err := x.loseLocalReplica(err); err != nil {
					return err
				}
			}
		}
		if err := x.recoverBranches(failed); err != nil {
			return err
		}
	}
	return nil
}

// keepTail appends piece to the tail, which holds the window and two pieces.
func (x *replicatedWrite) keepTail(piece []byte) {
	if x.localReplica != nil {
		return
	}
	if len(x.tail) == 0 {
		x.tailAt = x.length - int64(len(piece))
	}
	x.tail = append(x.tail, bytes.Clone(piece))
	for x.length-x.tailAt > x.s.cluster.WindowBytes+2*pieceBytes {
		x.tailAt += int64(len(x.tail[0]))
		x.tail[0], x.tail = nil, x.tail[1:]
	}
}

// readTail reads p from the tail. It returns false if the tail does not hold all of p.
func (x *replicatedWrite) readTail(p []byte, off int64) bool {
	at := x.tailAt
	for _, piece := range x.tail {
		if in := off - at; in >= 0 && in < int64(len(piece)) {
			n := copy(p, piece[in:])
			p, off = p[n:], off+int64(n)
		}
		at += int64(len(piece))
	}
	return len(p) == 0
}

// loseLocalReplica stops writing the local replica after err. It returns err if there are no other
// replicas.
func (x *replicatedWrite) loseLocalReplica(err error) error {
	x.localReplica = nil
	if !local.RefusesExtents(err) || len(x.branches) == 0 {
		return err
	}
	x.s.log.Warn("stopped writing the local replica", "extent", x.id.String(), "err", err)
	return nil
}

// settle waits until everything sent is acknowledged and replaces the branches that failed. It
// returns false if any failed.
func (x *replicatedWrite) settle() bool {
	var failed []*branch
	for _, b := range x.branches {
		if b.drain() != nil {
			failed = append(failed, b)
		}
	}
	_ = x.recoverBranches(failed) // an error here means that no replica is left, which the caller checks
	return len(failed) == 0
}

// recoverBranches replaces failed branches by their live nodes and by new nodes. It fails if no replica is
// left.
func (x *replicatedWrite) recoverBranches(failed []*branch) error {
	for len(failed) > 0 {
		b := failed[0]
		failed = failed[1:]
		x.branches = slices.DeleteFunc(x.branches, func(o *branch) bool { return o == b })
		x.resumeNodes(b, b.failure())
	}
	x.replace()
	if x.localReplica == nil && len(x.branches) == 0 && len(x.sealed) == 0 {
		return fmt.Errorf("extent %s has lost all replicas: %w", x.id, api.ErrUnreachable)
	}
	return nil
}

// leaveFailed drops a node after err. A node that never received the stream, because a node before
// it in the chain failed, may be chosen again.
func (x *replicatedWrite) leaveFailed(node string, err error) {
	if errors.Is(err, api.ErrNoStream) {
		delete(x.tried, node)
		return
	}
	x.leaveNode(node, err)
}

// leaveNode stops writing to a node and aborts its stream. The node removes what it has received.
func (x *replicatedWrite) leaveNode(node string, err error) {
	x.s.log.Warn("stopped writing a replica", "extent", x.id.String(), "node", node, "err", err)
	if errors.Is(err, api.ErrUnreachable) {
		x.s.peers.Suspect(node)
	}
	x.s.abortInBackground([]string{node}, x.stream)
}

// resumeNodes resumes the stream on the nodes of a failed branch: each becomes a branch of its own.
// Nodes that have the most bytes come first, since the others may have to be filled from them.
func (x *replicatedWrite) resumeNodes(b *branch, err error) {
	bad, sure := b.blame(err)
	type resumed struct {
		b    *branch
		have int64
		err  error
	}
	all := make([]resumed, len(b.nodes))
	var group sync.WaitGroup
	for i, node := range b.nodes {
		if slices.Contains(x.sealed, node) {
			continue
		}
		if node == bad && sure {
			all[i].err = err
			continue
		}
		group.Go(func() {
			r := &all[i]
			r.b, r.have, r.err = x.resume(node)
		})
	}
	group.Wait()
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(all[j].have, all[i].have) })
	for _, i := range order {
		node, r := b.nodes[i], all[i]
		if r.b == nil && r.err == nil {
			continue // it has sealed the extent
		}
		if r.err == nil {
			r.err = x.fill(r.b, r.have)
		}
		switch {
		case r.err == nil:
			x.branches = append(x.branches, r.b)
		case node == bad && sure:
			x.leaveNode(node, r.err)
		case !x.hasSealed(node):
			x.leaveFailed(node, r.err)
		}
	}
}

// resume makes a branch of one node that has the stream and returns how many bytes the node has.
func (x *replicatedWrite) resume(node string) (*branch, int64, error) {
	ctx, cancel := context.WithTimeout(x.s.ctx, x.s.cluster.ReplyTimeout)
	defer cancel()
	b, err := x.s.joinBranch(ctx, x.stream, []string{node})
	if err != nil {
		return nil, 0, err
	}
	have, err := b.peer.Resume(ctx, x.stream)
	return b, have, err
}

// replace adds nodes until no replica is missing or no node is left to try.
func (x *replicatedWrite) replace() {
	for x.missing() > 0 {
		chosen := x.choose(1)
		if len(chosen) == 0 {
			return
		}
		b, err := x.s.newBranch(x.begin(), chosen)
		if err == nil {
			err = x.fill(b, 0)
		}
		if err != nil {
			x.leaveNode(chosen[0], err)
			continue
		}
		x.branches = append(x.branches, b)
	}
}

// fill sends a branch the bytes from offset from on, read back from another replica, and waits
// until they are acknowledged.
func (x *replicatedWrite) fill(b *branch, from int64) error {
	buf := make([]byte, pieceBytes)
	for at := from; at < x.length; {
		p := buf[:min(pieceBytes, x.length-at)]
		if at%pieceBytes != 0 {
			p = p[:min(int64(len(p)), pieceBytes-at%pieceBytes)]
		}
		if err := x.readBack(p, at); err != nil {
			return err
		}
		if err := b.send(p, at, nil); err != nil {
			return err
		}
		at += int64(len(p))
	}
	return b.drain()
}

// readBack reads bytes written earlier from any replica. Each node has ReplyTimeout to answer: one
// that is silent leaves the others their time.
func (x *replicatedWrite) readBack(p []byte, off int64) error {
	err := errors.New("no replica has the bytes")
	if x.localReplica != nil {
		if err = x.localReplica.ReadBack(p, off); err == nil {
			return nil
		}
	}
	if x.readTail(p, off) {
		return nil
	}
	for _, b := range x.branches {
		if err = b.drain(); err != nil {
			continue // handled by the next recoverBranches
		}
		if err = x.reread(b, p, off); err == nil {
			return x.verifyChunks(p, off)
		}
	}
	for _, node := range x.sealed {
		if err = x.readSealed(node, p, off); err == nil {
			return nil
		}
	}
	return fmt.Errorf("read back extent %s: %w", x.id, err)
}

// reread reads bytes of the stream from the first node of a branch.
func (x *replicatedWrite) reread(b *branch, p []byte, off int64) error {
	ctx, cancel := context.WithTimeout(x.s.ctx, x.s.cluster.ReplyTimeout)
	defer cancel()
	return b.peer.Reread(ctx, x.stream, p, off)
}

// readSealed reads bytes of the extent from a node that has sealed it.
func (x *replicatedWrite) readSealed(node string, p []byte, off int64) error {
	ctx, cancel := context.WithTimeout(x.s.ctx, x.s.cluster.ReplyTimeout)
	defer cancel()
	peer, err := x.s.peers.Peer(ctx, node)
	if err != nil {
		return err
	}
	return peer.Read(ctx, api.Ref{Extent: x.id, CRC: x.ref.CRC}, p, off)
}

// verifyChunks verifies p, which consists of whole chunks, against their checksums.
func (x *replicatedWrite) verifyChunks(p []byte, off int64) error {
	i := off / sumBytes
	for chunk := range slices.Chunk(p, sumBytes) {
		if got := crc.Sum(chunk); got != x.sums[i] {
			return &CorruptError{File: x.id.String(), Offset: i * sumBytes, Got: got, Want: x.sums[i]}
		}
		i++
	}
	return nil
}

// tableCRC returns the checksum of the extent's chunk table.
func (x *replicatedWrite) tableCRC() uint32 {
	var sum uint32
	var b [4]byte
	for _, c := range x.sums {
		binary.LittleEndian.PutUint32(b[:], c)
		sum = crc.Update(sum, b[:])
	}
	return sum
}
