package tablet

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// propFamilyBytes is the property of an SSTable with the size of each family: its id, the bytes of
// keys and values before compression, and the entries, each as a uvarint, by ascending id. Row
// deletions belong to no family. Files of earlier versions lack it.
const propFamilyBytes = "tablet.family-bytes"

// familySum is the size of one family in a memtable or file.
type familySum struct {
	id             uint32 // 0 means no family: row deletions
	bytes, entries atomic.Int64
}

func (f *familySum) add(bytes int) {
	f.bytes.Add(int64(bytes))
	f.entries.Add(1)
}

// familySums counts by family. One goroutine adds, any may read.
type familySums struct {
	last *familySum // used by the adding goroutine only
	all  atomic.Pointer[[]*familySum]
}

// of returns the sum of a family, for the goroutine that adds.
func (s *familySums) of(id uint32) *familySum {
	if s.last != nil && s.last.id == id {
		return s.last
	}
	old := s.list()
	for _, f := range old {
		if f.id == id {
			s.last = f
			return f
		}
	}
	s.last = &familySum{id: id}
	next := append(slices.Clone(old), s.last)
	s.all.Store(&next)
	return s.last
}

func (s *familySums) list() []*familySum {
	if all := s.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Add adds an entry and counts it for its family.
func (m *mem) Add(key, value []byte) (bool, error) {
	added, err := m.Table.Add(key, value)
	if added {
		m.sums.of(ikey.FamilyOf(key)).add(len(key) + len(value))
	}
	return added, err
}

func appendFamilySums(p []byte, sums *familySums) []byte {
	all := slices.SortedFunc(slices.Values(sums.list()), func(a, b *familySum) int { return int(int64(a.id) - int64(b.id)) })
	for _, f := range all {
		if f.id == 0 {
			continue
		}
		p = binary.AppendUvarint(p, uint64(f.id))
		p = binary.AppendUvarint(p, uint64(f.bytes.Load()))
		p = binary.AppendUvarint(p, uint64(f.entries.Load()))
	}
	return p
}

// familyWeight is the size of a family's keys and values in a file, in bytes.
type familyWeight struct {
	id    uint32
	bytes int64
}

// familyWeights returns the size of each family as recorded in a file; known is false if it is not
// recorded.
func familyWeights(t *sstable.Table) (all []familyWeight, known bool, err error) {
	p, known := t.Properties()[propFamilyBytes]
	for len(p) > 0 {
		var n [3]uint64
		for i := range n {
			used := 0
			if n[i], used = binary.Uvarint(p); used <= 0 {
				return nil, false, fmt.Errorf("sstable %s: property %s is malformed", t.Name(), propFamilyBytes)
			}
			p = p[used:]
		}
		if n[0] == 0 || n[0] > 1<<32-1 || n[1] > 1<<62 || len(all) > 0 && uint32(n[0]) <= all[len(all)-1].id {
			return nil, false, fmt.Errorf("sstable %s: property %s is malformed", t.Name(), propFamilyBytes)
		}
		all = append(all, familyWeight{uint32(n[0]), int64(n[1])})
	}
	return all, known, nil
}

// Usage is the resource usage of a table on a server.
type Usage struct {
	Table   string
	ID      uint64
	Tablets int
	Files   int
	// DiskBytes is the size of the SSTables, each counted once regardless of its replicas. If
	// tablets share an SSTable since a split, each counts its part.
	DiskBytes int64
	// UndividedBytes is the part of DiskBytes in files that do not record the sizes of their
	// families. It is divided like the other files of the group.
	UndividedBytes int64
	// MemtableBytes is the size of memtables, InMemoryBytes that of loaded files of in-memory
	// groups.
	MemtableBytes, InMemoryBytes int64
	// Families is sorted by name. The last one has no name if data of dropped families is left.
	Families []FamilyUsage
}

// FamilyUsage is a family's part of a Usage. SSTables and memtables are divided in proportion to
// the size of each family's keys and values before compression.
type FamilyUsage struct {
	Name, Group                             string
	DiskBytes, MemtableBytes, InMemoryBytes int64
	Files                                   int // files with entries of the family
}

// Usage returns the usage of the table with that id, or of every table if it is 0, sorted by id.
func (s *Server) Usage(tableID uint64) (all []Usage) {
	for name, sv := range *s.served.tables.Load() {
		if tableID != 0 && sv.id != tableID || len(sv.tablets) == 0 {
			continue
		}
		sum := usageSum{schema: sv.tablets[0].schema.Load(), families: map[uint32]*FamilyUsage{}}
		sum.Usage = Usage{Table: name, ID: sv.id}
		for _, t := range sv.tablets {
			sum.add(t)
		}
		all = append(all, sum.result())
	}
	slices.SortFunc(all, func(a, b Usage) int { return int(int64(a.ID) - int64(b.ID)) })
	return all
}

// TableSize summarizes the size of a table on a server.
type TableSize struct {
	Table                    string
	ID                       uint64
	DiskBytes, MemtableBytes int64
}

// Sizes returns the size of each table. It is cheap enough for frequent calls.
func (s *Server) Sizes() (all []TableSize) {
	for name, sv := range *s.served.tables.Load() {
		x := TableSize{Table: name, ID: sv.id}
		for _, t := range sv.tablets {
			v, _, err := t.views.acquire()
			if err != nil {
				continue
			}
			x.MemtableBytes += v.memtableBytes()
			for _, g := range v.groups {
				for _, f := range g.files {
					x.DiskBytes += f.bytes
				}
			}
			v.release()
		}
		all = append(all, x)
	}
	return all
}

// ownBytes returns the memory of a memtable's entries. If a split shared it between two tablets, it
// is half.
func (m *mem) ownBytes() int64 {
	if m.Len() == 0 {
		return 0 // an empty memtable's overhead is not counted
	}
	return m.Bytes() / int64(max(1, m.held.owners.Load()))
}

// memtableBytes returns the memory of the entries in the view's memtables. Tablets that share a
// memtable since a split count equal parts of it.
func (v *view) memtableBytes() int64 {
	n := v.active.ownBytes()
	for _, m := range v.frozen {
		n += m.ownBytes()
	}
	return n
}

// usageSum adds up the tablets of a table.
type usageSum struct {
	Usage
	schema   *schema
	families map[uint32]*FamilyUsage
}

func (u *usageSum) family(id uint32) *FamilyUsage {
	f := u.families[id]
	if f == nil {
		f = &FamilyUsage{}
		for i := range u.schema.families {
			if x := &u.schema.families[i]; x.ID == id {
				f.Name, f.Group = x.Name, x.Group
			}
		}
		u.families[id] = f
	}
	return f
}

func (u *usageSum) add(t *Tablet) {
	v, _, err := t.views.acquire()
	if err != nil {
		return // moved or dropped meanwhile
	}
	defer v.release()
	u.Tablets++
	for _, m := range append(slices.Clone(v.frozen), v.active) {
		u.memtable(m)
	}
	for i := range v.groups {
		u.group(&v.groups[i])
	}
}

// memtable adds a memtable, divided by family.
func (u *usageSum) memtable(m *mem) {
	bytes := m.ownBytes()
	u.MemtableBytes += bytes
	var weights []familyWeight
	for _, f := range m.sums.list() {
		if f.id != 0 {
			weights = append(weights, familyWeight{f.id, f.bytes.Load()})
		}
	}
	divide(bytes, weights, func(id uint32, n int64) { u.family(id).MemtableBytes += n })
}

// group adds the files of a group, divided by family. Files with recorded sizes come first, since
// the others are divided in the same proportion.
func (u *usageSum) group(g *group) {
	like := map[uint32]int64{}
	for _, known := range []bool{true, false} {
		for _, f := range g.files {
			if f.weightsKnown != known {
				continue
			}
			weights := f.weights
			if !known {
				weights = u.likely(f, g.name, like)
				u.UndividedBytes += f.bytes
			}
			inMemory := f.pinnedBytes()
			u.Files++
			u.DiskBytes += f.bytes
			u.InMemoryBytes += inMemory
			for _, w := range weights {
				u.family(w.id).Files++
			}
			divide(f.bytes, weights, func(id uint32, n int64) {
				u.family(id).DiskBytes += n
				if known {
					like[id] += n
				}
			})
			divide(inMemory, weights, func(id uint32, n int64) { u.family(id).InMemoryBytes += n })
		}
	}
}

// likely estimates the size of each family in a file that does not record it. The families are
// those that the file lists, or else all of the group, in the proportion of the group's other
// files. One byte is added to each, so that families without data are equal.
func (u *usageSum) likely(f *file, group string, like map[uint32]int64) (weights []familyWeight) {
	if f.familiesKnown {
		for _, id := range f.families {
			weights = append(weights, familyWeight{id, like[id] + 1})
		}
		return weights
	}
	for i := range u.schema.families {
		if x := &u.schema.families[i]; x.Group == group {
			weights = append(weights, familyWeight{x.ID, like[x.ID] + 1})
		}
	}
	return weights
}

// divide calls each with every family's share of bytes. The shares add up to bytes.
func divide(bytes int64, weights []familyWeight, each func(id uint32, n int64)) {
	total, seen, given := 0.0, 0.0, int64(0)
	for _, w := range weights {
		total += float64(w.bytes)
	}
	for i, w := range weights {
		seen += float64(w.bytes)
		upTo := bytes
		if i < len(weights)-1 {
			upTo = min(bytes, int64(float64(bytes)*seen/max(total, 1)))
		}
		each(w.id, upTo-given)
		given = upTo
	}
}

// pinnedBytes returns the approximate memory of a loaded file of an in-memory group.
func (f *file) pinnedBytes() int64 {
	p := &f.opened.pin
	if p.state.Load() != pinDone {
		return 0
	}
	p.mu.Lock()
	n := p.bytes
	p.mu.Unlock()
	return f.portion(n)
}

// portion returns approximately the tablet's part of a value n of the whole file, which several
// tablets may share.
func (f *file) portion(n int64) int64 {
	if f.bytes < f.meta.Handle.Length {
		n = int64(float64(n) * float64(f.bytes) / float64(f.meta.Handle.Length))
	}
	return n
}

// result returns the sum with families sorted by name and dropped families combined.
func (u *usageSum) result() Usage {
	dropped := FamilyUsage{}
	for i := range u.schema.families { // include families without data
		u.family(u.schema.families[i].ID)
	}
	for _, id := range slices.Sorted(maps.Keys(u.families)) {
		f := u.families[id]
		if f.Name != "" {
			u.Families = append(u.Families, *f)
			continue
		}
		dropped.DiskBytes += f.DiskBytes
		dropped.MemtableBytes += f.MemtableBytes
		dropped.InMemoryBytes += f.InMemoryBytes
		dropped.Files += f.Files
	}
	slices.SortFunc(u.Families, func(a, b FamilyUsage) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	if dropped.Files > 0 || dropped.MemtableBytes > 0 {
		u.Families = append(u.Families, dropped)
	}
	return u.Usage
}
