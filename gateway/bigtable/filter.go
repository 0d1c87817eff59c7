package bigtable

import (
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// filterDepthMax bounds the recursion of convertFilter; the tablet server has the same limit.
const filterDepthMax = 20

// convertFilter converts a filter, which may be nil, and checks what only Google's API requires. The
// tablet server checks the rest. Errors are statuses.
func convertFilter(from *bigtablepb.RowFilter) (table.Filter, error) {
	if from == nil {
		return nil, nil
	}
	return filterAt(from, 1)
}

// filterAt converts a filter at a depth of the tree.
func filterAt(from *bigtablepb.RowFilter, depth int) (table.Filter, error) {
	if depth > filterDepthMax {
		return nil, errcode.Invalid("filter has more than %d levels", filterDepthMax)
	}
	switch f := from.GetFilter().(type) {
	case nil: // as the public emulator does
		return table.PassAll{}, nil
	case *bigtablepb.RowFilter_Chain_:
		parts, err := filterParts("Chain", f.Chain.GetFilters(), depth)
		return table.Chain(parts), err
	case *bigtablepb.RowFilter_Interleave_:
		parts, err := filterParts("Interleave", f.Interleave.GetFilters(), depth)
		return table.Interleave(parts), err
	case *bigtablepb.RowFilter_Condition_:
		return condition(f.Condition, depth)
	case *bigtablepb.RowFilter_Sink:
		return flag("sink", f.Sink, table.Sink{})
	case *bigtablepb.RowFilter_PassAllFilter:
		return flag("pass_all_filter", f.PassAllFilter, table.PassAll{})
	case *bigtablepb.RowFilter_BlockAllFilter:
		return flag("block_all_filter", f.BlockAllFilter, table.BlockAll{})
	case *bigtablepb.RowFilter_StripValueTransformer:
		return flag("strip_value_transformer", f.StripValueTransformer, table.StripValue{})
	}
	return leaf(from)
}

// leaf converts a filter without parts that has an argument.
func leaf(from *bigtablepb.RowFilter) (table.Filter, error) {
	switch f := from.GetFilter().(type) {
	case *bigtablepb.RowFilter_RowKeyRegexFilter:
		if len(f.RowKeyRegexFilter) == 0 {
			return nil, errcode.Invalid("Error in field 'row_key_regex_filter' : argument must not be empty")
		}
		return table.RowRegex(f.RowKeyRegexFilter), nil
	case *bigtablepb.RowFilter_RowSampleFilter:
		return table.RowSample(f.RowSampleFilter), nil
	case *bigtablepb.RowFilter_FamilyNameRegexFilter:
		return table.FamilyRegex(f.FamilyNameRegexFilter), nil
	case *bigtablepb.RowFilter_ColumnQualifierRegexFilter:
		return table.QualifierRegex(f.ColumnQualifierRegexFilter), nil
	case *bigtablepb.RowFilter_ValueRegexFilter:
		return table.ValueRegex(f.ValueRegexFilter), nil
	case *bigtablepb.RowFilter_ColumnRangeFilter:
		return columnRange(f.ColumnRangeFilter), nil
	case *bigtablepb.RowFilter_ValueRangeFilter:
		return valueRange(f.ValueRangeFilter), nil
	case *bigtablepb.RowFilter_TimestampRangeFilter:
		r := f.TimestampRangeFilter
		return table.TimestampRange{Start: r.GetStartTimestampMicros(), End: timestampEnd(r.GetEndTimestampMicros())}, nil
	case *bigtablepb.RowFilter_CellsPerRowOffsetFilter:
		return table.CellsPerRowOffset(f.CellsPerRowOffsetFilter), nil
	case *bigtablepb.RowFilter_CellsPerRowLimitFilter:
		return table.CellsPerRowLimit(f.CellsPerRowLimitFilter), nil
	case *bigtablepb.RowFilter_CellsPerColumnLimitFilter:
		return table.CellsPerColumnLimit(f.CellsPerColumnLimitFilter), nil
	case *bigtablepb.RowFilter_ApplyLabelTransformer:
		return table.ApplyLabel(f.ApplyLabelTransformer), nil
	case *bigtablepb.RowFilter_ValueBitmaskFilter:
		return nil, errcode.Unimplemented("The filter value_bitmask_filter is not supported.")
	}
	return nil, errcode.Unimplemented("The filter is not supported.")
}

// flag returns a filter whose argument must be true.
func flag(name string, value bool, f table.Filter) (table.Filter, error) {
	if !value {
		return nil, errcode.Invalid("%s must be true if set", name)
	}
	return f, nil
}

func filterParts(kind string, from []*bigtablepb.RowFilter, depth int) ([]table.Filter, error) {
	if len(from) < 2 {
		return nil, errcode.Invalid("%s must contain at least two RowFilters", kind)
	}
	to := make([]table.Filter, len(from))
	for i, f := range from {
		var err error
		if to[i], err = filterAt(f, depth+1); err != nil {
			return nil, err
		}
	}
	return to, nil
}

func condition(from *bigtablepb.RowFilter_Condition, depth int) (table.Filter, error) {
	var to table.Condition
	for _, branch := range []struct {
		from *bigtablepb.RowFilter
		to   *table.Filter
	}{{from.GetPredicateFilter(), &to.Predicate}, {from.GetTrueFilter(), &to.True}, {from.GetFalseFilter(), &to.False}} {
		if branch.from == nil {
			continue
		}
		var err error
		if *branch.to, err = filterAt(branch.from, depth+1); err != nil {
			return nil, err
		}
	}
	return to, nil
}

func columnRange(from *bigtablepb.ColumnRange) table.Filter {
	to := table.ColumnRange{Family: from.GetFamilyName()}
	switch b := from.GetStartQualifier().(type) {
	case *bigtablepb.ColumnRange_StartQualifierClosed:
		to.Qualifiers.Start = table.Closed(b.StartQualifierClosed)
	case *bigtablepb.ColumnRange_StartQualifierOpen:
		to.Qualifiers.Start = table.Open(b.StartQualifierOpen)
	}
	switch b := from.GetEndQualifier().(type) {
	case *bigtablepb.ColumnRange_EndQualifierClosed:
		to.Qualifiers.End = table.Closed(b.EndQualifierClosed)
	case *bigtablepb.ColumnRange_EndQualifierOpen:
		to.Qualifiers.End = openEnd(b.EndQualifierOpen)
	}
	return to
}

func valueRange(from *bigtablepb.ValueRange) table.Filter {
	var to table.ValueRange
	switch b := from.GetStartValue().(type) {
	case *bigtablepb.ValueRange_StartValueClosed:
		to.Start = table.Closed(b.StartValueClosed)
	case *bigtablepb.ValueRange_StartValueOpen:
		to.Start = table.Open(b.StartValueOpen)
	}
	switch b := from.GetEndValue().(type) {
	case *bigtablepb.ValueRange_EndValueClosed:
		to.End = table.Closed(b.EndValueClosed)
	case *bigtablepb.ValueRange_EndValueOpen:
		to.End = openEnd(b.EndValueOpen)
	}
	return to
}

// openEnd returns an exclusive end, where the empty string means unbounded.
func openEnd(value []byte) table.Bound {
	if len(value) == 0 {
		return table.Bound{}
	}
	return table.Open(value)
}
