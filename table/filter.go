package table

// A Filter maps the cells of a row to a selection of them, possibly altered. It is one of the types
// below: the filters of the public Cloud Bigtable API, with the semantics documented there. Filters
// are immutable values and safe to share. Compile prepares a filter for evaluation.
//
// Regular expressions have RE2 syntax, operate on bytes rather than text, and must match the whole
// input. A dot matches any byte except a newline; \C matches any byte.
type Filter interface {
	// kind seals the interface.
	kind() filterKind
}

// filterKind identifies the type of a filter, as an index into tables.
type filterKind uint8

const (
	kindPass filterKind = iota
	kindBlock
	kindSink
	kindRowRegex
	kindRowSample
	kindFamilyRegex
	kindQualifierRegex
	kindValueRegex
	kindColumnRange
	kindValueRange
	kindValueMask
	kindTimestampRange
	kindCellsPerRowLimit
	kindCellsPerRowOffset
	kindCellsPerColumnLimit
	kindStripValue
	kindApplyLabel
	kindChain
	kindInterleave
	kindCondition
	numKinds
)

type (
	// PassAll emits every cell. So does a nil Filter.
	PassAll struct{}

	// BlockAll emits nothing.
	BlockAll struct{}

	// Sink sends every cell directly to the result of the read, bypassing all filters after it, and
	// emits nothing. It is not allowed inside a Condition.
	Sink struct{}

	// RowRegex emits every cell of a row whose key matches.
	RowRegex string

	// RowSample emits every cell of a row with this probability, and otherwise none. The
	// probability is greater than 0 and less than 1.
	RowSample float64

	// FamilyRegex emits the cells of families whose names match. As in the public API, it must not
	// contain ':', not even escaped.
	FamilyRegex string

	// QualifierRegex emits the cells of columns whose qualifiers match.
	QualifierRegex string

	// ValueRegex emits the cells whose values match.
	ValueRegex string

	// ColumnRange emits the cells of one family whose qualifiers are in a range.
	ColumnRange struct {
		Family     string
		Qualifiers ByteRange
	}

	// ValueRange emits the cells whose values are in a range.
	ValueRange ByteRange

	// ValueMask emits the cells whose values are as long as the mask and have all of its bits set.
	ValueMask string

	// TimestampRange emits the cells with timestamps in [Start, End), in microseconds. The range
	// may be empty: End may equal Start.
	TimestampRange struct {
		Start int64
		End   TimestampEnd
	}

	// CellsPerRowLimit emits the first N cells of the row. N is at least 1.
	CellsPerRowLimit int64

	// CellsPerRowOffset emits all but the first N cells of the row. N is not negative.
	CellsPerRowOffset int64

	// CellsPerColumnLimit emits the newest N cells of each column. N is at least 1. Copies made by
	// an Interleave are counted individually.
	CellsPerColumnLimit int64

	// StripValue emits every cell with an empty value.
	StripValue struct{}

	// ApplyLabel adds a label to every cell: 1 to 15 characters of [a-z0-9-]. A cell may not pass
	// through two of them, so at most one part of a Chain may contain any.
	ApplyLabel string

	// Chain applies its filters in sequence, each to the output of the one before. It has at least
	// one.
	Chain []Filter

	// Interleave applies each of its filters to its input and merges their outputs in CompareCells
	// order. Copies of a cell are kept, in the order of the filters that emitted them. It has at
	// least one filter.
	Interleave []Filter

	// Condition emits the output of True if Predicate emits any cell, and otherwise that of False.
	// All three get the input of the condition. A nil True or False emits nothing. A nil Predicate
	// emits every cell, like any nil filter.
	Condition struct{ Predicate, True, False Filter }
)

func (PassAll) kind() filterKind             { return kindPass }
func (BlockAll) kind() filterKind            { return kindBlock }
func (Sink) kind() filterKind                { return kindSink }
func (RowRegex) kind() filterKind            { return kindRowRegex }
func (RowSample) kind() filterKind           { return kindRowSample }
func (FamilyRegex) kind() filterKind         { return kindFamilyRegex }
func (QualifierRegex) kind() filterKind      { return kindQualifierRegex }
func (ValueRegex) kind() filterKind          { return kindValueRegex }
func (ColumnRange) kind() filterKind         { return kindColumnRange }
func (ValueRange) kind() filterKind          { return kindValueRange }
func (ValueMask) kind() filterKind           { return kindValueMask }
func (TimestampRange) kind() filterKind      { return kindTimestampRange }
func (CellsPerRowLimit) kind() filterKind    { return kindCellsPerRowLimit }
func (CellsPerRowOffset) kind() filterKind   { return kindCellsPerRowOffset }
func (CellsPerColumnLimit) kind() filterKind { return kindCellsPerColumnLimit }
func (StripValue) kind() filterKind          { return kindStripValue }
func (ApplyLabel) kind() filterKind          { return kindApplyLabel }
func (Chain) kind() filterKind               { return kindChain }
func (Interleave) kind() filterKind          { return kindInterleave }
func (Condition) kind() filterKind           { return kindCondition }
