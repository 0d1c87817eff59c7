package table

// RuleOp is the operation of a Rule. Values are stored: append only.
type RuleOp uint8

// The operations of rules.
const (
	// RuleAppend appends Value to the newest value of the column.
	RuleAppend RuleOp = 1
	// RuleIncrement adds Amount to the newest value of the column: 8 bytes, a big-endian two's
	// complement integer. The sum wraps around on int64 overflow, as in Cloud Bigtable.
	RuleIncrement RuleOp = 2
)

// A Rule is one step of a ReadModifyWrite. A missing value counts as empty, or as 0.
type Rule struct {
	Op        RuleOp
	Family    string
	Qualifier []byte
	Value     []byte // of RuleAppend
	Amount    int64  // of RuleIncrement
}

// Validate checks the rule against schema, which may be nil, and lim; nil means the defaults.
// Errors: ErrBadOp, ErrNoFamily, ErrLimit, ErrAggregate, and, without a schema, ErrBadName.
func (r *Rule) Validate(schema *Schema, lim *Limits) error {
	l := lim.orDefault()
	if r.Op != RuleAppend && r.Op != RuleIncrement {
		return ErrBadOp
	}
	family, err := familyIn(schema, r.Family, l)
	if err != nil {
		return err
	}
	if family.Aggregate != AggregateNone {
		return &AggregateError{Family: r.Family, Aggregate: family.Aggregate, Operation: "read-modify-write"}
	}
	if err := checkLimit("qualifier bytes", len(r.Qualifier), l.QualifierBytes); err != nil {
		return err
	}
	return checkLimit("value bytes", len(r.Value), l.ValueBytes)
}
