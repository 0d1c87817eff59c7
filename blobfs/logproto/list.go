package logproto

import (
	"fmt"
	"slices"
)

// Bounds of a list, which must fit a lock service file of 256 KiB.
const (
	ExtentsMax   = 1024
	ReplicasMax  = 8
	NodeBytesMax = 64
	openMax      = 2  // the current extent and the standby
	listReserve  = 16 // extents only for frames that were sent already
)

// Open is the Length of an extent that is not sealed.
const Open int64 = -1

// List names the extents of a log.
type List struct {
	// Epoch is raised by each takeover of the log. It starts at 1.
	Epoch uint64
	// Owner is random. It distinguishes concurrent takeovers that raise the epoch to the same
	// number: one that does not learn the outcome of its compare-and-set reads the list, and must
	// not mistake the other's for its own.
	Owner uint64
	// Closed means that the log accepts no more appends: it was sealed or recovered.
	Closed bool
	// Start is the position of the first extent. Those before it were released.
	Start int64
	// Extents are in log order. All but the last two are sealed.
	Extents []Extent
}

// Extent is one extent of a log.
type Extent struct {
	Seq      uint64 // from 1, increasing, with gaps
	Length   int64  // bytes of frames, or Open
	Replicas []string
}

// Validate returns an error if the list is inconsistent.
func (l *List) Validate() error {
	if l.Epoch == 0 || l.Start < 0 || len(l.Extents) > ExtentsMax {
		return fmt.Errorf("inconsistent log list: epoch %d, start %d, %d extents", l.Epoch, l.Start, len(l.Extents))
	}
	seq, open, end := uint64(0), 0, l.Start
	for i := range l.Extents {
		x := &l.Extents[i]
		n := len(x.Replicas)
		if x.Seq <= seq || n == 0 || n > ReplicasMax || x.Length < Open || (open > 0 && x.Length != Open) || end+x.Length < x.Length {
			return fmt.Errorf("inconsistent log list: extent %d of length %d with %d replicas", x.Seq, x.Length, n)
		}
		for _, node := range x.Replicas {
			if node == "" || len(node) > NodeBytesMax {
				return fmt.Errorf("log extent %d: node name of %d bytes", x.Seq, len(node))
			}
		}
		seq = x.Seq
		if x.Length == Open {
			open++
		} else {
			end += x.Length
		}
	}
	if open > openMax || (l.Closed && open > 0) {
		return fmt.Errorf("inconsistent log list: %d open extents, closed %t", open, l.Closed)
	}
	return nil
}

// Full reports whether the list has no space for another extent. Its last listReserve places are for
// frames that are stranded: they cannot be withdrawn, and the work that would release extents may wait
// for them.
func (l *List) Full(stranded bool) bool {
	limit := ExtentsMax
	if !stranded {
		limit -= listReserve
	}
	return len(l.Extents)+openMax >= limit
}

// Sealed returns the number of sealed extents, which come first, and the position after them.
func (l *List) Sealed() (n int, end int64) {
	end = l.Start
	for n < len(l.Extents) && l.Extents[n].Length != Open {
		end += l.Extents[n].Length
		n++
	}
	return n, end
}

// find returns the extent with a number; nil if the list does not have it.
func (l *List) find(seq uint64) *Extent {
	for i := range l.Extents {
		if l.Extents[i].Seq == seq {
			return &l.Extents[i]
		}
	}
	return nil
}

// Equal reports whether two lists are equal.
func (l *List) Equal(m *List) bool {
	return l.Epoch == m.Epoch && l.Owner == m.Owner && l.Closed == m.Closed && l.Start == m.Start &&
		slices.EqualFunc(l.Extents, m.Extents, func(a, b Extent) bool {
			return a.Seq == b.Seq && a.Length == b.Length && slices.Equal(a.Replicas, b.Replicas)
		})
}

// Clone returns a copy. It shares the lists of replicas, which are never changed.
func (l *List) Clone() List {
	c := *l
	c.Extents = slices.Clone(l.Extents)
	return c
}
