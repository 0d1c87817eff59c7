package table

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Schema describes a table: its name, id, families and locality groups. Schemas are immutable:
// methods that alter a schema return a new one.
type Schema struct {
	Name string `json:"name"`
	// ID distinguishes the table from earlier and later tables of the same name.
	ID uint64 `json:"id"`
	// NextFamilyID is the ID of the next family or view. It never decreases.
	NextFamilyID uint32 `json:"-"`
	// Granularity is that of the table's timestamps. It never changes.
	Granularity Granularity `json:"granularity,omitzero"`
	// Protected means that the table and its families cannot be dropped.
	Protected bool `json:"deletion_protection,omitzero"`
	// ReadOnly is why the table accepts no changes of rows and families. Empty means that it does accept them.
	ReadOnly string `json:"read_only,omitempty"`
	// ChangeRetention is how long the changes of the table's rows are kept for readers of its change stream. Zero means that it has none.
	ChangeRetention time.Duration `json:"change_stream_ns,omitzero"`
	// Follows is the name of the replication by which the table follows one of another cluster. Only its changes are accepted then. Empty
	// means that the table is an ordinary one.
	Follows string `json:"follows,omitempty"`
	// Families is sorted by name.
	Families []Family `json:"families"`
	// Groups is sorted by name and always includes DefaultGroup.
	Groups []LocalityGroup `json:"groups"`
	// Views is sorted by name.
	Views []View `json:"views,omitempty"`
}

// NewSchema returns a schema without families. The caller chooses the table ID.
func NewSchema(name string, id uint64) *Schema {
	return &Schema{Name: name, ID: id, NextFamilyID: 1, Groups: []LocalityGroup{{Name: DefaultGroup}}}
}

// Family returns the named family, or nil. The result belongs to the schema and must not be
// modified.
func (s *Schema) Family(name string) *Family {
	// Most tables have few families, and every mutation looks one up. A linear scan of a few short
	// names is faster than a binary search.
	if len(s.Families) <= 16 {
		for i := range s.Families {
			if s.Families[i].Name == name {
				return &s.Families[i]
			}
		}
		return nil
	}
	if i, ok := s.findFamily(name); ok {
		return &s.Families[i]
	}
	return nil
}

// Group returns the named locality group, or nil. The result belongs to the schema and must not be
// modified.
func (s *Schema) Group(name string) *LocalityGroup {
	if i, ok := s.findGroup(name); ok {
		return &s.Groups[i]
	}
	return nil
}

func (s *Schema) findFamily(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Families, name, func(f Family, n string) int { return strings.Compare(f.Name, n) })
}

func (s *Schema) findGroup(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Groups, name, func(g LocalityGroup, n string) int { return strings.Compare(g.Name, n) })
}

// Clone returns a copy that shares no mutable state.
func (s *Schema) Clone() *Schema {
	c := *s
	c.Families = slices.Clone(s.Families)
	c.Groups = slices.Clone(s.Groups)
	c.Views = slices.Clone(s.Views)
	return &c
}

// Equal reports whether both schemas are equal in all fields.
func (s *Schema) Equal(o *Schema) bool {
	return s.Name == o.Name && s.ID == o.ID && s.NextFamilyID == o.NextFamilyID && s.Granularity == o.Granularity && s.Protected == o.Protected && s.ReadOnly == o.ReadOnly && s.ChangeRetention == o.ChangeRetention && s.Follows == o.Follows &&
		slices.Equal(s.Groups, o.Groups) && slices.EqualFunc(s.Views, o.Views, func(a, b View) bool { return a.Etag() == b.Etag() }) &&
		slices.EqualFunc(s.Families, o.Families, func(a, b Family) bool { return a.Equal(&b) })
}

// PositionFamily is the family of a table that follows another one in which each row has the position of its last change. No read returns its cells.
const PositionFamily = "_position"

// positionPolicy lets positions go once no change stream can have an older change.
const positionPolicy = "versions=1 or age=31d"

// Follow returns the schema of a table that follows the one with this schema by a replication. Errors: ErrFamilyExists if it has a family of the name
// PositionFamily, and those of Validate.
func (s *Schema) Follow(replication string) (*Schema, error) {
	policy, err := ParseGCPolicy(positionPolicy)
	if err != nil {
		return nil, err
	}
	c, err := s.AddFamily(Family{Name: PositionFamily, GC: policy})
	if err != nil {
		return nil, err
	}
	c.Follows = replication
	for i := range c.Families {
		if f := &c.Families[i]; f.Name != PositionFamily {
			f.Source = f.ID
		}
	}
	return c, nil
}

// RemovedReplication is what a table follows instead of a replication of that name, once that was removed. No replication has such a name.
func RemovedReplication(name string) string { return name + " (removed)" }

// Orphan returns the schema of a follower as that of one whose replication was removed: it accepts no changes, also of a later replication of that
// name, whose sequence numbers may be those of another table.
func (s *Schema) Orphan() *Schema {
	c := s.Clone()
	c.Follows = RemovedReplication(s.Follows)
	return c
}

// Promote returns the schema as that of an ordinary table.
func (s *Schema) Promote() *Schema {
	if s.Follows == "" {
		return s
	}
	c := s.Clone()
	c.Follows = ""
	if i, ok := c.findFamily(PositionFamily); ok {
		c.Families = slices.Delete(c.Families, i, i+1)
	}
	for i := range c.Families {
		c.Families[i].Source = 0
	}
	return c
}

// AddFamily returns the schema with f added under a new ID; f.ID is ignored. An empty f.Group means
// the default group. Errors: ErrFamilyExists, ErrNoGroup, and those of Validate.
func (s *Schema) AddFamily(f Family) (*Schema, error) {
	i, ok := s.findFamily(f.Name)
	if ok {
		return nil, fmt.Errorf("table %q, family %q: %w", s.Name, f.Name, ErrFamilyExists)
	}
	if s.NextFamilyID == 1<<32-1 {
		return nil, &SchemaError{Table: s.Name, Reason: "family ids are exhausted"}
	}
	if f.Group == "" {
		f.Group = DefaultGroup
	}
	if s.Group(f.Group) == nil {
		return nil, s.noGroup(f.Group)
	}
	f.ID = s.NextFamilyID
	c := s.Clone()
	c.NextFamilyID++
	c.Families = slices.Insert(c.Families, i, f)
	if err := c.Validate(nil); err != nil {
		return nil, err
	}
	return c, nil
}

// SetFamily returns the schema with the policy and group of the family f.Name taken from f. The
// family keeps its ID, and must keep its aggregate; if f.Group is empty, it keeps its group. A group that loses its last family
// is removed. Errors: ErrNoFamily, ErrNoGroup, and those of Validate.
func (s *Schema) SetFamily(f Family) (*Schema, error) {
	i, ok := s.findFamily(f.Name)
	if !ok {
		return nil, &NoFamilyError{Table: s.Name, Family: f.Name}
	}
	if f.Group == "" {
		f.Group = s.Families[i].Group
	}
	if s.Group(f.Group) == nil {
		return nil, s.noGroup(f.Group)
	}
	if f.Aggregate != s.Families[i].Aggregate {
		return nil, &SchemaError{Table: s.Name, Reason: "the aggregate of family " + f.Name + " cannot change: drop the family and create it again"}
	}
	c := s.Clone()
	f.ID, f.Source = c.Families[i].ID, c.Families[i].Source
	left := c.Families[i].Group
	c.Families[i] = f
	c.dropIfEmpty(left)
	if err := c.Validate(nil); err != nil {
		return nil, err
	}
	return c, nil
}

// DropFamily returns the schema without the family. The family's ID is never reused, and its group
// is removed with its last family. Errors: ErrNoFamily, ErrProtected.
func (s *Schema) DropFamily(name string) (*Schema, error) {
	i, ok := s.findFamily(name)
	if !ok {
		return nil, &NoFamilyError{Table: s.Name, Family: name}
	}
	if err := s.checkProtected(); err != nil {
		return nil, err
	}
	c := s.Clone()
	left := c.Families[i].Group
	c.Families = slices.Delete(c.Families, i, i+1)
	c.dropIfEmpty(left)
	c.dropFromViews(name)
	return c, nil
}

// FamiliesVersion returns a number that increases whenever a family is added or dropped.
func (s *Schema) FamiliesVersion() uint64 {
	return uint64(s.NextFamilyID)<<32 | uint64(1<<32-1-len(s.Families))
}

func (s *Schema) hasAggregates() bool {
	return slices.ContainsFunc(s.Families, func(f Family) bool { return f.Aggregate != AggregateNone })
}

func (s *Schema) hasAggregate(a Aggregate) bool {
	return slices.ContainsFunc(s.Families, func(f Family) bool { return f.Aggregate == a })
}

// CheckDrop returns ErrProtected if the table, or one of its views, is protected from being dropped.
func (s *Schema) CheckDrop() error {
	for i := range s.Views {
		if s.Views[i].Protected {
			return s.protected(&s.Views[i])
		}
	}
	return s.checkProtected()
}

// CheckWritable returns ErrReadOnly if a table accepts no changes of rows and families.
func CheckWritable(s *Schema) error {
	if s.ReadOnly != "" {
		return fmt.Errorf("table %q: %w: %s", s.Name, ErrReadOnly, s.ReadOnly)
	}
	return nil
}

func (s *Schema) checkProtected() error {
	if s.Protected {
		return fmt.Errorf("table %q: %w", s.Name, ErrProtected)
	}
	return nil
}

// dropIfEmpty removes a group without families, unless it is the default group. Its files may
// remain until the next major compaction of each tablet.
func (s *Schema) dropIfEmpty(group string) {
	if group == DefaultGroup || slices.ContainsFunc(s.Families, func(f Family) bool { return f.Group == group }) {
		return
	}
	if i, ok := s.findGroup(group); ok {
		s.Groups = slices.Delete(s.Groups, i, i+1)
	}
}

// SetGroup returns the schema with the group g.Name added or replaced. Errors: those of Validate.
func (s *Schema) SetGroup(g LocalityGroup) (*Schema, error) {
	c := s.Clone()
	if i, ok := c.findGroup(g.Name); ok {
		c.Groups[i] = g
	} else {
		c.Groups = slices.Insert(c.Groups, i, g)
	}
	if err := c.Validate(nil); err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Schema) noGroup(name string) error {
	return fmt.Errorf("table %q, group %q: %w", s.Name, name, ErrNoGroup)
}

// Validate checks the schema against lim; nil means the defaults. Errors: ErrBadSchema, ErrBadName,
// ErrBadGCPolicy, ErrLimit; those of a family are in an *ElementError.
func (s *Schema) Validate(lim *Limits) error {
	l := lim.orDefault()
	if err := checkName("table name", s.Name, l.TableNameBytes); err != nil {
		return err
	}
	if r := s.ChangeRetention; r != 0 && (r < ChangeRetentionMin || r > ChangeRetentionMax) {
		return &SchemaError{Table: s.Name, Reason: fmt.Sprintf("a change stream keeps changes for %v to %v, not for %v", ChangeRetentionMin, ChangeRetentionMax, r)}
	}
	if s.Granularity >= numGranularities {
		return &SchemaError{Table: s.Name, Reason: "unknown " + s.Granularity.String()}
	}
	if err := checkLimit("families in a table", len(s.Families), l.Families); err != nil {
		return err
	}
	// More groups than one per family and the default group are never useful.
	if err := checkLimit("locality groups in a table", len(s.Groups), l.Families+1); err != nil {
		return err
	}
	if err := s.validateGroups(l); err != nil {
		return err
	}
	if err := s.validateFamilies(l); err != nil {
		return err
	}
	return s.validateViews(l)
}

func (s *Schema) validateGroups(l *Limits) error {
	if err := checkLimit("locality groups of a table", len(s.Groups), l.Groups); err != nil {
		return err
	}
	for i := range s.Groups {
		if err := s.Groups[i].validate(s.Name, l); err != nil {
			return err
		}
		if i > 0 && s.Groups[i-1].Name >= s.Groups[i].Name {
			return &SchemaError{Table: s.Name, Reason: "groups are not sorted by name or have duplicates"}
		}
	}
	if s.Group(DefaultGroup) == nil {
		return &SchemaError{Table: s.Name, Reason: "the default group is missing"}
	}
	return nil
}

func (s *Schema) validateFamilies(l *Limits) error {
	ids := make(map[uint32]bool, len(s.Families))
	for i := range s.Families {
		f := &s.Families[i]
		if err := checkName("family name", f.Name, l.FamilyNameBytes); err != nil {
			return &ElementError{What: "family", Index: i, Err: err}
		}
		if err := f.GC.Validate(l); err != nil {
			return &ElementError{What: "family", Index: i, Err: err}
		}
		if int(f.Aggregate) >= len(aggregateNames) {
			return &SchemaError{Table: s.Name, Reason: "family " + f.Name + " has the unknown " + f.Aggregate.String()}
		}
		if i > 0 && s.Families[i-1].Name >= f.Name {
			return &SchemaError{Table: s.Name, Reason: "families are not sorted by name or have duplicates"}
		}
		if f.ID == 0 || f.ID >= s.NextFamilyID {
			return &SchemaError{Table: s.Name, Reason: "family " + f.Name + " has an unallocated id"}
		}
		if ids[f.ID] {
			return &SchemaError{Table: s.Name, Reason: "family " + f.Name + " has another family's id"}
		}
		ids[f.ID] = true
		if s.Group(f.Group) == nil {
			return &SchemaError{Table: s.Name, Reason: "family " + f.Name + " is in a group that does not exist"}
		}
	}
	return nil
}

// DroppedPrefix begins the names of dropped tables that are kept for a while. No table can be created with it.
const DroppedPrefix = "~"

// IsDropped reports whether a name is that of a dropped table. Requests of users must not find a table by it.
func IsDropped(name string) bool { return strings.HasPrefix(name, DroppedPrefix) }

// Bounds of the retention of a change stream.
const (
	ChangeRetentionMin = time.Hour
	ChangeRetentionMax = 30 * 24 * time.Hour
)

// ShownName returns the name under which people know a table: for a dropped one, the name that it had, with a note.
func ShownName(name string) string {
	if IsDropped(name) {
		if parts := strings.SplitN(name, ".", 3); len(parts) == 3 { // its id, and when it was dropped
			return parts[2] + " (dropped)"
		}
	}
	return name
}
