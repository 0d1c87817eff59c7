package vfs

import (
	"maps"
	"math/rand/v2"
	"path"
	"slices"
)

// SectorBytes is the unit of atomic writes of a disk. Disks with 4 KiB sectors guarantee more; none
// in use guarantees less.
const SectorBytes = 512

// Crash returns the file system as found after a power loss now. rng chooses what survives of the
// data and names not synced; nil drops all of them. m and its open files stay usable and share
// nothing with the result. The result has m's capacity, no hook and no lock.
func (m *Mem) Crash(rng *rand.Rand) *Mem {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	names := maps.Clone(c.durable)
	if rng != nil {
		c.surviveNames(names, rng)
	}
	// A node may have two names (a rename half undone) but must crash only once.
	content := map[*memNode][]byte{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := names[name]
		if _, done := content[n]; !done {
			content[n] = n.survive(rng)
		}
	}
	core := c.clone(names, func(n *memNode) []byte { return slices.Clone(content[n]) })
	return &Mem{Faulty: NewFaulty(core), core: core}
}

// surviveNames applies some of the pending changes. Once one is lost, those that depend on it are
// lost too (V3).
func (c *memCore) surviveNames(names map[string]*memNode, rng *rand.Rand) {
	keep := rng.Float64() // some crashes lose nearly everything, some nearly nothing
	lost := map[string]bool{}
	for _, op := range c.pending {
		if rng.Float64() < keep && !op.touches(lost) && !lost[path.Dir(op.name)] {
			op.apply(names)
			for name := range maps.Clone(lost) {
				if to, is := op.moved(name); is {
					lost[to] = true
				}
			}
		} else {
			op.addTo(lost)
		}
	}
}

// survive returns a file's content after the crash: the synced content plus, of the later writes,
// none, all, a prefix, or a random set of sectors.
func (n *memNode) survive(rng *rand.Rand) []byte {
	data := slices.Clone(n.synced)
	if rng == nil || len(n.writes) == 0 {
		return data
	}
	switch rng.IntN(4) {
	case 0:
	case 1:
		for _, w := range n.writes { // not n.data: see V4
			data = w.apply(data)
		}
	case 2:
		upTo := rng.IntN(len(n.writes) + 1)
		for _, w := range n.writes[:upTo] {
			data = w.apply(data)
		}
		if upTo < len(n.writes) {
			data = n.writes[upTo].tear(data, func(i, of int) bool { return i < of/2 })
		}
	case 3:
		keep := rng.Float64()
		for _, w := range n.writes {
			data = w.tear(data, func(int, int) bool { return rng.Float64() < keep })
		}
	}
	return data
}

// tear applies those sectors of a write that keep selects, given the sector's index in the write
// and the number of sectors.
func (w memWrite) tear(data []byte, keep func(i, of int) bool) []byte {
	if w.truncate {
		if keep(0, 1) {
			return w.apply(data)
		}
		return data
	}
	first := w.off / SectorBytes
	last := (w.off + int64(len(w.data)) - 1) / SectorBytes
	for s := first; s <= last; s++ {
		if !keep(int(s-first), int(last-first+1)) {
			continue
		}
		from := max(s*SectorBytes, w.off)
		to := min((s+1)*SectorBytes, w.off+int64(len(w.data)))
		data = memWrite{off: from, data: w.data[from-w.off : to-w.off]}.apply(data)
	}
	return data
}
