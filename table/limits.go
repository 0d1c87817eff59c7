package table

// Limits bound what clients may send. A zero or negative field means its default. The defaults are
// documented in docs/rpc.md, "Limits". A node may lower them, and may raise those that the
// encodings allow.
type Limits struct {
	RowKeyBytes     int64 // 64 KiB; a row key has at least 1 byte
	TableNameBytes  int64 // 64 B; table names and locality group names
	FamilyNameBytes int64 // 64 B
	QualifierBytes  int64 // 16 KiB
	ValueBytes      int64 // 100 MiB

	RowMutationBytes int64 // 256 MiB: row key, names and values together
	Mutations        int64 // 100,000 mutations in one row mutation
	BatchRows        int64 // 100,000 rows in one batch of row mutations

	Families      int64 // 1,000 families in a table; the paper expects hundreds
	Groups        int64 // 16 locality groups: each adds a set of files to every tablet
	GCPolicyNodes int64 // 64 rules in one GC policy
	GCPolicyDepth int64 // 16 levels of a GC policy

	FilterDepth int64 // 20 levels of a filter, as in Cloud Bigtable
	FilterNodes int64 // 1,000 filters in one tree
	FilterBytes int64 // 20 KiB of patterns, bounds and names in one tree
	RegexBytes  int64 // 4 KiB in one pattern
	// RegexCost bounds the estimated memory of the compiled patterns of one filter, in bytes: 512
	// KiB, about 2,500 instructions. Patterns of a few bytes such as \pL{1000} compile to
	// megabytes, and matching takes proportional time.
	RegexCost int64
	// FilterCells bounds the copies of cells held at once while a filter is evaluated on one row:
	// 100,000 beyond four times the row's own cells. Otherwise twenty nested interleaves of two
	// would turn one cell into a million.
	FilterCells int64
	// FilterSteps bounds the cost of evaluating a filter for one request: 256 Mi steps, one for
	// each instruction of a pattern and each byte matched. That is a few seconds at worst. It
	// allows matching a pattern of 25 instructions against 10 MiB.
	FilterSteps int64
}

// DefaultLimits returns the default limits.
func DefaultLimits() Limits {
	return Limits{
		RowKeyBytes:      64 << 10,
		TableNameBytes:   64,
		FamilyNameBytes:  64,
		QualifierBytes:   16 << 10,
		ValueBytes:       100 << 20,
		RowMutationBytes: 256 << 20,
		Mutations:        100_000,
		BatchRows:        100_000,
		Families:         1000,
		Groups:           16,
		GCPolicyNodes:    64,
		GCPolicyDepth:    16,
		FilterDepth:      20,
		FilterNodes:      1000,
		FilterBytes:      20 << 10,
		RegexBytes:       4 << 10,
		RegexCost:        512 << 10,
		FilterCells:      100_000,
		FilterSteps:      1 << 28,
	}
}

var defaultLimits = DefaultLimits()

// orDefault returns the defaults if l is nil, l if all its fields are set, and otherwise a copy of
// l with defaults for unset fields. It is on the write path, where l should be full to avoid the
// copy.
func (l *Limits) orDefault() *Limits {
	if l == nil {
		return &defaultLimits
	}
	if l.full() {
		return l
	}
	r := l.WithDefaults()
	return &r
}

func (l *Limits) full() bool {
	return min(l.RowKeyBytes, l.TableNameBytes, l.FamilyNameBytes, l.QualifierBytes, l.ValueBytes,
		l.RowMutationBytes, l.Mutations, l.BatchRows, l.Families, l.Groups, l.GCPolicyNodes, l.GCPolicyDepth,
		l.FilterDepth, l.FilterNodes, l.FilterBytes, l.RegexBytes, l.RegexCost, l.FilterCells, l.FilterSteps) > 0
}

// WithDefaults returns the limits with defaults for unset fields. Pass full limits to frequent
// calls: otherwise each call makes this copy.
func (l Limits) WithDefaults() Limits {
	d := &defaultLimits
	l.RowKeyBytes = orIfNone(l.RowKeyBytes, d.RowKeyBytes)
	l.TableNameBytes = orIfNone(l.TableNameBytes, d.TableNameBytes)
	l.FamilyNameBytes = orIfNone(l.FamilyNameBytes, d.FamilyNameBytes)
	l.QualifierBytes = orIfNone(l.QualifierBytes, d.QualifierBytes)
	l.ValueBytes = orIfNone(l.ValueBytes, d.ValueBytes)
	l.RowMutationBytes = orIfNone(l.RowMutationBytes, d.RowMutationBytes)
	l.Mutations = orIfNone(l.Mutations, d.Mutations)
	l.BatchRows = orIfNone(l.BatchRows, d.BatchRows)
	l.Families = orIfNone(l.Families, d.Families)
	l.Groups = orIfNone(l.Groups, d.Groups)
	l.GCPolicyNodes = orIfNone(l.GCPolicyNodes, d.GCPolicyNodes)
	l.GCPolicyDepth = orIfNone(l.GCPolicyDepth, d.GCPolicyDepth)
	l.FilterDepth = orIfNone(l.FilterDepth, d.FilterDepth)
	l.FilterNodes = orIfNone(l.FilterNodes, d.FilterNodes)
	l.FilterBytes = orIfNone(l.FilterBytes, d.FilterBytes)
	l.RegexBytes = orIfNone(l.RegexBytes, d.RegexBytes)
	l.RegexCost = orIfNone(l.RegexCost, d.RegexCost)
	l.FilterCells = orIfNone(l.FilterCells, d.FilterCells)
	l.FilterSteps = orIfNone(l.FilterSteps, d.FilterSteps)
	return l
}

func orIfNone(v, def int64) int64 {
	if v <= 0 {
		return def
	}
	return v
}

// CheckRowKey checks a row key's size. Errors: ErrBadRowKey, ErrLimit.
func (l *Limits) CheckRowKey(key []byte) error {
	if len(key) == 0 {
		return ErrBadRowKey
	}
	return checkLimit("row key bytes", len(key), l.orDefault().RowKeyBytes)
}

// CheckTableName checks a table's name. Errors: ErrBadName, ErrLimit.
func (l *Limits) CheckTableName(name string) error {
	return checkName("table name", name, l.orDefault().TableNameBytes)
}

// CheckName checks the name of what has names as tables do: "replication name". Errors: ErrBadName, ErrLimit.
func (l *Limits) CheckName(what, name string) error {
	return checkName(what, name, l.orDefault().TableNameBytes)
}

// CheckFamilyName checks a column family's name. Errors: ErrBadName, ErrLimit.
func (l *Limits) CheckFamilyName(name string) error {
	return checkName("family name", name, l.orDefault().FamilyNameBytes)
}

// checkName checks that a name has one or more of [-_.a-zA-Z0-9]. "." and ".." are rejected because
// tables are paths in the lock service.
func checkName(what, name string, limit int64) error {
	if name == "" {
		return &NameError{What: what, Reason: "is empty"}
	}
	if int64(len(name)) > limit {
		return &LimitError{What: what + " bytes", Limit: limit, Got: int64(len(name))}
	}
	if name == "." || name == ".." {
		return &NameError{What: what, Name: name, Reason: "is a path component: add a letter or a digit"}
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return &NameError{What: what, Name: name, Reason: "has characters other than a-z A-Z 0-9 - _ ."}
		}
	}
	return nil
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '_' || c == '.'
}
