package tablet

import (
	"slices"

	"github.com/steledb/stele/table"
)

// schema is a table's schema in the form that the hot paths want. It never changes.
type schema struct {
	table    *table.Schema
	version  Version  // nil: current until SetSchema
	families []family // in the order of names, as in table
	inMemory []string // names of groups
}

type family struct {
	table.Family
	index  int
	policy policy
}

func newSchema(t *table.Schema, v Version) *schema {
	s := &schema{table: t, version: v, families: make([]family, len(t.Families))}
	for i := range t.Families {
		s.families[i] = family{Family: t.Families[i], index: i, policy: newPolicy(&t.Families[i].GC)}
	}
	for i := range t.Groups {
		if t.Groups[i].InMemory {
			s.inMemory = append(s.inMemory, t.Groups[i].Name)
		}
	}
	return s
}

// keepsInMemory says whether a locality group is an in-memory one.
func (s *schema) keepsInMemory(group string) bool {
	return len(s.inMemory) > 0 && slices.Contains(s.inMemory, group)
}

// family returns the family of that name, or nil.
func (s *schema) family(name string) *family {
	// Tables have few families: a scan beats a map up to a dozen, and binary
	// search follows from there.
	if len(s.families) <= 8 {
		for i := range s.families {
			if s.families[i].Name == name {
				return &s.families[i]
			}
		}
		return nil
	}
	lo, hi := 0, len(s.families)
	for lo < hi {
		mid := (lo + hi) / 2
		if s.families[mid].Name < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.families) && s.families[lo].Name == name {
		return &s.families[lo]
	}
	return nil
}

// familyOf returns the live family that a key's family part means. It is nil for
// a family that was dropped, even if one of that name was created since.
func (s *schema) familyOf(name []byte, id uint32) *family {
	f := s.family(string(name)) // no copy: the compiler sees a comparison only
	if f == nil || f.ID != id {
		return nil
	}
	return f
}
