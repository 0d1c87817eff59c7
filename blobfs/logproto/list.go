package logproto

import (
	"fmt"
	"slices"
)

// Bounds of a list: it must fit a file of the lock service, of 256 KiB.
const (
	ExtentsMax   = 1024
	ReplicasMax  = 8
	NodeBytesMax = 64
	openMax      = 2 // the extent that is written and the standby
)

// Open is the Length of an extent that is not sealed.
const Open int64 = -1

// List says of which extents a log consists.
type List struct {
	// Epoch is raised by who takes the log over. From 1.
	Epoch uint64
	// Owner tells apart those who raise the epoch to the same number: who does not
	// learn the outcome of its compare-and-set reads the list, and must
	// not take another's for its own. Random.
	Owner uint64
	// Closed means that the log will not go on: it is sealed or was recovered.
	Closed bool
	// Start is the position of the first extent: those before it were released.
	Start int64
	// Extents are in the order of the log. All but the last two are sealed.
	Extents []Extent
}

// Extent is one of a log's extents.
type Extent struct {
	Seq      uint64 // from 1, rising, with gaps
	Length   int64  // bytes of frames, or Open
	Replicas []string
}

// Validate says what is wrong with the list, if anything.
func (l *List) Validate() error {
	if l.Epoch == 0 || l.Start < 0 || len(l.Extents) > ExtentsMax {
		return fmt.Errorf("list of a log of epoch %d, start %d and %d extents does not add up", l.Epoch, l.Start, len(l.Extents))
	}
	seq, open, end := uint64(0), 0, l.Start
	for i := range l.Extents {
		x := &l.Extents[i]
		n := len(x.Replicas)
		if x.Seq <= seq || n == 0 || n > ReplicasMax || x.Length < Open || (open > 0 && x.Length != Open) || end+x.Length < x.Length {
			return fmt.Errorf("extent %d of a log, of length %d with %d replicas, does not add up", x.Seq, x.Length, n)
		}
		for _, node := range x.Replicas {
			if node == "" || len(node) > NodeBytesMax {
				return fmt.Errorf("extent %d of a log: node name of %d bytes", x.Seq, len(node))
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
		return fmt.Errorf("list of a log with %d open extents, closed %t, does not add up", open, l.Closed)
	}
	return nil
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

// Equal tells whether two lists say the same.
func (l *List) Equal(m *List) bool {
	return l.Epoch == m.Epoch && l.Owner == m.Owner && l.Closed == m.Closed && l.Start == m.Start &&
		slices.EqualFunc(l.Extents, m.Extents, func(a, b Extent) bool {
			return a.Seq == b.Seq && a.Length == b.Length && slices.Equal(a.Replicas, b.Replicas)
		})
}

// Clone returns a copy that shares only the lists of replicas, which nobody changes.
func (l *List) Clone() List {
	c := *l
	c.Extents = slices.Clone(l.Extents)
	return c
}
