package table

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func mustSchema(t testing.TB, specs ...string) *Schema {
	t.Helper()
	s := NewSchema("web", 7)
	for _, text := range specs {
		spec, err := ParseFamilySpec(text)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = s.Apply(spec); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestFamilyIDsAreNotReused: a family dropped and created again gets another ID, and schemas from
// before the change are unmodified.
func TestFamilyIDsAreNotReused(t *testing.T) {
	s0 := mustSchema(t, "contents", "anchor:versions=1")
	if a, c := s0.Family("anchor"), s0.Family("contents"); a.ID != 2 || c.ID != 1 || s0.NextFamilyID != 3 {
		t.Fatalf("ids %d, %d, next %d", a.ID, c.ID, s0.NextFamilyID)
	}
	s1, err := s0.DropFamily("anchor")
	if err != nil {
		t.Fatal(err)
	}
	s2, err := s1.AddFamily(Family{Name: "anchor", ID: 2})
	if err != nil {
		t.Fatal(err)
	}
	if f := s2.Family("anchor"); f.ID != 3 || f.Group != DefaultGroup || f.GC.Kind != GCNone {
		t.Errorf("created again: %+v", f)
	}
	s3, err := s2.SetFamily(Family{Name: "anchor", GC: MaxVersions(5)})
	if err != nil {
		t.Fatal(err)
	}
	if f := s3.Family("anchor"); f.ID != 3 || f.Group != DefaultGroup || f.GC.Versions != 5 {
		t.Errorf("set: %+v", f)
	}
	if s1.Family("anchor") != nil || s0.Family("anchor").ID != 2 || s2.Family("anchor").GC.Kind != GCNone {
		t.Error("a schema was changed in place")
	}
	for i, s := range []*Schema{s0, s1, s2, s3} {
		if err := s.Validate(nil); err != nil {
			t.Errorf("schema %d: %v", i, err)
		}
		if !s.Equal(s.Clone()) || s.Equal(NewSchema("web", 7)) {
			t.Errorf("schema %d: Equal is wrong", i)
		}
	}
	s4 := s3.Clone()
	s4.NextFamilyID = 1<<32 - 1
	if _, err := s4.AddFamily(Family{Name: "more"}); !errors.Is(err, ErrBadSchema) {
		t.Errorf("ids used up: error %v", err)
	}
}

func TestSchemaErrors(t *testing.T) {
	s := mustSchema(t, "contents:group=pages", "anchor")
	second := func(_ any, err error) error { return err }
	long := strings.Repeat("x", 65)
	for i, tc := range []struct {
		err, want error
	}{
		{second(s.AddFamily(Family{Name: "anchor"})), ErrFamilyExists},
		{second(s.AddFamily(Family{Name: "a b"})), ErrBadName},
		{second(s.AddFamily(Family{Name: ""})), ErrBadName},
		{second(s.AddFamily(Family{Name: "é"})), ErrBadName},
		{second(s.AddFamily(Family{Name: "."})), ErrBadName},
		{(*Limits)(nil).CheckTableName("."), ErrBadName},
		{(*Limits)(nil).CheckTableName(".."), ErrBadName},
		{(*Limits)(nil).CheckTableName("..."), nil},
		{second(s.AddFamily(Family{Name: long})), ErrLimit},
		{second(s.AddFamily(Family{Name: "x", Group: "none"})), ErrNoGroup},
		{second(s.AddFamily(Family{Name: "x", GC: GCPolicy{Kind: GCMaxAge}})), ErrBadGCPolicy},
		{second(s.SetFamily(Family{Name: "x"})), ErrNoFamily},
		{second(s.SetFamily(Family{Name: "anchor", Group: "none"})), ErrNoGroup},
		{second(s.DropFamily("x")), ErrNoFamily},
		{second(s.SetGroup(LocalityGroup{Name: "pages", BlockBytes: 100})), ErrBadSchema},
		{second(s.SetGroup(LocalityGroup{Name: "pages", BlockBytes: 2 << 20})), ErrBadSchema},
		{second(s.SetGroup(LocalityGroup{Name: "pages", Compression: 9})), ErrBadSchema},
		{second(s.SetGroup(LocalityGroup{Name: "pages", Bloom: 9})), ErrBadSchema},
		{second(s.SetGroup(LocalityGroup{Name: ":"})), ErrBadName},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("case %d: error %v, want %v", i, tc.err, tc.want)
		}
	}
}

// TestSchemaValidate covers schemas that were not built by the methods.
func TestSchemaValidate(t *testing.T) {
	for name, damage := range map[string]func(*Schema){
		"order of families": func(s *Schema) { s.Families[0], s.Families[1] = s.Families[1], s.Families[0] },
		"family twice":      func(s *Schema) { s.Families[1].Name = s.Families[0].Name },
		"id twice":          func(s *Schema) { s.Families[1].ID = s.Families[0].ID },
		"id of zero":        func(s *Schema) { s.Families[1].ID = 0 },
		"unallocated id":    func(s *Schema) { s.Families[1].ID = s.NextFamilyID },
		"group missing":     func(s *Schema) { s.Families[1].Group = "none" },
		"no default group":  func(s *Schema) { s.Groups = s.Groups[1:] },
		"order of groups":   func(s *Schema) { s.Groups[0], s.Groups[1] = s.Groups[1], s.Groups[0] },
	} {
		s := mustSchema(t, "contents:group=pages", "anchor")
		damage(s)
		if err := s.Validate(nil); !errors.Is(err, ErrBadSchema) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	s := NewSchema("", 1)
	if err := s.Validate(nil); !errors.Is(err, ErrBadName) {
		t.Errorf("no name: error %v", err)
	}
	s = mustSchema(t, "a", "b")
	if err := s.Validate(&Limits{Families: 1}); !errors.Is(err, ErrLimit) {
		t.Errorf("too many families: error %v", err)
	}
}

// TestFamilyLookup finds families in small and large schemas.
func TestFamilyLookup(t *testing.T) {
	s := NewSchema("many", 1)
	for i := range 40 {
		var err error
		if s, err = s.AddFamily(Family{Name: fmt.Sprintf("f%02d", i*7%40)}); err != nil {
			t.Fatal(err)
		}
		for j := range 40 {
			name := fmt.Sprintf("f%02d", j*7%40)
			f := s.Family(name)
			if (f != nil) != (j <= i) || f != nil && (f.Name != name || f.ID != uint32(j+1)) {
				t.Fatalf("%d families: %s is %+v", i+1, name, f)
			}
		}
	}
}

func TestEffective(t *testing.T) {
	want := LocalityGroup{Name: "default", BlockBytes: 65536, Compression: CompressionS2, Bloom: BloomRowCol}
	if g := NewSchema("t", 1).Groups[0].Effective(); g != want {
		t.Errorf("got %+v", g)
	}
	g := LocalityGroup{Name: "g", BlockBytes: 8192, Compression: CompressionNone, Bloom: BloomNone, InMemory: true}
	if g.Effective() != g {
		t.Errorf("got %+v", g.Effective())
	}
}
