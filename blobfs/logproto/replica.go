package logproto

import "slices"

// Meta is what a replica durably knows of its extent beside the bytes.
type Meta struct {
	Epoch   uint64 // of who opened it
	Fence   uint64 // highest epoch that has fenced it, 0 if none
	Started bool   // something was appended, so Start is known
	Start   int64  // position in the log of its first byte
	Sealed  bool   // it was cut: Length is for good
	Length  int64  // bytes of frames, once Sealed
}

// OpenRequest makes a replica of an extent, empty.
type OpenRequest struct {
	Seq, Epoch uint64
}

// AppendRequest adds the bytes of positions Pos to End to an extent that starts at Start.
type AppendRequest struct {
	Seq, Epoch      uint64
	Start, Pos, End int64
}

// FenceRequest stops writers of lower epochs.
type FenceRequest struct {
	Epoch uint64
}

// CutRequest tells what the list says of an extent that is sealed.
type CutRequest struct {
	Seq, Epoch    uint64
	Start, Length int64
}

// State is what a fenced replica tells of an extent.
type State struct {
	Seq     uint64
	Started bool
	Start   int64
	Length  int64 // bytes of frames that are durable
	// Scanned tells that this is what a look at the file has found after a restart. Rot at
	// the end looks like what a crash has torn: there may have been more.
	Scanned bool
}

// Replica is one node's part of a log. What the methods that begin with Next return is to
// be made durable, and then given to Commit; nothing else may be asked of that
// extent in between.
type Replica struct {
	// Fence is the highest epoch that was seen. It is at least that of each extent.
	Fence   uint64
	Extents []*ReplicaExtent // by Seq
}

// ReplicaExtent is one node's replica of one extent.
type ReplicaExtent struct {
	Seq uint64
	Meta
	Durable int64 // bytes of frames that are on disk
	Queued  int64 // bytes of frames that were accepted; at least Durable
	Closed  bool  // takes no appends: the node was restarted, or the disk failed
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

// NextOpen returns what a new replica is to say of itself; false if the
// replica is there already, opened by the same writer.
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

// Add adds an extent: a new one, or one that was found on disk.
func (r *Replica) Add(x *ReplicaExtent) {
	i, ok := slices.BinarySearchFunc(r.Extents, x.Seq, bySeq)
	if ok {
		panic("BUG: two replicas of one log extent on one node")
	}
	r.Extents = slices.Insert(r.Extents, i, x)
	r.Fence = max(r.Fence, x.Epoch, x.Fence)
}

// Remove forgets an extent.
func (r *Replica) Remove(seq uint64) {
	r.Extents = slices.DeleteFunc(r.Extents, func(x *ReplicaExtent) bool { return x.Seq == seq })
}

// BeginFence refuses a fence of an epoch that is over. All extents of lower epochs
// are then to be fenced, each by NextFence and Commit, before the answer.
func (r *Replica) BeginFence(m FenceRequest) error {
	if m.Epoch < r.Fence && !planted(flawFenceBackward) {
		return &FencedError{Epoch: r.Fence}
	}
	r.Fence = m.Epoch
	return nil
}

// States returns what a fence of that epoch is answered with, once it is durable.
func (r *Replica) States(m FenceRequest) []State {
	var all []State
	for _, x := range r.Extents {
		if x.Sealed || x.Fence >= m.Epoch {
			all = append(all, x.State())
		}
	}
	return all
}

// Append accepts bytes, which are then to be written: Flushed says when they are durable.
// With again true they were accepted before, and perhaps are not durable yet.
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
	return false, nil
}

// Flushed notes that the first length bytes of what was accepted are durable.
func (x *ReplicaExtent) Flushed(length int64) {
	x.Started = true
	x.Durable = length
}

// Restart sets what a replica knows when its node has come back: it has that many bytes, all
// durable, and takes no more. Some that were queued may be among them.
func (x *ReplicaExtent) Restart(meta Meta, length int64) {
	x.Meta, x.Durable, x.Queued, x.Closed = meta, length, length, true
}

// NextFence returns the extent's meta once it is fenced; false if it is already, or needs none.
// What is queued must not be acknowledged any more.
func (x *ReplicaExtent) NextFence(m FenceRequest) (Meta, bool) {
	meta := x.Meta
	if x.Sealed || x.Epoch >= m.Epoch || x.Fence >= m.Epoch {
		return meta, false
	}
	meta.Fence = m.Epoch
	return meta, true
}

// NextCut returns the extent's meta once it is cut; false if it is already. The
// error is a *ShortError if the replica has not the bytes: it is to be refilled.
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

// NextRefill returns the extent's meta once it has been given the bytes from position
// From on that it lacks; false if it was cut before.
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

// usable returns how many of the replica's bytes are the extent's.
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

// Commit notes that meta is durable. What was queued and is not, is gone.
func (r *Replica) Commit(x *ReplicaExtent, meta Meta) {
	x.Meta = meta
	if meta.Sealed {
		x.Durable = meta.Length
	}
	if meta.Sealed || meta.Fence > meta.Epoch {
		x.Queued = x.Durable
	}
	r.Fence = max(r.Fence, meta.Epoch, meta.Fence)
}

// State returns what the replica has.
func (x *ReplicaExtent) State() State {
	return State{Seq: x.Seq, Started: x.Started, Start: x.Start, Length: x.Durable, Scanned: x.Closed && !x.Sealed}
}

// Read refuses to serve what is not known to be the log's.
func (x *ReplicaExtent) Read(start, length int64) error {
	if planted(flawReadUncut) && x.Started {
		return nil
	}
	if !x.Sealed || x.Start != start || x.Length != length {
		return ErrUncut
	}
	return nil
}
