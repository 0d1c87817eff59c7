package logproto

import (
	"slices"

	"github.com/steledb/stele/internal/invariant"
)

// Meta is the durable state of a replica apart from its bytes.
type Meta struct {
	Epoch   uint64 // of the writer that opened it
	Fence   uint64 // highest epoch that has fenced it, 0 if none has
	Started bool   // something was appended, so Start is valid
	Start   int64  // position of its first byte in the log
	Sealed  bool   // it was cut: Length is final
	Length  int64  // bytes of frames, if Sealed
}

// OpenRequest creates an empty replica of an extent.
type OpenRequest struct {
	Seq, Epoch uint64
}

// AppendRequest appends the bytes of positions Pos to End to an extent that starts at Start.
type AppendRequest struct {
	Seq, Epoch      uint64
	Start, Pos, End int64
}

// FenceRequest stops writers of lower epochs.
type FenceRequest struct {
	Epoch uint64
}

// CutRequest has what the list records about a sealed extent.
type CutRequest struct {
	Seq, Epoch    uint64
	Start, Length int64
}

// State is the state of a replica as reported after a fence.
type State struct {
	Seq     uint64
	Started bool
	Start   int64
	Length  int64 // bytes of durable frames
	// Scanned means that the state was read from the file after a restart. Corruption at the end
	// looks like a torn write, so there may have been more bytes.
	Scanned bool
}

// Replica is one node's part of a log. The result of a Next method has to be made durable and then
// passed to Commit. No other method may be called for the same extent in between.
type Replica struct {
	// Fence is the highest epoch seen. It is at least that of each extent.
	Fence   uint64
	Extents []*ReplicaExtent // by Seq
}

// ReplicaExtent is one node's replica of one extent.
type ReplicaExtent struct {
	Seq uint64
	Meta
	Durable int64 // bytes of durable frames
	Queued  int64 // bytes of accepted frames; at least Durable
	Closed  bool  // accepts no appends: the node was restarted, or the disk failed
}

// Find returns the replica of an extent, nil if there is none.
func (r *Replica) Find(seq uint64) *ReplicaExtent {
	i, ok := slices.BinarySearchFunc(r.Extents, seq, bySeq)
	if !ok {
		return nil
	}
	return r.Extents[i]
}

func bySeq(x *ReplicaExtent, seq uint64) int {
	switch {
	case x.Seq < seq:
		return -1
	case x.Seq > seq:
		return 1
	}
	return 0
}

// NextOpen returns the initial Meta of a new replica. It returns false if the same writer has
// opened the replica already.
func (r *Replica) NextOpen(m OpenRequest) (Meta, bool, error) {
	if m.Epoch < r.Fence && !planted(flawOpenFenced) {
		return Meta{}, false, &FencedError{Epoch: r.Fence}
	}
	if x := r.Find(m.Seq); x != nil {
		if x.Epoch != m.Epoch || x.Started || x.Sealed {
			return Meta{}, false, ErrExtentExists
		}
		return x.Meta, false, nil
	}
	return Meta{Epoch: m.Epoch}, true, nil
}

// Add adds a replica that is new or was found on disk.
func (r *Replica) Add(x *ReplicaExtent) {
	i, ok := slices.BinarySearchFunc(r.Extents, x.Seq, bySeq)
	if ok {
		panic("BUG: two replicas of one log extent on one node")
	}
	r.Extents = slices.Insert(r.Extents, i, x)
	r.Fence = max(r.Fence, x.Epoch, x.Fence)
}

// Remove removes the replica of an extent.
func (r *Replica) Remove(seq uint64) {
	r.Extents = slices.DeleteFunc(r.Extents, func(x *ReplicaExtent) bool { return x.Seq == seq })
}

// BeginFence rejects a fence of an old epoch. Before the answer all extents of lower epochs have to
// be fenced, each by NextFence and Commit.
func (r *Replica) BeginFence(m FenceRequest) error {
	if m.Epoch < r.Fence && !planted(flawFenceBackward) {
		return &FencedError{Epoch: r.Fence}
	}
	r.Fence = m.Epoch
	return nil
}

// States returns the answer to a fence of that epoch, once it is durable.
func (r *Replica) States(m FenceRequest) []State {
	var all []State
	for _, x := range r.Extents {
		if x.Sealed || x.Fence >= m.Epoch {
			all = append(all, x.State())
		}
	}
	return all
}

// Append accepts bytes, which the caller then writes; Flushed reports when they are durable. If
// again is true they were accepted before and may not be durable yet.
func (x *ReplicaExtent) Append(m AppendRequest) (again bool, err error) {
	switch {
	case x.Fence > m.Epoch && !planted(flawAppendFenced):
		return false, &FencedError{Epoch: x.Fence}
	case x.Epoch > m.Epoch:
		return false, &FencedError{Epoch: x.Epoch}
	case x.Epoch < m.Epoch:
		return false, ErrNoExtent
	case x.Sealed && !planted(flawAppendCut), x.Closed:
		return false, ErrExtentClosed
	}
	started := x.Started || x.Queued > 0
	if !started {
		if m.Pos != m.Start && !planted(flawStartAnywhere) {
			return false, ErrGap
		}
		x.Start = m.Start
		if planted(flawStartAnywhere) {
			x.Start = m.Pos
		}
	}
	at := x.Start + x.Queued
	switch {
	case m.Start != x.Start && !planted(flawStartAnywhere), m.Pos > m.End:
		return false, ErrMismatch
	case m.End <= at && started:
		return true, nil
	case m.Pos != at && !planted(flawGap):
		return false, ErrGap
	}
	x.Queued += m.End - m.Pos
	invariant.Check(x.Queued >= x.Durable, "a replica has %d durable bytes of %d", x.Durable, x.Queued)
	return false, nil
}

// Flushed reports that the first length bytes of the accepted ones are durable.
func (x *ReplicaExtent) Flushed(length int64) {
	invariant.Check(length >= x.Durable, "a replica of %d durable bytes has %d", x.Durable, length)
	x.Started = true
	x.Durable = length
}

// Restart sets the state after a restart of the node: the replica has length bytes, all durable,
// and accepts no appends. They may include bytes that were queued and not acknowledged.
func (x *ReplicaExtent) Restart(meta Meta, length int64) {
	x.Meta, x.Durable, x.Queued, x.Closed = meta, length, length, true
}

// NextFence returns the Meta of the fenced extent. It returns false if it is already fenced or
// needs no fence. Queued bytes must not be acknowledged afterwards.
func (x *ReplicaExtent) NextFence(m FenceRequest) (Meta, bool) {
	meta := x.Meta
	if x.Sealed || x.Epoch >= m.Epoch || x.Fence >= m.Epoch {
		return meta, false
	}
	meta.Fence = m.Epoch
	return meta, true
}

// NextCut returns the Meta of the cut extent. It returns false if it was cut before, and a
// *ShortError if the replica does not have the bytes and has to be refilled.
func (x *ReplicaExtent) NextCut(m CutRequest) (Meta, bool, error) {
	meta := x.Meta
	switch {
	case x.Sealed && (x.Length != m.Length || x.Start != m.Start):
		return meta, false, ErrMismatch
	case x.Sealed:
		return meta, false, nil
	case m.Epoch < x.Epoch:
		return meta, false, &FencedError{Epoch: x.Epoch}
	case x.Durable < m.Length && !planted(flawCutShort):
		return meta, false, &ShortError{Length: x.usable(m)}
	case m.Length > 0 && x.Start != m.Start:
		return meta, false, &ShortError{}
	}
	return x.cut(m), true, nil
}

// NextRefill returns the Meta of the extent after it has been given the missing bytes from offset
// from on. It returns false if it was cut before.
func (x *ReplicaExtent) NextRefill(m CutRequest) (meta Meta, from int64, need bool, err error) {
	switch {
	case x.Sealed && (x.Length != m.Length || x.Start != m.Start):
		return x.Meta, 0, false, ErrMismatch
	case x.Sealed:
		return x.Meta, 0, false, nil
	case m.Epoch < x.Epoch:
		return x.Meta, 0, false, &FencedError{Epoch: x.Epoch}
	}
	return x.cut(m), min(x.usable(m), m.Length), true, nil
}

// usable returns how many of the replica's bytes belong to the extent.
func (x *ReplicaExtent) usable(m CutRequest) int64 {
	if !x.Started || x.Start != m.Start {
		return 0
	}
	return x.Durable
}

func (x *ReplicaExtent) cut(m CutRequest) Meta {
	meta := x.Meta
	meta.Fence = max(meta.Fence, m.Epoch)
	meta.Started, meta.Start = true, m.Start
	meta.Sealed, meta.Length = true, m.Length
	return meta
}

// Commit reports that meta is durable. Queued bytes that are not durable are discarded.
func (r *Replica) Commit(x *ReplicaExtent, meta Meta) {
	x.checkNext(meta)
	x.Meta = meta
	if meta.Sealed {
		x.Durable = meta.Length
	}
	if meta.Sealed || meta.Fence > meta.Epoch {
		x.Queued = x.Durable
	}
	r.Fence = max(r.Fence, meta.Epoch, meta.Fence)
}

// checkNext asserts that neither the epoch nor the fence of the replica decreases, and that a sealed
// replica keeps its length.
func (x *ReplicaExtent) checkNext(meta Meta) {
	invariant.Check(meta.Epoch >= x.Epoch, "a replica of epoch %d gets epoch %d", int64(x.Epoch), int64(meta.Epoch))
	invariant.Check(meta.Fence >= x.Fence, "a replica fenced at epoch %d gets fence %d", int64(x.Fence), int64(meta.Fence))
	invariant.Check(!x.Sealed || meta.Sealed && meta.Length == x.Length, "a replica sealed with %d bytes gets length %d", x.Length, meta.Length)
}

// State returns the state of the replica.
func (x *ReplicaExtent) State() State {
	return State{Seq: x.Seq, Started: x.Started, Start: x.Start, Length: x.Durable, Scanned: x.Closed && !x.Sealed}
}

// Read returns ErrUncut unless the replica was cut to this start and length.
func (x *ReplicaExtent) Read(start, length int64) error {
	if planted(flawReadUncut) && x.Started {
		return nil
	}
	if !x.Sealed || x.Start != start || x.Length != length {
		return ErrUncut
	}
	return nil
}
