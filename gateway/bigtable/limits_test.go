package bigtable

import (
	"bytes"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestStrictLimits: with the limits of Google's service, a request just within them is executed, and one just beyond is rejected. Without,
// both are executed.
func TestStrictLimits(t *testing.T) {
	row := func(n int) []byte { return bytes.Repeat([]byte("r"), n) }
	regex := func(n int) *bigtablepb.RowFilter {
		return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRangeFilter{ValueRangeFilter: &bigtablepb.ValueRange{
			StartValue: &bigtablepb.ValueRange_StartValueClosed{StartValueClosed: row(n)}}}}
	}
	one := []*bigtablepb.Mutation{set(1)}
	for _, strict := range []bool{false, true} {
		f := &fakeTable{}
		s := f.service()
		s.cfg.StrictLimits = strict
		mutate := func(n int) error {
			_, err := s.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: row(n), Mutations: one})
			return err
		}
		entry := func(n int) error {
			a := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
			if err := mutateRows(t, s, &bigtablepb.MutateRowsRequest{TableName: tableName, Entries: []*bigtablepb.MutateRowsRequest_Entry{{RowKey: row(n), Mutations: one}}}, a); err != nil {
				return err
			}
			return status.FromProto(a.sent[0].Entries[0].Status).Err()
		}
		check := func(key, filter int) error {
			_, err := s.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableName, RowKey: row(key), TrueMutations: one, PredicateFilter: regex(filter)})
			return err
		}
		modify := func(n int) error {
			rules := []*bigtablepb.ReadModifyWriteRule{{FamilyName: "f", Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{}}}
			_, err := s.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableName, RowKey: row(n), Rules: rules})
			return err
		}
		virtual := func(n int) error {
			return s.mutateRow(t.Context(), f, &bigtablepb.SessionMutateRowRequest{Key: row(n), Mutations: one})
		}
		for name, err := range map[string][2]error{
			"MutateRow":          {mutate(strictRowKeyBytes), mutate(strictRowKeyBytes + 1)},
			"MutateRows":         {entry(strictRowKeyBytes), entry(strictRowKeyBytes + 1)},
			"CheckAndMutateRow":  {check(strictRowKeyBytes, 1), check(strictRowKeyBytes+1, 1)},
			"ReadModifyWriteRow": {modify(strictRowKeyBytes), modify(strictRowKeyBytes + 1)},
			"a virtual RPC":      {virtual(strictRowKeyBytes), virtual(strictRowKeyBytes + 1)},
			"a filter":           {check(1, strictFilterBytes-20), check(1, strictFilterBytes)},
		} {
			want := codes.OK
			if strict {
				want = codes.InvalidArgument
			}
			if err[0] != nil || status.Code(err[1]) != want {
				t.Errorf("strict %v, %s: within the limit %v, beyond it %v, want %v", strict, name, err[0], err[1], want)
			}
		}
		many := many(strictMutations/2+1, func(int) *bigtablepb.Mutation { return set(1) })
		e := &bigtablepb.MutateRowsRequest_Entry{RowKey: row(1), Mutations: many}
		a := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
		err := mutateRows(t, s, &bigtablepb.MutateRowsRequest{TableName: tableName, Entries: []*bigtablepb.MutateRowsRequest_Entry{e, e}}, a)
		if (status.Code(err) == codes.InvalidArgument) != strict || strict != (len(a.sent) == 0) {
			t.Errorf("strict %v, %d mutations: %v", strict, 2*len(many), err)
		}
	}
}
