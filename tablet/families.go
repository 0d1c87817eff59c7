package tablet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/steledb/stele/tablet/sstable"
)

// propFamilies is the property of an SSTable that lists the ids of the families with entries, each
// as a uvarint, ascending. Files of earlier versions lack it and may hold any family.
const propFamilies = "tablet.families"

func appendFamilies(p []byte, ids map[uint32]bool) []byte {
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		p = binary.AppendUvarint(p, uint64(id))
	}
	return p
}

// familyIDs returns the ids of the families that a file lists; known is false if it has no list.
func familyIDs(t *sstable.Table) (ids []uint32, known bool, err error) {
	p, known := t.Properties()[propFamilies]
	for len(p) > 0 {
		id, n := binary.Uvarint(p)
		if n <= 0 || id > 1<<32-1 || len(ids) > 0 && uint32(id) <= ids[len(ids)-1] {
			return nil, false, fmt.Errorf("sstable %s: property %s is malformed", t.Name(), propFamilies)
		}
		ids, p = append(ids, uint32(id)), p[n:]
	}
	return ids, known, nil
}

// movedFamilies are the families that a group's file may hold although the schema has them in
// another group, because they were moved. They are indexes into the schema, which reads use.
type movedFamilies struct {
	schema *schema
	all    []int // indexes of families in the schema
}

// movedFamilyCache caches the result of movedFamilies for the last schema.
type movedFamilyCache struct{ last atomic.Pointer[movedFamilies] }

// movedFamilies returns the families that are in the file but, according to the schema, not in the
// group.
func (f *file) movedFamilies(s *schema, group string) []int {
	if of := f.moved.last.Load(); of != nil && of.schema == s {
		return of.all
	}
	of := &movedFamilies{schema: s}
	for i := range s.families {
		fam := &s.families[i]
		if fam.Group == group {
			continue
		}
		if _, has := slices.BinarySearch(f.families, fam.ID); has || !f.familiesKnown {
			of.all = append(of.all, i)
		}
	}
	f.moved.last.Store(of)
	return of.all
}

// hasMovedFamilies reports whether a file of the view has families that were moved to another
// group. Then no group has the complete history of its families.
func (v *view) hasMovedFamilies(s *schema) bool {
	for i := range v.groups {
		for _, f := range v.groups[i].files {
			if len(f.movedFamilies(s, v.groups[i].name)) > 0 {
				return true
			}
		}
	}
	return false
}

// holds reports whether the group may have entries of a selected family that is, or was, in the
// group.
func (g *group) holds(w *selection, s *schema) bool {
	if w.group(s, g.name) {
		return true
	}
	for _, f := range g.files {
		for _, i := range f.movedFamilies(s, g.name) {
			if w.family(&s.families[i]) {
				return true
			}
		}
	}
	return false
}

// regroup replaces the old files, of any group, with the added ones, by group. Files added since
// stay behind them.
func (v *view) regroup(old []*file, added map[string]*file) {
	for i := range v.groups {
		g := &v.groups[i]
		files := []*file{}
		if f := added[g.name]; f != nil {
			files = append(files, f)
		}
		for _, f := range g.files {
			if !containsFile(old, f) {
				files = append(files, f)
			}
		}
		g.files = files
	}
	for name, f := range added {
		if v.group(name) == nil {
			v.replace(name, nil, f)
		}
	}
}

// A row deletion is written to the groups that have files, and regroup moves older entries to a
// group that may have none. Whichever is installed later checks for the other, and is repeated if
// necessary.

// newDeletions reports whether files other than the old ones have row deletions.
func (m *Meta) newDeletions(old []*file) bool {
	for _, g := range m.Groups {
		for i := range g.Files {
			fm := &g.Files[i]
			if fm.RowDeletions > 0 && !slices.ContainsFunc(old, func(f *file) bool { return f.meta.same(fm) }) {
				return true
			}
		}
	}
	return false
}

// newGroups reports whether a group without files in v has some in m.
func (m *Meta) newGroups(v *view) bool {
	return slices.ContainsFunc(m.Groups, func(g GroupMeta) bool {
		of := v.group(g.Name)
		return len(g.Files) > 0 && (of == nil || len(of.files) == 0)
	})
}

// errRegrouped ends a minor compaction that wrote row deletions from an outdated view.
var errRegrouped = errors.New("families moved to another locality group during the compaction")

// regroup is view.regroup for metadata.
func (m *Meta) regroup(old []*file, added map[string]*file) {
	for i := range m.Groups {
		g := &m.Groups[i]
		files := []FileMeta{}
		if f := added[g.Name]; f != nil {
			files = append(files, f.meta)
		}
		for _, fm := range g.Files {
			if !slices.ContainsFunc(old, func(f *file) bool { return f.meta.same(&fm) }) {
				files = append(files, fm)
			}
		}
		g.Files = files
	}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		if !slices.ContainsFunc(m.Groups, func(g GroupMeta) bool { return g.Name == name }) {
			m.replaceFiles(name, nil, &added[name].meta)
		}
	}
}
