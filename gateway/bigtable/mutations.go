package bigtable

import (
	"slices"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// rowMutation converts the mutations of a row. It reports whether they may be executed twice. Names,
// sizes and timestamps are checked when the mutation is applied. The result shares the memory of
// its arguments. Errors are statuses.
func rowMutation(row []byte, from []*bigtablepb.Mutation) (*client.RowMutation, errcode.Repeat, error) {
	m, repeat := client.NewRowMutation(string(row)), errcode.Repeatable
	for i, f := range from {
		to, err := mutation(i, f)
		if err != nil {
			return nil, repeat, err
		}
		if to.Op == table.OpSet && to.Timestamp == table.ServerTimestamp || to.Op.IsOperand() {
			repeat = errcode.Once
		}
		m.Add(to)
	}
	return m, repeat, nil
}

// mutation converts the mutation at an index.
func mutation(index int, from *bigtablepb.Mutation) (table.Mutation, error) {
	switch m := from.GetMutation().(type) {
	case *bigtablepb.Mutation_SetCell_:
		c := m.SetCell
		return table.Set(c.GetFamilyName(), c.GetColumnQualifier(), c.GetTimestampMicros(), c.GetValue()), nil
	case *bigtablepb.Mutation_DeleteFromColumn_:
		c := m.DeleteFromColumn
		if c.GetTimeRange() == nil {
			return table.DeleteColumn(c.GetFamilyName(), c.GetColumnQualifier()), nil
		}
		return table.DeleteColumnRange(c.GetFamilyName(), c.GetColumnQualifier(),
			c.TimeRange.GetStartTimestampMicros(), timestampEnd(c.TimeRange.GetEndTimestampMicros())), nil
	case *bigtablepb.Mutation_DeleteFromFamily_:
		return table.DeleteFamily(m.DeleteFromFamily.GetFamilyName()), nil
	case *bigtablepb.Mutation_DeleteFromRow_:
		return table.DeleteRow(), nil
	case *bigtablepb.Mutation_AddToCell_:
		a := m.AddToCell
		input, ok := a.GetInput().GetKind().(*bigtablepb.Value_IntValue)
		if !ok {
			return table.Mutation{}, errcode.Invalid("Error in element #%d: only int64 values are supported", index)
		}
		to := table.Add(a.GetFamilyName(), nil, 0, input.IntValue)
		return placed(to, index, a.GetColumnQualifier(), a.GetTimestamp())
	case *bigtablepb.Mutation_MergeToCell_:
		a := m.MergeToCell
		input, ok := a.GetInput().GetKind().(*bigtablepb.Value_RawValue)
		if !ok {
			return table.Mutation{}, errcode.Invalid("Error in element #%d: only raw values can be merged", index)
		}
		to := table.Merge(a.GetFamilyName(), nil, 0, input.RawValue)
		return placed(to, index, a.GetColumnQualifier(), a.GetTimestamp())
	}
	return table.Mutation{}, errcode.Invalid("Error in element #%d: no mutation is set", index)
}

// placed returns an operand with its column and timestamp, which may be absent. The error is a status.
func placed(to table.Mutation, index int, qualifier, timestamp *bigtablepb.Value) (table.Mutation, error) {
	switch q := qualifier.GetKind().(type) {
	case nil:
	case *bigtablepb.Value_RawValue:
		to.Qualifier = q.RawValue
	default:
		return to, errcode.Invalid("Error in element #%d: column_qualifier is not a raw value", index)
	}
	switch at := timestamp.GetKind().(type) {
	case nil:
	case *bigtablepb.Value_RawTimestampMicros:
		to.Timestamp = at.RawTimestampMicros
	default:
		return to, errcode.Invalid("Error in element #%d: timestamp is not a raw timestamp", index)
	}
	return to, nil
}

// tokened converts the mutations of a row, with an idempotency token if one is set and an aggregate cell is changed. It returns as rowMutation.
func tokened(row []byte, from []*bigtablepb.Mutation, token *bigtablepb.Idempotency) (*client.RowMutation, errcode.Repeat, error) {
	m, repeat, err := rowMutation(row, from)
	if err != nil || token == nil || !slices.ContainsFunc(from, func(f *bigtablepb.Mutation) bool { return f.GetAddToCell() != nil || f.GetMergeToCell() != nil }) {
		return m, repeat, err
	}
	start := time.Time{}
	if at := token.GetStartTime(); at.GetSeconds() != 0 || at.GetNanos() != 0 {
		if start = at.AsTime(); at.CheckValid() != nil || start.Before(time.UnixMicro(1)) {
			return nil, repeat, errcode.Invalid("Error in field 'idempotency.start_time': not a time after 1970")
		}
	}
	return m.WithToken(token.GetToken(), start), errcode.Repeatable, nil
}

// timestampEnd converts the end of a timestamp range, where 0 means unbounded.
func timestampEnd(micros int64) table.TimestampEnd {
	if micros == 0 {
		return table.TimestampEnd{}
	}
	return table.Before(micros)
}
