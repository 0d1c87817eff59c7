package table

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

// TestAlter: changes apply one after the other, all or none, and a protected table keeps its families.
func TestAlter(t *testing.T) {
	s := mustSchema(t, "a:versions=1", "b")
	family := func(op ChangeOp, text string) Change {
		spec, err := ParseFamilySpec(text)
		if err != nil {
			t.Fatal(err)
		}
		return Change{Op: op, Family: spec}
	}
	protect := func(on bool) Change { return Change{Op: ChangeProtect, Protect: on} }
	for name, c := range map[string]struct {
		changes []Change
		want    []string // the families
		err     error
		at      int // the index of the change that fails
	}{
		"none":                {nil, []string{"a:versions=1", "b"}, nil, 0},
		"one after the other": {[]Change{family(ChangeAdd, "c"), family(ChangeFamily, "c:versions=2"), family(ChangeDrop, "a"), family(ChangeSet, "d")}, []string{"b", "c:versions=2", "d"}, nil, 0},
		"dropped and added":   {[]Change{family(ChangeDrop, "a"), family(ChangeAdd, "a")}, []string{"a", "b"}, nil, 0},
		"it exists":           {[]Change{family(ChangeAdd, "c"), family(ChangeAdd, "b")}, nil, ErrFamilyExists, 1},
		"it does not exist":   {[]Change{family(ChangeFamily, "c")}, nil, ErrNoFamily, 0},
		"it is dropped twice": {[]Change{family(ChangeDrop, "b"), family(ChangeDrop, "b")}, nil, ErrNoFamily, 1},
		"protected":           {[]Change{protect(true), family(ChangeDrop, "b")}, nil, ErrProtected, 1},
		"no longer protected": {[]Change{protect(true), protect(false), family(ChangeDrop, "b")}, []string{"a:versions=1"}, nil, 0},
	} {
		got, err := s.Alter(c.changes...)
		var element *ElementError
		if !errors.Is(err, c.err) || err != nil && (!errors.As(err, &element) || element.Index != c.at) {
			t.Errorf("%s: %v, want %v in change %d", name, err, c.err, c.at)
		}
		if err != nil {
			continue
		}
		var families []string
		for i := range got.Families {
			text := got.Families[i].Name
			if got.Families[i].GC.Kind != GCNone {
				text += ":" + got.Families[i].GC.String()
			}
			families = append(families, text)
		}
		if !slices.Equal(families, c.want) || got.Protected {
			t.Errorf("%s: %v, want %v", name, families, c.want)
		}
	}
	if dropped, err := s.Alter(family(ChangeDrop, "a"), family(ChangeAdd, "a")); err != nil || dropped.Family("a").ID == s.Family("a").ID {
		t.Errorf("a new family has the id of a dropped one: %v", err)
	}
}

// TestProtectedSchema: the protection is kept, in a format that earlier versions reject.
func TestProtectedSchema(t *testing.T) {
	s, err := mustSchema(t, "f").Alter(Change{Op: ChangeProtect, Protect: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []Granularity{GranularityMicros, GranularityMillis} {
		s.Granularity = g
		d := wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { AppendSchema(e, s) }))
		got, err := DecodeSchema(&d, nil)
		if err != nil || !got.Protected || got.Granularity != g {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, ok := ParseChangeOp("x"); ok {
		t.Error("there is a change x")
	}
}

// TestReadOnlySchema: why a table is read-only is kept, in a format that earlier versions reject, changes only from the given reason, and is not inherited by
// a follower.
func TestReadOnlySchema(t *testing.T) {
	change := func(reason string, before ...string) Change {
		c := Change{Op: ChangeReadOnly, ReadOnly: ReadOnlyChange{Reason: reason}}
		if len(before) > 0 {
			c.ReadOnly.If = &before[0]
		}
		return c
	}
	s, err := mustSchema(t, "f").Alter(change("it moves", ""))
	if err != nil {
		t.Fatal(err)
	}
	var format int64
	b := wiretest.Encode(func(e *wire.Encoder) { AppendSchema(e, s) })
	d := wire.NewDecoder(b)
	for range d.Map() {
		if d.Str() == "format" {
			format = d.Int()
		} else {
			d.Skip()
		}
	}
	d = wire.NewDecoder(b)
	if got, err := DecodeSchema(&d, nil); err != nil || !got.Equal(s) || got.ReadOnly != "it moves" || format != 9 {
		t.Errorf("%+v of format %d, %v", got, format, err)
	}
	if s.Equal(mustSchema(t, "f")) || !errors.Is(CheckWritable(s), ErrReadOnly) {
		t.Error("a read-only table is taken for another one")
	}
	for _, c := range []Change{change("other", ""), change("", "it move"), change(strings.Repeat("x", ReadOnlyReasonMax+1)), change("\xff")} {
		if _, err := s.Alter(c); err == nil {
			t.Errorf("%+v is accepted", c.ReadOnly)
		}
	}
	if got, err := s.Alter(change("", "it moves")); err != nil || CheckWritable(got) != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
