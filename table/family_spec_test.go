package table

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseFamilySpec(t *testing.T) {
	yes, no, sum := true, false, AggregateSum
	gc := func(p GCPolicy) *GCPolicy { return &p }
	tests := []struct {
		text  string
		want  FamilySpec
		canon string // "" is text
	}{
		{"contents:versions=3,group=pages,compression=zstd,block=8KiB,bloom=row,in-memory",
			FamilySpec{"contents", gc(MaxVersions(3)), "pages", 8192, CompressionZstd, BloomRow, &yes, nil}, ""},
		{"anchor", FamilySpec{Name: "anchor"}, ""},
		{"anchor:", FamilySpec{Name: "anchor"}, "anchor"},
		{"a:versions=3,age=30d", FamilySpec{Name: "a", GC: gc(Union(MaxVersions(3), MaxAge(30*24*time.Hour)))}, ""},
		{"a:age=30d,versions=3", FamilySpec{Name: "a", GC: gc(Union(MaxVersions(3), MaxAge(30*24*time.Hour)))},
			"a:versions=3,age=30d"},
		{`a:gc="versions=1 and (age=1s or versions=9)",group=g`, FamilySpec{Name: "a", Group: "g",
			GC: gc(Intersection(MaxVersions(1), Union(MaxAge(time.Second), MaxVersions(9))))}, ""},
		{"a:gc=none", FamilySpec{Name: "a", GC: gc(GCPolicy{})}, `a:gc="none"`},
		{"a: versions = 2 , in-memory=false", FamilySpec{Name: "a", GC: gc(MaxVersions(2)), InMemory: &no},
			"a:versions=2,in-memory=false"},
		{"a:block=1MiB,compression=none,bloom=none",
			FamilySpec{Name: "a", BlockBytes: 1 << 20, Compression: CompressionNone, Bloom: BloomNone},
			"a:compression=none,block=1MiB,bloom=none"},
		{"a:aggregate=sum", FamilySpec{Name: "a", Aggregate: &sum}, ""},
		{"a:block=5000", FamilySpec{Name: "a", BlockBytes: 5000}, ""},
	}
	for _, tc := range tests {
		got, err := ParseFamilySpec(tc.text)
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %+v, %v", tc.text, got, err)
		}
		if tc.canon == "" {
			tc.canon = tc.text
		}
		if s := got.String(); s != tc.canon {
			t.Errorf("%s: text %s, want %s", tc.text, s, tc.canon)
		}
	}
}

func TestParseFamilySpecErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "expected the name of a family",
		":versions=1":              "expected the name of a family",
		"a:versions":               "versions: expected a value",
		"a:versions=x":             "expected a number",
		"a:colour=red":             "colour: unknown option: expected one of versions, age",
		"a:versions=1,versions=2":  "versions: is given twice",
		"a:versions=1,gc=none":     "gc: cannot be combined with",
		"a:compression=lz4":        `unknown value "lz4": expected one of none, s2, zstd`,
		"a:compression=default":    `unknown value "default": expected`,
		"a:bloom=rows":             `unknown value "rows": expected one of none, row, rowcol`,
		"a:block=8KB":              "expected a size such as 8KiB",
		"a:block=-1":               "bad size",
		"a:block=99999999999MiB":   "bad size",
		"a:in-memory=maybe":        "expected true or false",
		`a:gc="versions=1`:         "a double quote is not closed",
		"a:versions=1,,age=1d":     ": expected a value",
		"a:versions=1 and age=1d":  "versions: expected one rule",
		"a:group=":                 "group: expected a value",
		"a:versions=1,age=99years": "expected a unit of time",
	} {
		_, err := ParseFamilySpec(text)
		var se *SpecError
		if !errors.As(err, &se) || !errors.Is(err, ErrBadSpec) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

func TestApplySpecs(t *testing.T) {
	specs := func(texts ...string) (out []FamilySpec) {
		for _, text := range texts {
			s, err := ParseFamilySpec(text)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, s)
		}
		return out
	}
	s, err := NewSchema("web", 1).Apply(specs(
		"contents:versions=3,group=pages,compression=zstd", "anchor", "language:group=pages,block=8KiB")...)
	if err != nil {
		t.Fatal(err)
	}
	pages := LocalityGroup{Name: "pages", BlockBytes: 8192, Compression: CompressionZstd}
	if g := s.Group("pages"); g == nil || *g != pages {
		t.Errorf("group %+v, want %+v", g, pages)
	}
	// Options that are not given keep their value.
	s, err = s.Apply(specs("contents:age=1d", "language:in-memory")...)
	if err != nil {
		t.Fatal(err)
	}
	pages.InMemory = true
	f := s.Family("contents")
	if *s.Group("pages") != pages || f.Group != "pages" || f.GC.String() != "age=1d" || f.ID != 1 {
		t.Errorf("altered: %+v in %+v", f, s.Group("pages"))
	}
	if spec, ok := s.Spec("contents"); !ok || spec.String() !=
		"contents:age=1d,group=pages,compression=zstd,block=8KiB,in-memory" {
		t.Errorf("spec %s", spec.String())
	}
	if _, ok := s.Spec("none"); ok {
		t.Error("a missing family has a spec")
	}
	for _, tc := range []struct {
		specs []FamilySpec
		want  error
	}{
		{specs("a:group=g,block=8KiB", "b:group=g,block=9KiB"), ErrBadSpec},
		{specs("a:compression=s2", "b:compression=none"), ErrBadSpec},
		{specs("a:in-memory", "b:in-memory=false"), ErrBadSpec},
		{specs("a", "a"), ErrFamilyExists},
		{specs("a b"), ErrBadName},
		{specs("a:group=g:h"), ErrBadName},
		{specs("a:block=2MiB"), ErrBadSchema},
	} {
		if _, err := s.Apply(tc.specs...); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", tc.specs[0].String(), err, tc.want)
		}
	}
}
