package bigtable

import (
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
		if to.Op == table.OpSet && to.Timestamp == table.ServerTimestamp {
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
	case *bigtablepb.Mutation_AddToCell_, *bigtablepb.Mutation_MergeToCell_:
		return table.Mutation{}, errcode.Unimplemented("Aggregate families are not supported: AddToCell and MergeToCell need one.")
	}
	return table.Mutation{}, errcode.Invalid("Error in element #%d: no mutation is set", index)
}

// timestampEnd converts the end of a timestamp range, where 0 means unbounded.
func timestampEnd(micros int64) table.TimestampEnd {
	if micros == 0 {
		return table.TimestampEnd{}
	}
	return table.Before(micros)
}
