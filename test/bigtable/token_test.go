package bigtable

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/client"
	tables "github.com/steledb/stele/table"
)

// addToCell adds 1 to the counter.
func addToCell() []*bigtablepb.Mutation {
	raw := &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: []byte("q")}}
	a := &bigtablepb.Mutation_AddToCell{FamilyName: "sum", ColumnQualifier: raw, Timestamp: &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: 1000}},
		Input: &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: 1}}}
	return []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: a}}}
}

// counters is a table with a counter in each row.
type counters struct {
	t   *testing.T
	c   *client.Client
	api bigtablepb.BigtableClient
}

func newCounters(t *testing.T) *counters {
	n := startNode(t)
	c, err := client.Open(t.Context(), n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	sum := tables.AggregateSum
	x := &counters{t, c, bigtablepb.NewBigtableClient(dial(t, n))}
	if _, err := c.Tables().Create(t.Context(), table, tables.FamilySpec{Name: "sum", Aggregate: &sum}); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *counters) add(row string, id *bigtablepb.Idempotency) error {
	_, err := x.api.MutateRow(context.Background(), &bigtablepb.MutateRowRequest{TableName: wholeTable, RowKey: []byte(row), Mutations: addToCell(), Idempotency: id})
	return err
}

func (x *counters) must(row string, want int64) {
	x.t.Helper()
	r, err := x.c.Table(table).Get(x.t.Context(), row)
	if err != nil || r == nil || len(r.Cells) != 1 || int64(binary.BigEndian.Uint64(r.Cells[0].Value)) != want {
		x.t.Fatalf("row %s: %+v, %v, want one cell of %d", row, r, err, want)
	}
}

// TestIdempotencyTokens: an AddToCell with a token counts once, alone or in a batch, at once or after a split and a compaction.
func TestIdempotencyTokens(t *testing.T) {
	x := newCounters(t)
	id := &bigtablepb.Idempotency{Token: []byte("12345678"), StartTime: timestamppb.Now()}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for _, row := range []string{"a", "z"} {
				if err := x.add(row, id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := x.c.Tablets().Split(t.Context(), table, "m"); err != nil {
		t.Fatal(err)
	}
	if err := x.c.Tables().Compact(t.Context(), table, true); err != nil {
		t.Fatal(err)
	}
	var entries []*bigtablepb.MutateRowsRequest_Entry
	for _, row := range []string{"a", "z", "a", "new", "new"} {
		entries = append(entries, &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(row), Mutations: addToCell(), Idempotency: id})
	}
	s, err := x.api.MutateRows(t.Context(), &bigtablepb.MutateRowsRequest{TableName: wholeTable, Entries: entries})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Recv()
	if err != nil || len(answer.Entries) != len(entries) {
		t.Fatal(answer, err)
	}
	for _, e := range answer.Entries {
		if e.Status.Code != 0 {
			t.Error(e)
		}
	}
	for _, row := range []string{"a", "z", "new"} {
		x.must(row, 1)
	}
}

// TestBadIdempotencyTokens: tokens that do not protect are rejected, and change nothing.
func TestBadIdempotencyTokens(t *testing.T) {
	x := newCounters(t)
	ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-d)) }
	id := bytes.Repeat([]byte("x"), 1<<20)
	for _, c := range []struct {
		id   *bigtablepb.Idempotency
		want codes.Code
	}{
		{&bigtablepb.Idempotency{}, codes.InvalidArgument},
		{&bigtablepb.Idempotency{Token: id[:7]}, codes.InvalidArgument},
		{&bigtablepb.Idempotency{Token: id[:1025]}, codes.InvalidArgument},
		{&bigtablepb.Idempotency{Token: id}, codes.InvalidArgument},
		{&bigtablepb.Idempotency{Token: id[:8], StartTime: ago(16 * time.Minute)}, codes.InvalidArgument},
		{&bigtablepb.Idempotency{Token: id[:8], StartTime: ago(-6 * time.Minute)}, codes.InvalidArgument},
		{&bigtablepb.Idempotency{Token: id[:8], StartTime: ago(14 * time.Minute)}, codes.OK},
		{&bigtablepb.Idempotency{Token: id[:1024]}, codes.OK},
	} {
		err := x.add("r", c.id)
		if status.Code(err) != c.want {
			t.Errorf("token of %d bytes, start %v: %v, want %v", len(c.id.Token), c.id.StartTime.AsTime(), err, c.want)
		}
	}
	x.must("r", 2)
}
