package table

// A Filter takes the cells of a row and gives out some of them, perhaps altered.
// It is one of the types below, which are the filters of the public Cloud
// Bigtable API with the semantics documented there. Compile makes a filter ready
// to use; filters themselves are inert values and safe to share.
//
// Regular expressions are RE2's over bytes, not text, and must match the whole of
// what they are matched with. A dot matches any byte but a newline; \C matches
// any byte.
type Filter interface {
	// kind seals the interface.
	kind() filterKind
}

// filterKind numbers the types of filter, for tables indexed by it.
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
	// PassAll gives out every cell. So does a nil Filter.
	PassAll struct{}

	// BlockAll gives out nothing.
	BlockAll struct{}

	// Sink sends every cell straight to the result of the read, past all filters
	// that would come after it, and gives out nothing. It is not allowed inside a
	// Condition.
	Sink struct{}

	// RowRegex gives out every cell of a row whose key matches.
	RowRegex string

	// RowSample gives out every cell of a row with this probability, which is above
	// 0 and below 1, and none otherwise.
	RowSample float64

	// FamilyRegex gives out the cells of families whose names match. For the sake
	// of the public API it has no ':', not even escaped.
	FamilyRegex string

	// QualifierRegex gives out the cells of columns whose qualifiers match.
	QualifierRegex string

	// ValueRegex gives out the cells whose values match.
	ValueRegex string

	// ColumnRange gives out the cells of one family whose qualifiers are in a range.
	ColumnRange struct {
		Family     string
		Qualifiers ByteRange
	}

	// ValueRange gives out the cells whose values are in a range.
	ValueRange ByteRange

	// TimestampRange gives out the cells with timestamps in [Start, End), in
	// microseconds. It may be empty: End may equal Start.
	TimestampRange struct {
		Start int64
		End   TimestampEnd
	}

	// CellsPerRowLimit gives out the first so many cells of the row: at least 1.
	CellsPerRowLimit int64

	// CellsPerRowOffset gives out all but the first so many cells of the row: not
	// negative.
	CellsPerRowOffset int64

	// CellsPerColumnLimit gives out the newest so many cells of each column: at
	// least 1. Copies that an Interleave made count singly.
	CellsPerColumnLimit int64

	// StripValue gives out every cell with an empty value.
	StripValue struct{}

	// ApplyLabel gives out every cell with a label: 1 to 15 of [a-z0-9-]. No cell
	// may pass through two, so at most one part of a Chain may have any in it.
	ApplyLabel string

	// Chain gives out what the last of its filters gives, the first getting the
	// chain's cells and each other what the one before gave. It has at least one.
	Chain []Filter

	// Interleave gives each of its filters the cells that it gets, and gives out
	// what they give, merged in the order of CompareCells. Copies of one cell stay,
	// in the order of the filters that gave them. It has at least one.
	Interleave []Filter

	// Condition gives out what True gives if Predicate gives any cell, and else
	// what False gives; each gets the cells that the condition gets. A nil True or
	// False gives nothing. A nil Predicate gives every cell, as everywhere.
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
func (TimestampRange) kind() filterKind      { return kindTimestampRange }
func (CellsPerRowLimit) kind() filterKind    { return kindCellsPerRowLimit }
func (CellsPerRowOffset) kind() filterKind   { return kindCellsPerRowOffset }
func (CellsPerColumnLimit) kind() filterKind { return kindCellsPerColumnLimit }
func (StripValue) kind() filterKind          { return kindStripValue }
func (ApplyLabel) kind() filterKind          { return kindApplyLabel }
func (Chain) kind() filterKind               { return kindChain }
func (Interleave) kind() filterKind          { return kindInterleave }
func (Condition) kind() filterKind           { return kindCondition }
