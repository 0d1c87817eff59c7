package client

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// location is the cached location of one tablet. It is immutable, except used.
type location struct {
	of           *tableCache // nil for the root tablet
	table        uint64      // the table's id; 0: unknown
	start        []byte      // the tablet is known to hold the rows from start
	end          []byte      // to end, both inclusive; nil means no end
	server, addr string
	node         *node       // nil: the tablet is unassigned,
	until        time.Time   // and METADATA is not read again before this time
	read         time.Time   // when METADATA was read
	hinted       bool        // from a hint in a server's NotServingError
	used         atomic.Bool // since the last eviction
}

// has reports whether the location covers row.
func (l *location) has(row []byte) bool {
	return string(l.start) <= string(row) && (l.end == nil || string(row) <= string(l.end))
}

// known holds the cached locations of one table. It is copied on write.
type known struct {
	id  uint64 // in METADATA; 0: unknown
	all []*location
}

// at returns the location of row's tablet, or nil if it is not cached. It does not allocate.
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

// first returns the index of the first location that ends at or after row.
func (k *known) first(row []byte) int {
	return sort.Search(len(k.all), func(i int) bool { return k.all[i].end == nil || string(k.all[i].end) >= string(row) })
}

// index returns the index of l, or -1 if it is not cached.
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

// with returns a copy of k in which run, a series of adjacent tablets, replaces all locations that
// it overlaps.
func (k *known) with(run []*location) *known {
	from, to := run[0].start, run[len(run)-1].end
	i := k.first(from)
	j := i
	for j < len(k.all) && (to == nil || string(k.all[j].start) <= string(to)) {
		j++
	}
	if i < j {
		if old := k.all[i]; string(old.start) < string(from) && string(old.end) == string(run[0].end) && old.server == run[0].server {
			run[0].start = old.start // a larger part of the same tablet was known
		}
	}
	return &known{k.id, slices.Concat(k.all[:i], run, k.all[j:])}
}

// without returns a copy of k without l, which must be in k. If other is not nil, it replaces l.
func (k *known) without(l, other *location) *known {
	i := k.index(l)
	if other == nil {
		return &known{k.id, slices.Concat(k.all[:i], k.all[i+1:])}
	}
	n := &known{k.id, slices.Clone(k.all)}
	n.all[i] = other
	return n
}

// tableCache holds the cached locations of one table, and the lookups in progress.
type tableCache struct {
	name  string
	known atomic.Pointer[known] // replaced under locator.mu
	// wide is set on METADATA's own entry when a user table was found to have more METADATA tablets
	// than one response holds.
	wide atomic.Bool

	// mu guards the fields in it. Never held across I/O. Order: before locator.mu.
	mu struct {
		sync.Mutex
		flights []*flight
		failed  map[string]failure // by the address of the unavailable METADATA server; "": no node could return the root location
	}
}

// successor returns the first key above key.
func successor(key []byte) []byte { return append(key[:len(key):len(key)], 0) }
