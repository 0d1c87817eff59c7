package bigtable

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client/api"
)

// many returns n times what make makes.
func many[T any](n int, make func(i int) T) (all []T) {
	for i := range n {
		all = append(all, make(i))
	}
	return all
}

// liveBytes returns how much memory a message takes when it is decoded.
func liveBytes(t *testing.T, b []byte, to proto.Message) int64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC() // the second one frees what pools of other tests have
	runtime.GC()
	runtime.ReadMemStats(&before)
	if err := proto.Unmarshal(b, to); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(to)
	runtime.KeepAlive(b)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// TestDecodedBytes (GB8): whatever a request consists of, it takes no more memory than was estimated from its bytes; and a usual one not much less.
func TestDecodedBytes(t *testing.T) {
	const n = 20_000
	cell := func(i int) *bigtablepb.Mutation {
		return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "f", ColumnQualifier: []byte("q"), TimestampMicros: int64(i), Value: []byte("v")}}}
	}
	large := cell(1)
	large.GetSetCell().Value = make([]byte, 1<<20)
	filter := &bigtablepb.RowFilter{}
	for range 2000 {
		filter = &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: []*bigtablepb.RowFilter{filter}}}}
	}
	for what, m := range map[string]proto.Message{
		"empty entries": &bigtablepb.MutateRowsRequest{Entries: many(n, func(int) *bigtablepb.MutateRowsRequest_Entry { return &bigtablepb.MutateRowsRequest_Entry{} })},
		"entries": &bigtablepb.MutateRowsRequest{Entries: many(n, func(i int) *bigtablepb.MutateRowsRequest_Entry {
			return &bigtablepb.MutateRowsRequest_Entry{RowKey: fmt.Append(nil, i), Mutations: []*bigtablepb.Mutation{cell(i)}}
		})},
		"empty mutations": &bigtablepb.MutateRowRequest{Mutations: many(n, func(int) *bigtablepb.Mutation { return &bigtablepb.Mutation{} })},
		"mutations":       &bigtablepb.MutateRowRequest{Mutations: many(n, cell)},
		"a large value":   &bigtablepb.MutateRowRequest{Mutations: []*bigtablepb.Mutation{large}},
		"rules":           &bigtablepb.ReadModifyWriteRowRequest{Rules: many(n, func(int) *bigtablepb.ReadModifyWriteRule { return &bigtablepb.ReadModifyWriteRule{} })},
		"empty keys":      &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: many(n, func(int) []byte { return nil })}},
		"keys":            &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: many(n, func(i int) []byte { return fmt.Appendf(nil, "row%08d", i) })}},
		"ranges":          &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowRanges: many(n, func(int) *bigtablepb.RowRange { return &bigtablepb.RowRange{} })}},
		"filters": &bigtablepb.ReadRowsRequest{Filter: &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Interleave_{Interleave: &bigtablepb.RowFilter_Interleave{
			Filters: many(n, func(int) *bigtablepb.RowFilter { return &bigtablepb.RowFilter{} })}}}},
		"nested filters":  &bigtablepb.ReadRowsRequest{Filter: filter},
		"splits":          &adminpb.CreateTableRequest{InitialSplits: many(n, func(int) *adminpb.CreateTableRequest_Split { return &adminpb.CreateTableRequest_Split{} })},
		"map of families": &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {}, "b": {}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		estimate := layoutOf(m.ProtoReflect().Descriptor()).decodedBytes(b, 0)
		took := liveBytes(t, b, m.ProtoReflect().New().Interface())
		t.Logf("%s: %d bytes take %d, estimated as %d", what, len(b), took, estimate)
		if took > estimate+64<<10 { // of other goroutines
			t.Errorf("%s: %d bytes take %d, estimated as %d", what, len(b), took, estimate)
		}
		if len(b) > 100<<10 && estimate > 6*took {
			t.Errorf("%s: %d bytes take only %d, estimated as %d", what, len(b), took, estimate)
		}
	}
}

// TestDecodeBounds (GB8): a message that takes more memory than there can be is rejected for good, one that must wait for memory is not decoded, and what was
// reserved is released if it is malformed.
func TestDecodeBounds(t *testing.T) {
	b, err := proto.Marshal(&bigtablepb.MutateRowsRequest{Entries: many(1000, func(int) *bigtablepb.MutateRowsRequest_Entry { return &bigtablepb.MutateRowsRequest_Entry{} })})
	if err != nil {
		t.Fatal(err)
	}
	reserved := int64(0)
	reserve := func(_ context.Context, n int64) (func(), error) {
		reserved += n
		return func() { reserved -= n }, nil
	}
	var m bigtablepb.MutateRowsRequest
	if _, err := decode(t.Context(), b, &m, 100<<10, reserve); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "more than 100 KiB") || reserved != 0 || len(m.Entries) != 0 {
		t.Errorf("too large: %v, %d entries, %d bytes reserved", err, len(m.Entries), reserved)
	}
	full := func(context.Context, int64) (func(), error) { return nil, &api.OverloadedError{Reason: "memory"} }
	if _, err := decode(t.Context(), b, &m, 1<<20, full); status.Code(err) != codes.Unavailable || len(m.Entries) != 0 {
		t.Errorf("without memory: %v, %d entries", err, len(m.Entries))
	}
	release, err := decode(t.Context(), b, &m, 1<<20, reserve)
	if err != nil || len(m.Entries) != 1000 || reserved != 1000*(listedBytes-2) {
		t.Errorf("%d entries, %d bytes reserved, %v", len(m.Entries), reserved, err)
	}
	if release(); reserved != 0 {
		t.Errorf("%d bytes are not released", reserved)
	}
	if _, err := decode(t.Context(), append(b, 0x12), &m, 1<<20, reserve); status.Code(err) != codes.InvalidArgument || reserved != 0 {
		t.Errorf("malformed: %v, %d bytes reserved", err, reserved)
	}
}

// BenchmarkDecodedBytes measures the estimate beside the decoding of 100 rows.
func BenchmarkDecodedBytes(b *testing.B) {
	m := &bigtablepb.MutateRowsRequest{Entries: many(100, func(i int) *bigtablepb.MutateRowsRequest_Entry {
		return &bigtablepb.MutateRowsRequest_Entry{RowKey: fmt.Appendf(nil, "row%08d", i), Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{
			SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "f", ColumnQualifier: []byte("q"), TimestampMicros: 1000, Value: make([]byte, 1000)}}}}}
	})}
	data, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("estimate", func(b *testing.B) {
		for b.Loop() {
			layoutOf(m.ProtoReflect().Descriptor()).decodedBytes(data, 0)
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if err := proto.Unmarshal(data, &bigtablepb.MutateRowsRequest{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
