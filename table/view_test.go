package table

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

// TestViewPrefixes: what a view has is what a loop over its prefixes and qualifiers finds, and NextRow skips no row that the view has.
func TestViewPrefixes(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 1))
	key := func() []byte {
		b := make([]byte, r.IntN(4))
		for i := range b {
			b[i] = "ab\xff"[r.IntN(3)]
		}
		return b
	}
	keys := func() (all [][]byte) {
		for range r.IntN(5) {
			all = append(all, key())
		}
		return all
	}
	for range 2000 {
		rows, f := keys(), ViewFamily{Name: "f", Qualifiers: keys(), Prefixes: keys()}
		v := NewView("v", rows, f)
		has := func(k []byte, prefixes [][]byte) bool {
			for _, p := range prefixes {
				if bytes.HasPrefix(k, p) {
					return true
				}
			}
			return false
		}
		for range 20 {
			k := key()
			if v.HasRow(k) != has(k, rows) {
				t.Fatalf("row %q of prefixes %q: %v", k, rows, v.HasRow(k))
			}
			equal := false
			for _, q := range f.Qualifiers {
				equal = equal || bytes.Equal(q, k)
			}
			if got := v.Family("f").HasColumn(k); got != (equal || has(k, f.Prefixes)) {
				t.Fatalf("column %q of %q and prefixes %q: %v", k, f.Qualifiers, f.Prefixes, got)
			}
			next, ok := v.NextRow(k)
			if ok && (bytes.Compare(next, k) < 0 || !v.HasRow(next)) {
				t.Fatalf("after %q of %q: %q", k, rows, next)
			}
			if other := key(); bytes.Compare(other, k) >= 0 && has(other, rows) && (!ok || bytes.Compare(other, next) < 0) {
				t.Fatalf("after %q of %q: %q, %v skips %q", k, rows, next, ok, other)
			}
		}
		if s := (&Schema{Name: "t", NextFamilyID: 2, Views: []View{*v}}); s.Views[0].ID == 0 {
			s.Views[0].ID = 1
			if err := s.validateViews((*Limits)(nil).orDefault()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func addView(v *View) Change { return Change{Op: ChangeAddView, View: &ViewChange{View: *v}} }

// TestViewChanges: ids of views are not reused, a family that is dropped leaves all views, and changes check what they change.
func TestViewChanges(t *testing.T) {
	all := ViewFamily{Name: "b", Prefixes: [][]byte{{}}}
	s, err := mustSchema(t, "a", "b").Alter(addView(NewView("v", [][]byte{{}}, all)), addView(NewView("u", nil, ViewFamily{Name: "a"}, all)))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Views) != 2 || s.Views[0].Name != "u" || s.View("v").ID != 3 || s.View("u").ID != 4 || s.View("w") != nil {
		t.Fatalf("%+v", s.Views)
	}
	other := *NewView("v", [][]byte{[]byte("x")}, all)
	protected := other
	protected.Protected = true
	change := func(op ChangeOp, v View, etag string) Change { return Change{Op: op, View: &ViewChange{v, etag}} }
	for what, c := range map[string]struct {
		change Change
		want   error
	}{
		"exists":            {addView(&other), ErrViewExists},
		"no family":         {addView(NewView("w", nil, ViewFamily{Name: "c"})), ErrNoFamily},
		"bad name":          {addView(NewView("a b", nil)), ErrBadName},
		"not in order":      {addView(&View{Name: "w", Rows: [][]byte{[]byte("b"), []byte("a")}}), ErrBadSchema},
		"covered":           {addView(&View{Name: "w", Rows: [][]byte{[]byte("b"), []byte("bc")}}), ErrBadSchema},
		"too large":         {addView(NewView("w", [][]byte{make([]byte, ViewBytesMax)})), ErrLimit},
		"changed, absent":   {change(ChangeView, View{Name: "w"}, ""), ErrNoView},
		"changed, an etag":  {change(ChangeView, other, "x"), ErrViewChanged},
		"changed":           {change(ChangeView, other, s.View("v").Etag()), nil},
		"dropped, absent":   {change(ChangeDropView, View{Name: "w"}, ""), ErrNoView},
		"dropped, an etag":  {change(ChangeDropView, View{Name: "v"}, "x"), ErrViewChanged},
		"dropped":           {change(ChangeDropView, View{Name: "v"}, s.View("v").Etag()), nil},
		"dropped the other": {change(ChangeDropView, View{Name: "u"}, ""), nil},
	} {
		if _, err := s.Alter(c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	if p, err := s.Alter(change(ChangeView, protected, "")); err != nil || p.View("v").ID != 3 {
		t.Errorf("%+v, %v", p, err)
	} else if _, err := p.Alter(change(ChangeDropView, View{Name: "v"}, "")); !errors.Is(err, ErrProtected) {
		t.Errorf("a protected view: %v", err)
	} else if err := p.CheckDrop(); !errors.Is(err, ErrProtected) {
		t.Errorf("a table with a protected view: %v", err)
	} else if _, err := p.Alter(Change{Op: ChangeDrop, Family: FamilySpec{Name: "a"}}); err != nil {
		t.Errorf("a family of it: %v", err)
	}
	d, err := s.Alter(Change{Op: ChangeDrop, Family: FamilySpec{Name: "b"}}, change(ChangeDropView, View{Name: "v"}, ""), addView(NewView("v", nil)))
	if err != nil || d.View("u").Family("b") != nil || d.View("u").Family("a") == nil || d.View("v").ID != 5 {
		t.Errorf("%+v, %v", d, err)
	}
	if s.View("u").Family("b") == nil {
		t.Error("a schema was changed in place")
	}
	for i := range ViewsMax + 1 {
		if d, err = d.Alter(addView(NewView(fmt.Sprint("n", i), nil))); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrLimit) {
		t.Errorf("many views: %v", err)
	}
}

// TestViewCovers: a view covers another one if it has all its rows and columns.
func TestViewCovers(t *testing.T) {
	keys := func(text string) (all [][]byte) {
		for _, k := range strings.Split(text, ",") {
			all = append(all, []byte(k))
		}
		return all
	}
	v := NewView("v", keys("a,b"), ViewFamily{Name: "f", Qualifiers: keys("q"), Prefixes: keys("p")}, ViewFamily{Name: "g", Prefixes: keys("")})
	for what, c := range map[string]struct {
		other *View
		want  bool
	}{
		"itself":          {v, true},
		"nothing":         {NewView("o", nil), true},
		"fewer rows":      {NewView("o", keys("ax"), ViewFamily{Name: "g", Prefixes: keys("")}), true},
		"fewer columns":   {NewView("o", keys("b"), ViewFamily{Name: "f", Qualifiers: keys("px"), Prefixes: keys("py")}, ViewFamily{Name: "g", Qualifiers: keys("z")}), true},
		"an empty family": {NewView("o", keys("a"), ViewFamily{Name: "h"}), true},
		"more rows":       {NewView("o", keys("a,c")), false},
		"all rows":        {NewView("o", keys("")), false},
		"another column":  {NewView("o", keys("a"), ViewFamily{Name: "f", Qualifiers: keys("r")}), false},
		"more columns":    {NewView("o", keys("a"), ViewFamily{Name: "f", Prefixes: keys("q")}), false},
		"another family":  {NewView("o", keys("a"), ViewFamily{Name: "h", Qualifiers: keys("q")}), false},
	} {
		if got := v.Covers(c.other); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestViewCodec: schemas with views survive, in a format that earlier versions reject, and bad ones are rejected.
func TestViewCodec(t *testing.T) {
	v := NewView("v", [][]byte{[]byte("b"), {0xff}}, ViewFamily{Name: "a", Qualifiers: [][]byte{{}, []byte("q")}, Prefixes: [][]byte{[]byte("p")}})
	s, err := mustSchema(t, "a").Alter(addView(v))
	if err != nil {
		t.Fatal(err)
	}
	s.Views[0].Protected = true
	b := wiretest.Encode(func(e *wire.Encoder) { AppendSchema(e, s) })
	d := wire.NewDecoder(b)
	got, err := DecodeSchema(&d, nil)
	if err != nil || !got.Equal(s) || !got.Views[0].Protected || got.Views[0].ID != s.Views[0].ID {
		t.Errorf("%+v, %v", got, err)
	}
	if !strings.Contains(string(b), "\xa6format\x07") {
		t.Errorf("the format of a schema with views is not 7: %q", b)
	}
	s.Views[0].ID = 1
	d = wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { AppendSchema(e, s) }))
	if _, err := DecodeSchema(&d, nil); !errors.Is(err, ErrBadSchema) {
		t.Errorf("a view with the id of a family: %v", err)
	}
}
