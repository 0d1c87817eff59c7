package metadata

import (
	"encoding/binary"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// A Change is what is to become of a row, if it is still at the generation that the change
// was made for. To make it is to call check_and_mutate with Predicate, and Then or Else.
type Change struct {
	Key []byte
	// Predicate passes a cell if the row is at that generation. For a row that must not be there it
	// passes one if there is any.
	Predicate table.Filter
	// Then is made when the predicate passes a cell, Else when it passes none. One is empty.
	Then, Else []table.Mutation
}

// Matched says whether what check_and_mutate answered means that the change was made.
func (c *Change) Matched(matched bool) bool { return matched == (len(c.Then) > 0) }

// Create makes a row that must not be there yet, with what r says. Event is added to its events. It does not
// make one that was there and is gone: its generation must be above that of the row that was removed.
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

// Replace makes the row what r says, if it is at r's generation, and gives it the next, which r then
// has. An empty event is none.
func Replace(r *Row, event string) *Change {
	c := &Change{Key: r.Key(), Predicate: at(r.Generation), Then: r.columns(r.Generation+1, event)}
	if planted.On(planted.MetadataUnchecked) {
		c.Predicate = table.CellsPerRowLimit(1)
	}
	r.Generation++
	return c
}

// Remove removes the row if it is at that generation, and leaves a note that it is gone.
func Remove(r *Row) *Change {
	return &Change{Key: r.Key(), Predicate: at(r.Generation), Then: []table.Mutation{
		table.DeleteRow(),
		table.Set(familyGone, columnGeneration, table.ServerTimestamp, generationBytes(r.Generation)),
	}}
}

// at passes the generation's cell if it is that one.
func at(generation uint64) table.Filter {
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

// columns are the row's columns, at a generation.
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
