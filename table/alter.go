package table

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// ChangeOp is the kind of a Change.
type ChangeOp uint8

// The kinds of changes.
const (
	ChangeSet      ChangeOp = iota // add a family, or change the one of that name
	ChangeAdd                      // add a family, which must not exist
	ChangeFamily                   // change a family, which must exist
	ChangeDrop                     // drop a family
	ChangeProtect                  // turn the deletion protection of the table on or off
	ChangeStream                   // set how long the changes of the table's rows are kept, or end its change stream
	ChangeAddView                  // add a view, which must not exist
	ChangeView                     // replace a view, which must exist
	ChangeDropView                 // drop a view
	ChangeReadOnly                 // let the table accept no changes of rows, or let it accept them again
)

var changeNames = [...]string{"set", "add", "change", "drop", "protect", "change_stream", "add_view", "change_view", "drop_view", "read_only"}

// String returns the name of the kind, which is also its encoding.
func (o ChangeOp) String() string { return changeNames[o] }

// ParseChangeOp returns the kind with a name. It returns false if there is none.
func ParseChangeOp(name string) (op ChangeOp, ok bool) {
	for i, n := range changeNames {
		if n == name {
			return ChangeOp(i), true
		}
	}
	return 0, false
}

// Change is one of a list of changes of a schema.
type Change struct {
	Op ChangeOp
	// Family is that to set, add or change; of one to drop it has the name only.
	Family FamilySpec
	// Protect is the new deletion protection.
	Protect bool
	// ReadOnly is the change of whether the table accepts changes of rows.
	ReadOnly ReadOnlyChange
	// Retention is that of the change stream. Zero ends it.
	Retention time.Duration
	// View is the change of a view.
	View *ViewChange
}

// ReadOnlyChange lets a table accept no changes of rows, or accept them again.
type ReadOnlyChange struct {
	// Reason is why the table becomes read-only, at most ReadOnlyReasonMax bytes. If it is empty, the table accepts changes.
	Reason string
	// If, unless it is nil, is the reason that the table must have before.
	If *string
}

// ReadOnlyReasonMax is the length of the longest reason for which a table is read-only, in bytes.
const ReadOnlyReasonMax = 200

func (c *ReadOnlyChange) apply(s *Schema) (*Schema, error) {
	if n := len(c.Reason); n > ReadOnlyReasonMax {
		return nil, &LimitError{What: "bytes of the reason for which a table is read-only", Limit: ReadOnlyReasonMax, Got: int64(n)}
	}
	if !utf8.ValidString(c.Reason) {
		return nil, &SpecError{Text: "change", Option: ChangeReadOnly.String(), Reason: "is not UTF-8"}
	}
	if c.If != nil && *c.If != s.ReadOnly {
		return nil, fmt.Errorf("table %q: %w: %.200q, it has %q", s.Name, ErrReadOnlyChanged, *c.If, s.ReadOnly)
	}
	p := s.Clone()
	p.ReadOnly = c.Reason
	return p, nil
}

// Alter returns the schema with the changes applied one after the other. Options of a family that a change does not
// give stay unchanged. Errors: ErrFamilyExists, ErrNoFamily, ErrNoView, ErrProtected, ErrReadOnlyChanged, and those of Apply.
func (s *Schema) Alter(changes ...Change) (*Schema, error) {
	c := s
	for i := range changes {
		var err error
		if c, err = c.alter(&changes[i]); err != nil {
			return nil, &ElementError{What: "change", Index: i, Err: err}
		}
	}
	return c, nil
}

func (s *Schema) alter(c *Change) (*Schema, error) {
	exists := s.Family(c.Family.Name) != nil
	if c.Op <= ChangeDrop {
		if err := CheckWritable(s); err != nil {
			return nil, err
		}
	}
	switch {
	case c.Op == ChangeProtect:
		p := s.Clone()
		p.Protected = c.Protect
		return p, nil
	case c.Op == ChangeReadOnly:
		return c.ReadOnly.apply(s)
	case c.Op == ChangeStream:
		p := s.Clone()
		p.ChangeRetention = c.Retention
		return p, p.Validate(nil)
	case c.Op == ChangeAddView:
		return s.addView(c.View)
	case c.Op == ChangeView:
		return s.changeView(c.View)
	case c.Op == ChangeDropView:
		return s.dropView(c.View)
	case c.Op == ChangeAdd && exists:
		return nil, fmt.Errorf("family %q: %w", c.Family.Name, ErrFamilyExists)
	case c.Op == ChangeFamily && !exists:
		return nil, &NoFamilyError{Table: s.Name, Family: c.Family.Name}
	case c.Op == ChangeDrop:
		return s.DropFamily(c.Family.Name)
	}
	return s.Apply(c.Family)
}
