package bigtable

import (
	"cmp"
	"context"
	"slices"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// partitionOf returns the partition with the rows of a position.
func partitionOf(p *client.ChangePosition) *bigtablepb.StreamPartition {
	var start, end []byte
	if len(p.Start) > 0 {
		start = []byte(successor(p.Start))
	}
	if len(p.End) > 0 {
		end = []byte(successor(p.End))
	}
	return &bigtablepb.StreamPartition{RowRange: rowRange(start, end)}
}

// rowRange returns the range from start up to, but not including, end; an empty one means no bound.
func rowRange(start, end []byte) *bigtablepb.RowRange {
	return &bigtablepb.RowRange{StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: start}, EndKey: &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: end}}
}

// within returns the part of the reader's partition that a position has, or nil if there is none.
func (r *changeReader) within(p *client.ChangePosition) *bigtablepb.StreamPartition {
	part := partitionOf(p).RowRange
	start, end := part.GetStartKeyClosed(), part.GetEndKeyOpen()
	if string(start) < r.rows.start {
		start = []byte(r.rows.start)
	}
	if r.rows.end != "" && (len(end) == 0 || string(end) > r.rows.end) {
		end = []byte(r.rows.end)
	}
	if len(end) > 0 && string(start) >= string(end) {
		return nil
	}
	return &bigtablepb.StreamPartition{RowRange: rowRange(start, end)}
}

// startOf returns a key before the row start, near it. An empty start has an empty one, which means no bound.
func startOf(start string) []byte {
	if start == "" {
		return nil
	}
	return below([]byte(start))
}

// lastOf returns the last key before the row end or, if there is none, end.
func lastOf(end string) []byte {
	if n := len(end) - 1; n > 0 && end[n] == 0 {
		return []byte(end[:n])
	}
	return []byte(end)
}

// covered reports whether positions have all rows above start up to end.
func covered(positions []client.ChangePosition, start, end []byte) bool {
	slices.SortFunc(positions, func(a, b client.ChangePosition) int { return cmp.Compare(string(a.Start), string(b.Start)) })
	for i := range positions {
		if p := &positions[i]; string(p.Start) <= string(start) {
			if len(p.End) == 0 || len(end) > 0 && string(p.End) >= string(end) {
				return true
			}
			start = []byte(max(string(start), string(p.End)))
		}
	}
	return false
}

// convert converts the mutations of a change. A deletion of the row becomes one of each family, as clients of Google's service expect; if there are
// several, only the last one matters. Errors are those of Table.Families.
func (r *changeReader) convert(ctx context.Context, from []table.Mutation) (to []*bigtablepb.Mutation, err error) {
	last := len(from) - 1
	for last >= 0 && from[last].Op != table.OpDeleteRow {
		last--
	}
	for i := range from {
		switch {
		case i == last:
			names, err := r.table.Families(ctx)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				d := table.DeleteFamily(name)
				to = append(to, mutationOf(&d))
			}
		case from[i].Op != table.OpDeleteRow:
			to = append(to, mutationOf(&from[i]))
		}
	}
	return to, nil
}

// mutationOf converts a mutation that is not a deletion of a row. An added value is merged.
func mutationOf(m *table.Mutation) *bigtablepb.Mutation {
	switch m.Op {
	case table.OpSet:
		return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
			FamilyName: m.Family, ColumnQualifier: m.Qualifier, TimestampMicros: m.Timestamp, Value: m.Value}}}
	case table.OpDeleteColumn:
		d := &bigtablepb.Mutation_DeleteFromColumn{FamilyName: m.Family, ColumnQualifier: m.Qualifier}
		if end, bounded := m.End.Bound(); m.Start > 0 || bounded {
			d.TimeRange = &bigtablepb.TimestampRange{StartTimestampMicros: m.Start, EndTimestampMicros: end}
		}
		return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: d}}
	case table.OpDeleteFamily:
		return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: m.Family}}}
	}
	raw := func(b []byte) *bigtablepb.Value {
		return &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: b}}
	}
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_MergeToCell_{MergeToCell: &bigtablepb.Mutation_MergeToCell{
		FamilyName: m.Family, ColumnQualifier: raw(m.Qualifier), Input: raw(m.Value),
		Timestamp: &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: m.Timestamp}}}}}
}

// changeChunkBytes bounds the mutations of one message, and the part of a value in it.
const changeChunkBytes = 1 << 20

// sendParts adds the mutations of a change to its message m, and returns it to be completed and sent. If they are many bytes, it sends m and others
// with parts of them, and returns the last one, and the size of all.
func (r *changeReader) sendParts(m *bigtablepb.ReadChangeStreamResponse_DataChange, mutations []*bigtablepb.Mutation) (last *bigtablepb.ReadChangeStreamResponse_DataChange, all int, err error) {
	bytes := 0
	for _, x := range mutations {
		for _, chunk := range chunksOf(x) {
			n := proto.Size(chunk)
			if bytes > 0 && bytes+n > changeChunkBytes {
				if err := r.sendData(m); err != nil {
					return nil, 0, err
				}
				all += bytes
				m, bytes = &bigtablepb.ReadChangeStreamResponse_DataChange{Type: bigtablepb.ReadChangeStreamResponse_DataChange_CONTINUATION}, 0
			}
			m.Chunks, bytes = append(m.Chunks, chunk), bytes+n
		}
	}
	return m, all + bytes, nil
}

func (r *changeReader) sendData(m *bigtablepb.ReadChangeStreamResponse_DataChange) error {
	return r.send(&bigtablepb.ReadChangeStreamResponse{StreamRecord: &bigtablepb.ReadChangeStreamResponse_DataChange_{DataChange: m}})
}

// chunksOf returns a mutation in parts: a large value is in several.
func chunksOf(m *bigtablepb.Mutation) (chunks []*bigtablepb.ReadChangeStreamResponse_MutationChunk) {
	set := m.GetSetCell()
	size := len(set.GetValue())
	if size <= changeChunkBytes {
		return []*bigtablepb.ReadChangeStreamResponse_MutationChunk{{Mutation: m}}
	}
	for at := 0; at < size; at += changeChunkBytes {
		end := min(at+changeChunkBytes, size)
		part := &bigtablepb.Mutation_SetCell{FamilyName: set.FamilyName, ColumnQualifier: set.ColumnQualifier, TimestampMicros: set.TimestampMicros, Value: set.Value[at:end]}
		chunks = append(chunks, &bigtablepb.ReadChangeStreamResponse_MutationChunk{
			Mutation:  &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: part}},
			ChunkInfo: &bigtablepb.ReadChangeStreamResponse_MutationChunk_ChunkInfo{ChunkedValueSize: int32(size), ChunkedValueOffset: int32(at), LastChunk: end == size},
		})
	}
	return chunks
}
