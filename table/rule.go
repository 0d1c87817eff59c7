package table

// RuleOp is what a Rule does. Numbers are stored: append only.
type RuleOp uint8

// The operations of rules.
const (
	// RuleAppend puts Value behind the newest value of the column.
	RuleAppend RuleOp = 1
	// RuleIncrement adds Amount to the newest value of the column, 8 bytes that
	// are a big-endian two's complement integer. A sum out of range of an int64
	// wraps around, as in Cloud Bigtable.
	RuleIncrement RuleOp = 2
)

// A Rule is one step of a ReadModifyWrite. A column that has no value counts as
// empty, or as 0.
type Rule struct {
	Op        RuleOp
	Family    string
	Qualifier []byte
	Value     []byte // of RuleAppend
	Amount    int64  // of RuleIncrement
}

// Validate checks the rule against schema, which may be nil, and lim, where nil
// means the defaults. Errors: ErrBadOp, ErrNoFamily, ErrBadName, ErrLimit.
func (r *Rule) Validate(schema *Schema, lim *Limits) error {
	l := lim.orDefault()
	if r.Op != RuleAppend && r.Op != RuleIncrement {
		return ErrBadOp
	}
	if err := checkFamilyIn(schema, r.Family, l); err != nil {
		return err
	}
	if err := within("qualifier bytes", len(r.Qualifier), l.QualifierBytes); err != nil {
		return err
	}
	return within("value bytes", len(r.Value), l.ValueBytes)
}
