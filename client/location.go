package client

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// location is what is known of one tablet. Only used changes.
type location struct {
	of           *tablets // nil for the root tablet
	table        uint64   // the table's id; 0: not known
	start        []byte   // it is known to have the rows from start
	end          []byte   // to end, both inclusive; nil is no end
	server, addr string
	node         *node       // nil: no server has the tablet,
	until        time.Time   // and METADATA is not asked again before
	read         time.Time   // from METADATA
	hinted       bool        // or told by a server that did not have it
	used         atomic.Bool // since the last eviction
}

// has says whether the location is of row's tablet.
func (l *location) has(row []byte) bool {
	return string(l.start) <= string(row) && (l.end == nil || string(row) <= string(l.end))
}

// known is what is known of a table. It is replaced, never changed.
type known struct {
	id  uint64 // in METADATA; 0: not known
	all []*location
}

// at returns the location of row's tablet, nil if it is not known. It allocates nothing.
func (k *known) at(row []byte) *location {
	lo, hi := 0, len(k.all)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if l := k.all[mid]; l.end != nil && string(l.end) < string(row) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(k.all) || string(k.all[lo].start) > string(row) {
		return nil
	}
	return k.all[lo]
}

// first returns the place of the first location that ends at or after row.
func (k *known) first(row []byte) int {
	return sort.Search(len(k.all), func(i int) bool { return k.all[i].end == nil || string(k.all[i].end) >= string(row) })
}

// index returns the place of l, -1 if it is not there.
func (k *known) index(l *location) int {
	i := len(k.all) - 1
	if l.end != nil {
		i = k.first(l.end)
	}
	if i < 0 || i == len(k.all) || k.all[i] != l {
		return -1
	}
	return i
}

// with returns k with run, tablets that follow each other, in the place of all that
// run overlaps.
func (k *known) with(run []*location) *known {
	from, to := run[0].start, run[len(run)-1].end
	i := k.first(from)
	j := i
	for j < len(k.all) && (to == nil || string(k.all[j].start) <= string(to)) {
		j++
	}
	if i < j {
		if old := k.all[i]; string(old.start) < string(from) && string(old.end) == string(run[0].end) && old.server == run[0].server {
			run[0].start = old.start // more of the same tablet is known
		}
	}
	return &known{k.id, slices.Concat(k.all[:i], run, k.all[j:])}
}

// without returns k with other, if it is not nil, in the place of l, which is in k.
func (k *known) without(l, other *location) *known {
	i := k.index(l)
	if other == nil {
		return &known{k.id, slices.Concat(k.all[:i], k.all[i+1:])}
	}
	n := &known{k.id, slices.Clone(k.all)}
	n.all[i] = other
	return n
}

// tablets is what is known of one table's tablets, and who is finding out more.
type tablets struct {
	name  string
	known atomic.Pointer[known] // replaced under locator.mu
	// wide is set when one of users' tables was found to have more METADATA tablets than one answer tells
	// of. It is METADATA's alone.
	wide atomic.Bool

	// mu guards the fields in it. Never held across I/O. Order: before locator.mu.
	mu struct {
		sync.Mutex
		flights []*flight
		failed  map[*node]failure // by the server of METADATA that is silent; nil: no node could tell where the root tablet is
	}
}

// successor returns the first key that is above key.
func successor(key []byte) []byte { return append(key[:len(key):len(key)], 0) }
