package metadata

import (
	"encoding/binary"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// A Change is a compare-and-set of one row, conditional on the row's generation. To make it, call
// check_and_mutate with Predicate, Then and Else.
type Change struct {
	Key []byte
	// Predicate passes a cell if the row is at the expected generation. For Create it passes a cell
	// if the row exists.
	Predicate table.Filter
	// Then applies if the predicate passes a cell, Else if it passes none. One of them is empty.
	Then, Else []table.Mutation
}

// Matched reports whether the change was made, given the result of check_and_mutate.
func (c *Change) Matched(matched bool) bool { return matched == (len(c.Then) > 0) }

// Create makes a row that does not exist, with the contents of r, and adds event to its events. It
// does not recreate a row of an earlier state: r's generation must be above that of a removed row.
func Create(r *Row, event string) *Change {
	above := table.Bound{Value: generationBytes(r.Generation), Kind: table.BoundClosed}
	return &Change{
		Key: r.Key(), Predicate: table.Interleave{
			table.Chain{Rows(), table.CellsPerRowLimit(1)},
			table.Chain{table.FamilyRegex(familyGone), table.CellsPerColumnLimit(1), table.ValueRange(table.ByteRange{Start: above})},
		},
		Else: r.columns(r.Generation, event),
	}
}

// Replace sets the row's contents to r if the row is at r's generation. It increments r.Generation,
// and the row gets that generation. An empty event adds none.
func Replace(r *Row, event string) *Change {
	c := &Change{Key: r.Key(), Predicate: generationIs(r.Generation), Then: r.columns(r.Generation+1, event)}
	if planted.On(planted.MetadataUnchecked) {
		c.Predicate = table.CellsPerRowLimit(1)
	}
	r.Generation++
	return c
}

// Remove removes the row if it is at r's generation, and records that generation in
// gone:generation.
func Remove(r *Row) *Change {
	return &Change{Key: r.Key(), Predicate: generationIs(r.Generation), Then: []table.Mutation{
		table.DeleteRow(),
		table.Set(familyGone, columnGeneration, table.ServerTimestamp, generationBytes(r.Generation)),
	}}
}

// generationIs passes the row's generation cell if it has that value.
func generationIs(generation uint64) table.Filter {
	value := generationBytes(generation)
	return table.Chain{
		table.ColumnRange{Family: familyLoc, Qualifiers: exactly(columnGeneration)},
		table.CellsPerColumnLimit(1),
		table.ValueRange(exactly(value)),
	}
}

func exactly(b []byte) table.ByteRange {
	bound := table.Bound{Value: b, Kind: table.BoundClosed}
	return table.ByteRange{Start: bound, End: bound}
}

func generationBytes(g uint64) []byte { return binary.BigEndian.AppendUint64(nil, g) }

// columns returns the mutations that write the row's columns at a generation.
func (r *Row) columns(generation uint64, event string) []table.Mutation {
	set := func(family string, qualifier, value []byte) table.Mutation {
		return table.Set(family, qualifier, table.ServerTimestamp, value)
	}
	ms := []table.Mutation{
		set(familyLoc, columnGeneration, generationBytes(generation)),
		set(familyFiles, columnMeta, r.Meta),
	}
	if r.Server == "" {
		ms = append(ms, table.DeleteColumn(familyLoc, columnServer))
	} else {
		ms = append(ms, set(familyLoc, columnServer, encode(func(e *wire.Encoder) { e.Array(2); e.Str(r.Server); e.Str(r.Addr) })))
	}
	if r.Split == nil {
		ms = append(ms, table.DeleteColumn(familyFiles, columnSplit))
	} else {
		ms = append(ms, set(familyFiles, columnSplit, r.Split))
	}
	if len(r.Recoveries) == 0 {
		ms = append(ms, table.DeleteColumn(familyLog, columnRecoveries))
	} else {
		ms = append(ms, set(familyLog, columnRecoveries, encode(func(e *wire.Encoder) { appendStrings(e, r.Recoveries) })))
	}
	if event != "" {
		ms = append(ms, set(familyEvent, nil, []byte(event)))
	}
	return ms
}
