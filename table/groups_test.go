package table

import (
	"fmt"
	"testing"
)

func mustApply(t *testing.T, s *Schema, texts ...string) *Schema {
	t.Helper()
	var specs []FamilySpec
	for _, text := range texts {
		spec, err := ParseFamilySpec(text)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	s, err := s.Apply(specs...)
	if err != nil {
		t.Fatalf("%q: %v", texts, err)
	}
	return s
}

// TestEmptyGroupIsRemoved: a locality group without families is removed and makes way for
// another, also at the limit of groups.
func TestEmptyGroupIsRemoved(t *testing.T) {
	s := NewSchema("t", 1)
	for i := range int(DefaultLimits().Groups) - 1 {
		s = mustApply(t, s, fmt.Sprintf("f%d:group=g%d,in-memory", i, i))
	}
	for i := range 30 { // each time into a new group
		s = mustApply(t, s, fmt.Sprintf("f0:group=h%d", i))
	}
	if s.Group("g0") != nil || s.Group("h28") != nil || s.Group("h29") == nil {
		t.Errorf("the groups are %+v", s.Groups)
	}
	var err error
	if s, err = s.DropFamily("f1"); err != nil || s.Group("g1") != nil {
		t.Errorf("the group of a dropped family remains: %v", err)
	}
	s = mustApply(t, s, "x:group=g2", "f2:group=new")
	if g := s.Group("g2"); g == nil || !g.InMemory {
		t.Errorf("a group with another family is %+v", g)
	}
	// One family leaves a group and another joins it in one change: the group keeps its options.
	s = mustApply(t, s, "f3:group=g4", "f4:group=g3")
	for _, name := range []string{"g3", "g4"} {
		if g := s.Group(name); g == nil || !g.InMemory {
			t.Errorf("group %s is %+v", name, g)
		}
	}
	for i := range s.Families {
		if s, err = s.DropFamily(s.Families[0].Name); err != nil {
			t.Fatal(i, err)
		}
	}
	if len(s.Groups) != 1 || s.Groups[0].Name != DefaultGroup {
		t.Errorf("without families the groups are %+v", s.Groups)
	}
}
