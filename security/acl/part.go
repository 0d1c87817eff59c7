package acl

import "github.com/steledb/stele/table"

// Unrestricted returns a table as a caller with all rights sees it.
func Unrestricted(s *table.Schema) *View {
	return NewView("", &Policy{Grants: []Grant{{Principal: Everyone, Rights: Admin}}}, nil, s)
}

// UsesViews reports whether the principal has a right on any view of the table.
func (v *View) UsesViews(right Rights) bool {
	for _, r := range v.views {
		if r.Has(right) {
			return true
		}
	}
	return false
}

// In returns the table as the principal sees it through the named view. There it has its rights on the view, and those on the table as a whole, but
// only for rows and columns of the view. Errors: ErrHidden, ErrNoView also if it has no right on either.
func (v *View) In(name string) (*View, error) {
	if v.hidden() {
		return nil, ErrHidden
	}
	part := v.schema.View(name)
	if part == nil || v.tableRights|v.views[part.ID] == 0 {
		return nil, &table.NoViewError{Table: v.schema.Name, View: name}
	}
	in := &View{principal: v.principal, schema: v.schema, tableRights: v.tableRights | v.views[part.ID], part: part}
	in.seen, in.read, in.write = make(Mask, len(v.seen)), make(Mask, len(v.seen)), make(Mask, len(v.seen))
	for i := range v.schema.Families {
		if part.Family(v.schema.Families[i].Name) == nil {
			continue
		}
		in.seen.set(i)
		if in.tableRights.Has(Read) {
			in.read.set(i)
		}
		if in.tableRights.Has(Write) {
			in.write.set(i)
		} else if in.unwritable == "" {
			in.unwritable = v.schema.Families[i].Name
		}
	}
	in.visible = v.schema.Clone()
	in.visible.Families, in.visible.Views = in.seen.families(v.schema), nil
	return in, nil
}

// Part returns the view of the table to which v is confined, or nil if it is not.
func (v *View) Part() *table.View { return v.part }

// CheckPart returns nil if a row mutation, which need not be valid, stays within the view to which v is confined. A family that the view lacks is outside
// of it, whether or not the table has it. A row, or a family, can be deleted only if the view has all columns
// of the families concerned. Errors: *DeniedError, in a *table.ElementError if it is that of a mutation.
func (v *View) CheckPart(m *table.RowMutation) error {
	if v.part == nil {
		return nil
	}
	if !v.part.HasRow(m.Row) {
		return v.outside()
	}
	for i := range m.Mutations {
		if !v.hasPart(&m.Mutations[i]) {
			return &table.ElementError{What: "mutation", Index: i, Err: v.outside()}
		}
	}
	return nil
}

func (v *View) hasPart(m *table.Mutation) bool {
	if m.Op == table.OpDeleteRow {
		for i := range v.part.Families {
			if !v.part.Families[i].Whole() {
				return false
			}
		}
		return true
	}
	f := v.part.Family(m.Family)
	switch {
	case f == nil:
		return false
	case m.Op == table.OpDeleteFamily:
		return f.Whole()
	}
	return f.HasColumn(m.Qualifier)
}

// CheckPartColumn returns nil if a column is within the view to which v is confined. Errors: *DeniedError.
func (v *View) CheckPartColumn(row []byte, family string, qualifier []byte) error {
	if v.part == nil {
		return nil
	}
	if f := v.part.Family(family); !v.part.HasRow(row) || f == nil || !f.HasColumn(qualifier) {
		return v.outside()
	}
	return nil
}

func (v *View) outside() error {
	return &DeniedError{Principal: v.principal, Right: Write, Table: v.schema.Name, View: v.part.Name}
}
