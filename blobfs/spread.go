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
	"github.com/steledb/stele/blobfs/place"
	"github.com/steledb/stele/internal/crc"
)

// sumBytes is the unit of an extent's checksums, see package local.
const sumBytes = 64 << 10

// spread is one extent on its way to several nodes: to the disks here, and down branches.
// At first there is one branch, a chain of all the other nodes. When it fails, those of
// its nodes that live get a branch each, and a new one is filled from what is here.
type spread struct {
	s      *Store
	id     ExtentID
	offset int64
	vital  int64 // see api.Begin
	stream api.StreamID

	here     *local.ExtentWriter // nil if this node keeps no replica
	branches []*branch
	sums     []uint32 // of the chunks so far
	length   int64
	// tail is what was sent last, if there is no replica here: what may be under way when the
	// only nodes that got it die.
	tail   [][]byte
	tailAt int64
	// tried are the other nodes that have, or had, a part in this extent: none that
	// failed is tried again.
	tried map[string]bool

	epoch   uint64   // of the list of holders
	planned int      // length of the last one given out
	sealed  []string // where the extent is
	ref     ExtentRef
	last    bool
}

// createExtent begins an extent here, a vital one if it is expected to have that many bytes.
func (s *Store) createExtent(id ExtentID, offset, vital int64) (*local.ExtentWriter, error) {
	if vital > 0 {
		return s.disks.CreateVitalExtent(context.Background(), id, offset, vital)
	}
	return s.disks.CreateExtent(context.Background(), id, offset)
}

func (s *Store) newSpread(id ExtentID, offset, vital int64) (*spread, error) {
	x := &spread{s: s, id: id, offset: offset, vital: vital, tried: map[string]bool{}}
	rand.Read(x.stream[:]) // never fails
	nodes := s.nodes()
	errHere := errLeaving
	if !slices.ContainsFunc(nodes, func(n place.Node) bool { return n.ID == s.self && n.Leaving }) {
		x.here, errHere = s.createExtent(id, offset, vital)
	}
	if errHere != nil && !goesElsewhere(errHere) {
		return nil, errHere
	}
	if chain := x.choose(x.missing()); len(chain) > 0 {
		if b, err := s.newBranch(x.begin(), chain); err != nil {
			s.peers.suspect(chain[0])
			x.replace()
		} else {
			x.branches = []*branch{b}
		}
	}
	if x.here != nil {
		return x, nil
	}
	// Nobody has room, perhaps: that must be told before the caller goes on.
	for !x.settle() {
	}
	if len(x.branches) > 0 {
		return x, nil
	}
	if errors.Is(errHere, errLeaving) {
		// Better here, to be moved, than nowhere.
		if x.here, errHere = s.createExtent(id, offset, vital); errHere == nil {
			return x, nil
		}
	}
	return nil, fmt.Errorf("no other node takes the extent: %w", errHere)
}

// errLeaving is why a node that leaves keeps no replica.
var errLeaving = fmt.Errorf("%w: this node is leaving", ErrDiskFull)

// goesElsewhere tells whether an error of the disks here leaves it to other nodes.
func goesElsewhere(err error) bool {
	return errors.Is(err, ErrDiskFull) || errors.Is(err, ErrFolderRetired)
}

func (x *spread) begin() api.Begin {
	return api.Begin{Stream: x.stream, Extent: x.id, Offset: x.offset, Vital: x.vital}
}

// choose returns n more nodes for the extent. Full ones get it if it is vital and there are no others.
func (x *spread) choose(n int) []string {
	nodes := x.s.nodes()
	taken := x.replicas()
	nodes = slices.DeleteFunc(nodes, func(n place.Node) bool {
		return !slices.Contains(taken, n.ID) && (n.ID == x.s.self || x.tried[n.ID])
	})
	chosen := place.Choose(placeKey(x.id), nodes, taken, n)
	if x.vital > 0 && len(chosen) < n {
		chosen = chooseFull(placeKey(x.id), nodes, taken, chosen, n)
	}
	var ids []string
	for _, n := range chosen {
		ids = append(ids, n.ID)
		x.tried[n.ID] = true
	}
	return ids
}

// chooseFull returns nodes that were chosen and more, full ones, up to n.
func chooseFull(key place.Key, nodes []place.Node, taken []string, chosen []place.Node, n int) []place.Node {
	taken = slices.Clone(taken)
	for _, x := range chosen {
		taken = append(taken, x.ID)
	}
	all := slices.Clone(nodes)
	for i := range all {
		all[i].Full = false
	}
	return append(chosen, place.Choose(key, all, taken, n-len(chosen))...)
}

// replicas returns the nodes that have a part of the extent, or all of it.
func (x *spread) replicas() []string {
	ids := slices.Clone(x.sealed)
	if x.here != nil && !slices.Contains(ids, x.s.self) {
		ids = append(ids, x.s.self)
	}
	for _, b := range x.branches {
		ids = append(ids, b.nodes...)
	}
	return ids
}

func (x *spread) missing() int { return x.s.cluster.Replicas - len(x.replicas()) }

// Write implements local.ExtentSink.
func (x *spread) Write(p []byte) error {
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
		if x.here != nil {
			if err := x.here.Write(piece); err != nil {
				if err := x.loseHere(err); err != nil {
					return err
				}
			}
		}
		if err := x.mend(failed); err != nil {
			return err
		}
	}
	return nil
}

// keepTail keeps as much as may be under way, and a piece.
func (x *spread) keepTail(piece []byte) {
	if x.here != nil {
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

// readTail reads from the tail; false if it does not hold all of p.
func (x *spread) readTail(p []byte, off int64) bool {
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

// loseHere goes on without a replica here, if there are others.
func (x *spread) loseHere(err error) error {
	x.here = nil
	if !goesElsewhere(err) || len(x.branches) == 0 {
		return err
	}
	x.s.log.Warn("extent goes on without a replica here", "extent", x.id.String(), "err", err)
	return nil
}

// settle waits until all that was sent is answered, and mends what failed; false if something
// had to be.
func (x *spread) settle() bool {
	var failed []*branch
	for _, b := range x.branches {
		if b.drain() != nil {
			failed = append(failed, b)
		}
	}
	_ = x.mend(failed) // of no consequence while there is nothing to lose
	return len(failed) == 0
}

// mend replaces the branches that failed by their nodes that live, and by new ones. It fails
// when nothing is left.
func (x *spread) mend(failed []*branch) error {
	for len(failed) > 0 {
		b := failed[0]
		failed = failed[1:]
		x.branches = slices.DeleteFunc(x.branches, func(o *branch) bool { return o == b })
		x.rescue(b, b.failure())
	}
	x.replace()
	if x.here == nil && len(x.branches) == 0 && len(x.sealed) == 0 {
		return fmt.Errorf("no replica of extent %s is left: %w", x.id, api.ErrUnreachable)
	}
	return nil
}

// abandon gives a node up that failed. One that has not even heard of the stream, since a
// node before it failed, has not: it may be chosen again.
func (x *spread) abandon(node string, err error) {
	if errors.Is(err, api.ErrNoStream) {
		delete(x.tried, node)
		return
	}
	x.giveUp(node, err)
}

// giveUp has nothing more to do with a node.
func (x *spread) giveUp(node string, err error) {
	x.s.log.Warn("node gets no replica", "extent", x.id.String(), "node", node, "err", err)
	if errors.Is(err, api.ErrUnreachable) {
		x.s.peers.suspect(node)
	}
	x.s.abortLater([]string{node}, x.stream)
}

// rescue takes over the nodes of a branch that still have the stream: each becomes a branch of
// its own. Those that have most come first, as the others may have to be filled from them.
func (x *spread) rescue(b *branch, err error) {
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
			continue // it has sealed
		}
		if r.err == nil {
			r.err = x.fill(r.b, r.have)
		}
		switch {
		case r.err == nil:
			x.branches = append(x.branches, r.b)
		case node == bad && sure:
			x.giveUp(node, r.err)
		case !x.hasSealed(node):
			x.abandon(node, r.err)
		}
	}
}

// resume makes a branch of one node that has the stream, and returns how much of it.
func (x *spread) resume(node string) (*branch, int64, error) {
	ctx, cancel := context.WithTimeout(x.s.ctx, x.s.cluster.ReplyTimeout)
	defer cancel()
	b, err := x.s.joinBranch(ctx, x.stream, []string{node})
	if err != nil {
		return nil, 0, err
	}
	have, err := b.peer.Resume(ctx, x.stream)
	return b, have, err
}

// replace adds nodes for those that are missing, as long as there are any.
func (x *spread) replace() {
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
			x.giveUp(chosen[0], err)
			continue
		}
		x.branches = append(x.branches, b)
	}
}

// fill sends a branch what is missing to it, read back from here or from another node, and
// waits until it is there.
func (x *spread) fill(b *branch, from int64) error {
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

// readBack reads what was written from wherever it is.
func (x *spread) readBack(p []byte, off int64) error {
	err := errors.New("nobody has it")
	if x.here != nil {
		if err = x.here.ReadBack(p, off); err == nil {
			return nil
		}
	}
	if x.readTail(p, off) {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.s.ctx, x.s.cluster.ReplyTimeout)
	defer cancel()
	for _, b := range x.branches {
		if err = b.drain(); err != nil {
			continue // its turn to be mended comes
		}
		if err = b.peer.Reread(ctx, x.stream, p, off); err == nil {
			return x.prove(p, off)
		}
	}
	for _, node := range x.sealed {
		if peer, errPeer := x.s.peer(ctx, node); errPeer == nil {
			if err = peer.Read(ctx, api.Ref{Extent: x.id, CRC: x.ref.CRC}, p, off); err == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("read back extent %s: %w", x.id, err)
}

// prove checks bytes of whole chunks by the checksums taken of them.
func (x *spread) prove(p []byte, off int64) error {
	i := off / sumBytes
	for chunk := range slices.Chunk(p, sumBytes) {
		if got := crc.Sum(chunk); got != x.sums[i] {
			return &CorruptError{File: x.id.String(), Offset: i * sumBytes, Got: got, Want: x.sums[i]}
		}
		i++
	}
	return nil
}

// tableCRC is the checksum of the extent's chunk table.
func (x *spread) tableCRC() uint32 {
	var sum uint32
	var b [4]byte
	for _, c := range x.sums {
		binary.LittleEndian.PutUint32(b[:], c)
		sum = crc.Update(sum, b[:])
	}
	return sum
}
