package table

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/steledb/stele/internal/wire"
)

// A View is a part of a table that requests, and grants of rights, can name: the rows with some prefixes, and of these some columns. Views
// belong to the table's schema, so a change of one is complete when it returns (I15).
type View struct {
	Name string
	// ID distinguishes the view from all other views and families of the table, of all times.
	ID uint32
	// Protected means that the view cannot be dropped.
	Protected bool
	// Rows are the prefixes of the view's rows, in ascending order. An empty prefix means all rows.
	Rows [][]byte
	// Families are those of which the view has columns, sorted by name.
	Families []ViewFamily
}

// ViewFamily is the part of a family that a view has: columns with some qualifiers, and with some prefixes of them, both in ascending order.
// An empty prefix means all columns.
type ViewFamily struct {
	Name       string
	Qualifiers [][]byte
	Prefixes   [][]byte
}

// Bounds of the views of a table. They are part of its schema, which is a file of the lock service.
const (
	ViewsMax = 100
	// ViewBytesMax bounds the names, prefixes and qualifiers of all views of a table together, with 8 bytes for each.
	ViewBytesMax = 64 << 10
)

// NewView returns a view with its lists in order. Prefixes that others cover are left out.
func NewView(name string, rows [][]byte, families ...ViewFamily) *View {
	v := &View{Name: name, Rows: minimal(rows)}
	for _, f := range families {
		f.Qualifiers, f.Prefixes = sortedSet(f.Qualifiers), minimal(f.Prefixes)
		v.Families = append(v.Families, f)
	}
	slices.SortFunc(v.Families, func(a, b ViewFamily) int { return strings.Compare(a.Name, b.Name) })
	return v
}

// sortedSet returns keys in ascending order, each once.
func sortedSet(keys [][]byte) [][]byte {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// minimal returns prefixes in ascending order without those that begin with another one.
func minimal(prefixes [][]byte) (kept [][]byte) {
	for _, p := range sortedSet(prefixes) {
		if n := len(kept); n == 0 || !bytes.HasPrefix(p, kept[n-1]) {
			kept = append(kept, p)
		}
	}
	return kept
}

// hasPrefix reports whether key begins with one of some prefixes, as minimal returns them.
func hasPrefix(key []byte, prefixes [][]byte) bool {
	at, found := slices.BinarySearchFunc(prefixes, key, bytes.Compare)
	return found || at > 0 && bytes.HasPrefix(key, prefixes[at-1])
}

// HasRow reports whether the view has a row.
func (v *View) HasRow(key []byte) bool { return hasPrefix(key, v.Rows) }

// NextRow returns the least row at or above key that the view can have. It returns false if there is none.
func (v *View) NextRow(key []byte) ([]byte, bool) {
	if v.HasRow(key) {
		return key, true
	}
	at, _ := slices.BinarySearchFunc(v.Rows, key, bytes.Compare)
	if at == len(v.Rows) {
		return nil, false
	}
	return v.Rows[at], true
}

// Family returns the part of a family that the view has, or nil if it has none.
func (v *View) Family(name string) *ViewFamily {
	at, found := slices.BinarySearchFunc(v.Families, name, func(f ViewFamily, n string) int { return strings.Compare(f.Name, n) })
	if !found {
		return nil
	}
	return &v.Families[at]
}

// HasColumn reports whether the view has a column of the family.
func (f *ViewFamily) HasColumn(qualifier []byte) bool {
	if hasPrefix(qualifier, f.Prefixes) {
		return true
	}
	_, found := slices.BinarySearchFunc(f.Qualifiers, qualifier, bytes.Compare)
	return found
}

// Whole reports whether the view has all columns of the family.
func (f *ViewFamily) Whole() bool { return len(f.Prefixes) > 0 && len(f.Prefixes[0]) == 0 }

// Covers reports whether the view has all rows and columns that another one has.
func (v *View) Covers(o *View) bool {
	for _, p := range o.Rows {
		if !hasPrefix(p, v.Rows) {
			return false
		}
	}
	for i := range o.Families {
		of := &o.Families[i]
		f := v.Family(of.Name)
		if f == nil && len(of.Qualifiers)+len(of.Prefixes) > 0 {
			return false
		}
		for _, q := range of.Qualifiers {
			if !f.HasColumn(q) {
				return false
			}
		}
		for _, p := range of.Prefixes {
			if !hasPrefix(p, f.Prefixes) {
				return false
			}
		}
	}
	return true
}

// Etag identifies what the view contains.
func (v *View) Etag() string {
	e := wire.GetEncoder()
	defer e.Release()
	appendView(e, v)
	sum := sha256.Sum256(e.Bytes())
	return fmt.Sprintf("%x", sum[:8])
}

// size returns the memory of the view as ViewBytesMax counts it.
func (v *View) size() int {
	n := 8 + len(v.Name)
	add := func(keys [][]byte) {
		for _, k := range keys {
			n += 8 + len(k)
		}
	}
	add(v.Rows)
	for i := range v.Families {
		f := &v.Families[i]
		n += 8 + len(f.Name)
		add(f.Qualifiers)
		add(f.Prefixes)
	}
	return n
}

// View returns the named view, or nil. The result belongs to the schema and must not be modified.
func (s *Schema) View(name string) *View {
	if i, ok := s.findView(name); ok {
		return &s.Views[i]
	}
	return nil
}

func (s *Schema) findView(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Views, name, func(v View, n string) int { return strings.Compare(v.Name, n) })
}

// ViewChange is a change of the view of a schema.
type ViewChange struct {
	View View // of a view to drop it has the name only
	// Etag, unless it is empty, is that of the view before the change, which must exist.
	Etag string
}

// addView returns the schema with a new view.
func (s *Schema) addView(c *ViewChange) (*Schema, error) {
	i, ok := s.findView(c.View.Name)
	switch {
	case ok:
		return nil, fmt.Errorf("table %q, view %q: %w", s.Name, c.View.Name, ErrViewExists)
	case s.NextFamilyID == 1<<32-1:
		return nil, &SchemaError{Table: s.Name, Reason: "family ids are exhausted"}
	}
	if err := s.checkViewFamilies(&c.View); err != nil {
		return nil, err
	}
	n := s.Clone()
	n.Views = slices.Insert(n.Views, i, c.View)
	n.Views[i].ID = n.NextFamilyID
	n.NextFamilyID++
	return n, n.Validate(nil)
}

// changeView returns the schema with another view of that name, which keeps its id.
func (s *Schema) changeView(c *ViewChange) (*Schema, error) {
	i, err := s.viewToChange(c)
	if err == nil {
		err = s.checkViewFamilies(&c.View)
	}
	if err != nil {
		return nil, err
	}
	n := s.Clone()
	n.Views[i] = c.View
	n.Views[i].ID = s.Views[i].ID
	return n, n.Validate(nil)
}

// dropView returns the schema without a view. Errors: ErrNoView, ErrProtected, ErrViewChanged.
func (s *Schema) dropView(c *ViewChange) (*Schema, error) {
	i, err := s.viewToChange(c)
	if err != nil {
		return nil, err
	}
	if s.Views[i].Protected {
		return nil, s.protected(&s.Views[i])
	}
	n := s.Clone()
	n.Views = slices.Delete(n.Views, i, i+1)
	return n, nil
}

func (s *Schema) protected(v *View) error {
	return fmt.Errorf("view %q of table %q: %w", v.Name, s.Name, ErrProtected)
}

// viewToChange returns the index of the view of a change.
func (s *Schema) viewToChange(c *ViewChange) (int, error) {
	i, ok := s.findView(c.View.Name)
	switch {
	case !ok:
		return 0, &NoViewError{Table: s.Name, View: c.View.Name}
	case c.Etag != "" && c.Etag != s.Views[i].Etag():
		return 0, fmt.Errorf("table %q, view %q: %w", s.Name, c.View.Name, ErrViewChanged)
	}
	return i, nil
}

// checkViewFamilies returns an error if the table does not have all families of a view. A family that is dropped later leaves the view.
func (s *Schema) checkViewFamilies(v *View) error {
	for i := range v.Families {
		if s.Family(v.Families[i].Name) == nil {
			return &NoFamilyError{Table: s.Name, Family: v.Families[i].Name}
		}
	}
	return nil
}

// dropFromViews removes a family from all views, so that another one of that name is not in them.
func (s *Schema) dropFromViews(family string) {
	for i := range s.Views {
		v := &s.Views[i]
		v.Families = slices.DeleteFunc(slices.Clone(v.Families), func(f ViewFamily) bool { return f.Name == family })
	}
}

// validateViews checks the views of the schema.
func (s *Schema) validateViews(l *Limits) error {
	if err := checkLimit("views of a table", len(s.Views), ViewsMax); err != nil {
		return err
	}
	size, ids := 0, map[uint32]bool{}
	for i := range s.Families {
		ids[s.Families[i].ID] = true
	}
	for i := range s.Views {
		v := &s.Views[i]
		if err := v.validate(s.Name, l); err != nil {
			return err
		}
		if i > 0 && s.Views[i-1].Name >= v.Name {
			return &SchemaError{Table: s.Name, Reason: "views are not sorted by name or have duplicates"}
		}
		if v.ID == 0 || v.ID >= s.NextFamilyID || ids[v.ID] {
			return &SchemaError{Table: s.Name, Reason: "view " + v.Name + " has an unallocated id, or that of another view or family"}
		}
		ids[v.ID] = true
		size += v.size()
	}
	return checkLimit("bytes of the views of a table", size, ViewBytesMax)
}

func (v *View) validate(tableName string, l *Limits) error {
	if err := checkName("view name", v.Name, l.TableNameBytes); err != nil {
		return err
	}
	bad := func(what string) error {
		return &SchemaError{Table: tableName, Reason: "view " + v.Name + " has " + what + " that are not in order"}
	}
	if !ordered(v.Rows, true) {
		return bad("row prefixes")
	}
	for i := range v.Families {
		f := &v.Families[i]
		if err := checkName("family name", f.Name, l.FamilyNameBytes); err != nil {
			return err
		}
		if i > 0 && v.Families[i-1].Name >= f.Name || !ordered(f.Qualifiers, false) || !ordered(f.Prefixes, true) {
			return bad("families, qualifiers or their prefixes")
		}
	}
	return nil
}

// ordered reports whether keys are as sortedSet, or minimal, returns them.
func ordered(keys [][]byte, prefixes bool) bool {
	for i := 1; i < len(keys); i++ {
		if bytes.Compare(keys[i-1], keys[i]) >= 0 || prefixes && bytes.HasPrefix(keys[i], keys[i-1]) {
			return false
		}
	}
	return true
}
