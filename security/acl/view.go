package acl

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/steledb/stele/table"
)

// Mask is a set of families of a schema, by their indexes in Schema.Families.
type Mask []uint64

// Has reports whether the family at an index is in the set.
func (m Mask) Has(index int) bool {
	return uint(index)/64 < uint(len(m)) && m[index/64]&(1<<(index%64)) != 0
}

func (m Mask) set(index int) { m[index/64] |= 1 << (index % 64) }

// Len returns the number of families in the set.
func (m Mask) Len() int {
	n := 0
	for _, w := range m {
		n += bits.OnesCount64(w)
	}
	return n
}

// View is a table as visible to one principal: the rights of all grants combined, in a form that is
// cheap to check for each cell. It is immutable and belongs to one version of the schema.
//
// A right on a view of the table makes the table visible, without any family. In returns what the principal has within a view.
//
// A family on which the principal has no right is hidden. It is not in the Visible schema, and its
// cells are in no read, filter or predicate. Naming it gives the same error as a family that does
// not exist. A table on which the principal has no right, nor on any of its families, is ErrHidden.
type View struct {
	principal string
	schema    *table.Schema
	visible   *table.Schema
	// tableRights is the rights on the table: on all present and future families.
	tableRights Rights
	// seen, read and write are the families on which the principal has any right, Read and Write.
	seen, read, write Mask
	// readsAll and seesAll report whether read and seen contain all families.
	readsAll, seesAll bool
	// unwritable is a family that is visible but not writable; empty if there is none.
	unwritable string
	// views are the rights on views of the table, by their ids; nil if there are none. They give no right on the table itself.
	views map[uint32]Rights
	// part is the view of the table to which this one is confined (In); nil for the whole table.
	part *table.View
}

// NewView compiles a view of a table from the grants on the cluster and on the table. Either may be
// nil, which grants nothing. The policy of another table grants nothing.
func NewView(principal string, cluster, grants *Policy, s *table.Schema) *View {
	v := &View{principal: principal, schema: s, visible: s}
	if cluster != nil && cluster.Table == Cluster {
		v.tableRights = cluster.Rights(principal) &^ Monitor // Monitor makes no table visible
	}
	byFamily := map[uint32]Rights{}
	if grants != nil && grants.Table == s.ID && s.ID != Cluster {
		v.tableRights |= grants.Rights(principal)
		grants.visit(principal, func(g Grant) {
			if g.Family != 0 {
				byFamily[g.Family] |= g.Rights
			}
		})
	}
	for i := range s.Views {
		if r := byFamily[s.Views[i].ID].implied(); r != 0 {
			if v.views == nil {
				v.views = map[uint32]Rights{}
			}
			v.views[s.Views[i].ID] = r
		}
	}
	words := (len(s.Families) + 63) / 64
	v.seen, v.read, v.write = make(Mask, words), make(Mask, words), make(Mask, words)
	for i := range s.Families {
		r := v.tableRights | byFamily[s.Families[i].ID]
		if r == 0 {
			continue
		}
		v.seen.set(i)
		if r.Has(Read) {
			v.read.set(i)
		}
		if r.Has(Write) {
			v.write.set(i)
		} else if v.unwritable == "" {
			v.unwritable = s.Families[i].Name
		}
	}
	v.readsAll, v.seesAll = v.read.Len() == len(s.Families), v.seen.Len() == len(s.Families)
	if !v.seesAll {
		v.visible = s.Clone()
		v.visible.Families = v.seen.families(s)
		v.visible.NextFamilyID = 1 // the real one would reveal the number of families
		for i := range v.visible.Families {
			v.visible.NextFamilyID = max(v.visible.NextFamilyID, v.visible.Families[i].ID+1)
		}
		v.visible.Groups = usedGroups(s, v.visible.Families)
	}
	if v.tableRights == 0 && len(s.Views) > 0 {
		v.hideViews()
	}
	return v
}

// hideViews removes the views on which the principal has no right from the visible schema.
func (v *View) hideViews() {
	v.visible = v.visible.Clone()
	v.visible.Views = slices.DeleteFunc(v.visible.Views, func(p table.View) bool { return v.views[p.ID] == 0 })
	for i := range v.visible.Views {
		v.visible.NextFamilyID = max(v.visible.NextFamilyID, v.visible.Views[i].ID+1)
	}
}

// families returns the families of s that are in the set.
func (m Mask) families(s *table.Schema) []table.Family {
	var fs []table.Family
	for i := range s.Families {
		if m.Has(i) {
			fs = append(fs, s.Families[i])
		}
	}
	return fs
}

// hidden reports whether the whole table is hidden from the principal.
func (v *View) hidden() bool {
	return v.tableRights == 0 && len(v.visible.Families) == 0 && len(v.views) == 0
}

// indexOf returns the index of a family in the schema, or -1 if the family is not visible.
func (v *View) indexOf(family string) int {
	fs := v.schema.Families
	if len(fs) > 16 { // below that, a scan of short names is faster
		i, ok := slices.BinarySearchFunc(fs, family, func(f table.Family, n string) int { return strings.Compare(f.Name, n) })
		if ok && v.seen.Has(i) {
			return i
		}
		return -1
	}
	for i := range fs {
		if fs[i].Name == family && v.seen.Has(i) {
			return i
		}
	}
	return -1
}

// usedGroups returns the locality groups of families, and the default group.
func usedGroups(s *table.Schema, families []table.Family) []table.LocalityGroup {
	return slices.DeleteFunc(slices.Clone(s.Groups), func(g table.LocalityGroup) bool {
		return g.Name != table.DefaultGroup && !slices.ContainsFunc(families, func(f table.Family) bool { return f.Group == g.Name })
	})
}

// Principal returns the name of the principal.
func (v *View) Principal() string { return v.principal }

// Schema returns the schema that the view was compiled from.
func (v *View) Schema() *table.Schema { return v.schema }

// Visible returns the schema without hidden families. Requests are validated against it, and it is
// the schema returned to the principal. It is Schema itself if nothing is hidden.
func (v *View) Visible() *table.Schema { return v.visible }

// ReadMask returns the families of Schema that are readable. It must not be modified.
func (v *View) ReadMask() Mask { return v.read }

// ReadsAll reports whether all families are readable.
func (v *View) ReadsAll() bool { return v.readsAll }

// SeesAll reports whether no family is hidden.
func (v *View) SeesAll() bool { return v.seesAll }

// CanRead reports whether the principal may read the cells of a family.
func (v *View) CanRead(family string) bool { return v.read.Has(v.indexOf(family)) }

// CanWrite reports whether the principal may change the cells of a family.
func (v *View) CanWrite(family string) bool { return v.write.Has(v.indexOf(family)) }

// Readable returns the readable cells, in the memory of cells. cells must be sorted by family, as
// table.CompareCells does.
func (v *View) Readable(cells []table.Cell) []table.Cell {
	if v.readsAll {
		return cells
	}
	kept, index := cells[:0], 0
	for i := range cells {
		for index < len(v.schema.Families) && v.schema.Families[index].Name < cells[i].Family {
			index++
		}
		if index < len(v.schema.Families) && v.schema.Families[index].Name == cells[i].Family && v.read.Has(index) {
			kept = append(kept, cells[i])
		}
	}
	clear(cells[len(kept):])
	return kept
}

// CheckTable returns nil if the principal has the right on the table as a whole. Errors: ErrHidden,
// *DeniedError.
func (v *View) CheckTable(right Rights) error {
	switch {
	case v.hidden():
		return ErrHidden
	case v.tableRights.Has(right):
		return nil
	}
	return v.denied(right, "")
}

// CheckSeen returns nil if the principal has any right on the table or on one of its families, and
// otherwise ErrHidden.
func (v *View) CheckSeen() error {
	if v.hidden() {
		return ErrHidden
	}
	return nil
}

// CheckRead returns nil if the principal may read the table or part of it, as reads, scans and
// predicates require. Errors: ErrHidden, *DeniedError.
func (v *View) CheckRead() error {
	switch {
	case v.hidden():
		return ErrHidden
	case v.read.Len() > 0 || v.tableRights.Has(Read): // a table may have no families
		return nil
	}
	return v.denied(Read, "")
}

// CheckModify returns nil if the principal may read and write a family, as a read-modify-write
// requires. Errors: ErrHidden, ErrNoFamily, *DeniedError.
func (v *View) CheckModify(family string) error {
	if v.hidden() {
		return ErrHidden
	}
	if err := v.checkWrite(family); err != nil {
		return err
	}
	if !v.CanRead(family) {
		return v.denied(Read, family)
	}
	return nil
}

// checkWrite checks that the principal may change a family.
func (v *View) checkWrite(family string) error {
	i := v.indexOf(family)
	switch {
	case i < 0:
		return &table.NoFamilyError{Table: v.schema.Name, Family: family}
	case v.write.Has(i):
		return nil
	}
	return v.denied(Write, family)
}

func (v *View) denied(right Rights, family string) error {
	return &DeniedError{Principal: v.principal, Right: right, Table: v.schema.Name, Family: family}
}

// Restrict returns m limited to what the principal may change. It returns m itself unless m deletes
// a row with hidden families. In that case it replaces the last deletion of the row, which covers
// all earlier mutations, by deletions of the visible families. m must have been validated against
// Visible. The result must not be validated again, because it may have one deletion per family.
// Errors: ErrHidden; ErrNoFamily and *DeniedError in a *table.ElementError with the index of the
// mutation.
func (v *View) Restrict(m *table.RowMutation) (*table.RowMutation, error) {
	if v.hidden() {
		return nil, ErrHidden
	}
	last := -1
	for i := range m.Mutations {
		var err error
		if o := &m.Mutations[i]; o.Op == table.OpDeleteRow {
			last = i
			err = v.checkDeleteRow()
		} else {
			err = v.checkWrite(o.Family)
		}
		if err != nil {
			return nil, &table.ElementError{What: "mutation", Index: i, Err: err}
		}
	}
	if last < 0 || v.seesAll {
		return m, nil
	}
	next := &table.RowMutation{Row: m.Row, Token: m.Token}
	for i := range v.visible.Families {
		next.Mutations = append(next.Mutations, table.DeleteFamily(v.visible.Families[i].Name))
	}
	next.Mutations = append(next.Mutations, m.Mutations[last+1:]...)
	return next, nil
}

// checkDeleteRow checks that the principal may delete everything visible in a row. A view without families has nothing to delete.
func (v *View) checkDeleteRow() error {
	if v.unwritable != "" || len(v.visible.Families) == 0 && (v.part != nil || !v.tableRights.Has(Write)) {
		return v.denied(Write, v.unwritable)
	}
	return nil
}
