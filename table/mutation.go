package table

// Op is the operation of a Mutation. Values are stored and sent: append only.
type Op uint8

// The operations.
const (
	// OpSet writes one cell. It replaces a cell of the same column and timestamp.
	OpSet Op = 1
	// OpDeleteColumn deletes all versions of one column, or those in a timestamp range.
	OpDeleteColumn Op = 2
	// OpDeleteFamily deletes every cell of the row in one family.
	OpDeleteFamily Op = 3
	// OpDeleteRow deletes every cell of the row.
	OpDeleteRow Op = 4
	// OpAdd adds a value to the cell of an aggregate family. A cell that does not exist becomes that value.
	OpAdd Op = 5
	// OpMerge merges a partial aggregate into the cell of an aggregate family.
	OpMerge Op = 6
)

// IsDeletion reports whether the operation only deletes.
func (o Op) IsDeletion() bool { return o >= OpDeleteColumn && o <= OpDeleteRow }

// IsOperand reports whether the operation adds an operand to the cell of an aggregate family.
func (o Op) IsOperand() bool { return o == OpAdd || o == OpMerge }

// String returns the operation's name on the wire, such as "del_column".
func (o Op) String() string {
	if int(o) < len(opNames) && o != 0 {
		return opNames[o]
	}
	return "unknown"
}

var opNames = [...]string{
	OpSet: "set", OpDeleteColumn: "del_column", OpDeleteFamily: "del_family", OpDeleteRow: "del_row",
	OpAdd: "add", OpMerge: "merge",
}

// A Mutation is one change to a row. A delete covers everything committed before it and everything
// before it in the same RowMutation, regardless of timestamps, and nothing after it.
//
// Op determines which fields are used; the others are ignored.
type Mutation struct {
	Op Op
	// Family is used by all operations except OpDeleteRow.
	Family string
	// Qualifier is used by OpSet, OpAdd, OpMerge and OpDeleteColumn.
	Qualifier []byte
	// Timestamp of OpSet is in microseconds: ServerTimestamp, or not negative. That of OpAdd and OpMerge is not negative.
	Timestamp int64
	// Value is used by OpSet, OpAdd and OpMerge. Integers have 8 bytes: see Integer.
	Value []byte
	// Start and End restrict OpDeleteColumn to timestamps in [Start, End), in microseconds. Their
	// zero values cover every version.
	Start int64
	End   TimestampEnd
}

// Set returns a mutation that writes one cell.
func Set(family string, qualifier []byte, timestamp int64, value []byte) Mutation {
	return Mutation{Op: OpSet, Family: family, Qualifier: qualifier, Timestamp: timestamp, Value: value}
}

// Add returns a mutation that adds n to the cell of an aggregate family: to its sum, its minimum, its maximum or its distinct integers.
func Add(family string, qualifier []byte, timestamp, n int64) Mutation {
	return Mutation{Op: OpAdd, Family: family, Qualifier: qualifier, Timestamp: timestamp, Value: Integer(n)}
}

// Merge returns a mutation that merges the value of a cell of an aggregate family into another cell of such a family.
func Merge(family string, qualifier []byte, timestamp int64, value []byte) Mutation {
	return Mutation{Op: OpMerge, Family: family, Qualifier: qualifier, Timestamp: timestamp, Value: value}
}

// DeleteColumn returns a mutation that deletes all versions of a column.
func DeleteColumn(family string, qualifier []byte) Mutation {
	return Mutation{Op: OpDeleteColumn, Family: family, Qualifier: qualifier}
}

// DeleteColumnRange returns a mutation that deletes the versions of a column with timestamps in
// [start, end), in microseconds.
func DeleteColumnRange(family string, qualifier []byte, start int64, end TimestampEnd) Mutation {
	return Mutation{Op: OpDeleteColumn, Family: family, Qualifier: qualifier, Start: start, End: end}
}

// DeleteFamily returns a mutation that deletes a row's cells in one family.
func DeleteFamily(family string) Mutation { return Mutation{Op: OpDeleteFamily, Family: family} }

// DeleteRow returns a mutation that deletes a row's cells.
func DeleteRow() Mutation { return Mutation{Op: OpDeleteRow} }

// Size returns the bytes of names and data in the mutation. Limits.RowMutationBytes bounds their
// sum plus the row key.
func (m *Mutation) Size() int64 {
	switch m.Op {
	case OpSet, OpAdd, OpMerge:
		return int64(len(m.Family) + len(m.Qualifier) + len(m.Value))
	case OpDeleteColumn:
		return int64(len(m.Family) + len(m.Qualifier))
	case OpDeleteFamily:
		return int64(len(m.Family))
	}
	return 0
}

// Validate checks the mutation against schema, which may be nil, and lim; nil means the defaults.
// Errors: ErrBadOp, ErrNoFamily, ErrBadTimestamp, ErrLimit, ErrAggregate, ErrBadOperand, and, without a schema, ErrBadName.
func (m *Mutation) Validate(schema *Schema, lim *Limits) error {
	return m.validate(schema, lim.orDefault())
}

// validate is Validate with full limits.
func (m *Mutation) validate(schema *Schema, l *Limits) error {
	if m.Op == OpDeleteRow {
		return nil
	}
	if m.Op < OpSet || m.Op > OpMerge {
		return ErrBadOp
	}
	family, err := familyIn(schema, m.Family, l)
	if err != nil {
		return err
	}
	if m.Op == OpDeleteFamily {
		return nil
	}
	if err := checkLimit("qualifier bytes", len(m.Qualifier), l.QualifierBytes); err != nil {
		return err
	}
	unit := GranularityMicros
	if schema != nil {
		unit = schema.Granularity
	}
	if m.Op == OpDeleteColumn {
		return checkTimeRange(m.Start, m.End, unit)
	}
	if m.Op.IsOperand() != (family.Aggregate != AggregateNone) && schema != nil {
		return &AggregateError{Family: m.Family, Aggregate: family.Aggregate, Operation: m.Op.String()}
	}
	if m.Op.IsOperand() {
		if err := family.Aggregate.checkOperand(m); err != nil {
			return err
		}
	}
	if m.Timestamp != ServerTimestamp || m.Op.IsOperand() {
		if m.Timestamp < 0 {
			return &TimestampError{What: "timestamp is negative", Got: m.Timestamp}
		}
		if err := unit.check("timestamp", m.Timestamp); err != nil {
			return err
		}
	}
	return checkLimit("value bytes", len(m.Value), l.ValueBytes)
}

// checkTimeRange checks [start, end). An empty range is an error, because deleting nothing is a
// mistake of the caller.
func checkTimeRange(start int64, end TimestampEnd, unit Granularity) error {
	last, bounded := end.Bound()
	switch {
	case start < 0:
		return &TimestampError{What: "start of range is negative", Got: start}
	case bounded && last < 0:
		return &TimestampError{What: "end of range is negative", Got: last}
	case bounded && last <= start:
		return &TimestampError{What: "end of range is not after its start", Got: last}
	}
	if err := unit.check("start of range", start); err != nil || !bounded {
		return err
	}
	return unit.check("end of range", last)
}

// anyFamily is the family of a mutation that is checked without a schema.
var anyFamily = &Family{}

// familyIn returns a family of the schema; anyFamily if there is no schema.
func familyIn(schema *Schema, name string, l *Limits) (*Family, error) {
	if schema == nil {
		return anyFamily, checkName("family name", name, l.FamilyNameBytes)
	}
	f := schema.Family(name)
	if f == nil {
		return nil, &NoFamilyError{Table: schema.Name, Family: name}
	}
	return f, nil
}

// A RowMutation changes one row atomically, across any of its families. Its mutations apply in
// order.
type RowMutation struct {
	Row       []byte
	Mutations []Mutation
	Token     *Token // nil: none
}

// Size returns the bytes of names and data in the row mutation, including the row key.
func (r *RowMutation) Size() int64 {
	n := int64(len(r.Row))
	if r.Token != nil {
		n += int64(len(r.Token.ID))
	}
	for i := range r.Mutations {
		n += r.Mutations[i].Size()
	}
	return n
}

// Validate checks the row mutation against schema, which may be nil, and lim; nil means the
// defaults. Errors: ErrBadRowKey, ErrBadToken, ErrNoMutations, ErrLimit, and those of Mutation.Validate in an
// *ElementError with the index of the mutation.
func (r *RowMutation) Validate(schema *Schema, lim *Limits) error {
	l := lim.orDefault()
	if err := l.CheckRowKey(r.Row); err != nil {
		return err
	}
	if err := r.Token.validate(); err != nil {
		return err
	}
	if len(r.Mutations) == 0 {
		return ErrNoMutations
	}
	if err := checkLimit("mutations in a row mutation", len(r.Mutations), l.Mutations); err != nil {
		return err
	}
	for i := range r.Mutations {
		if err := r.Mutations[i].validate(schema, l); err != nil {
			return &ElementError{What: "mutation", Index: i, Err: err}
		}
	}
	if n := r.Size(); n > l.RowMutationBytes {
		return &LimitError{What: "row mutation bytes", Limit: l.RowMutationBytes, Got: n}
	}
	return nil
}
