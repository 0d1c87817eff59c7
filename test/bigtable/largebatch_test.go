package bigtable

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"
)

// TestLargeBatch: a user of a node with 512 MiB writes 100,000 mutations, as many as Google's clients send in a request, of 16 MB: in as many entries, and in
// a hundred.
func TestLargeBatch(t *testing.T) {
	s := startSecured(t)
	token := s.user("ann", "write", table)
	c := bigtablepb.NewBigtableClient(s.dial(s.nodes[0], nil))
	const mutations, bytes = 100_000, 16_000_000
	for _, entries := range []int{mutations, 100} {
		req := &bigtablepb.MutateRowsRequest{TableName: tableName}
		for i := range entries {
			e := &bigtablepb.MutateRowsRequest_Entry{RowKey: fmt.Appendf(nil, "%c%06d-%d", "az"[i%2], i, entries)}
			for j := range mutations / entries {
				set := &bigtablepb.Mutation_SetCell{FamilyName: "f", ColumnQualifier: fmt.Append(nil, j), TimestampMicros: 1000, Value: make([]byte, 110)}
				e.Mutations = append(e.Mutations, &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: set}})
			}
			req.Entries = append(req.Entries, e)
		}
		last := req.Entries[entries-1].Mutations
		last[len(last)-1].GetSetCell().Value = make([]byte, max(110, bytes-proto.Size(req)))
		stream, err := c.MutateRows(withToken(t.Context(), token), req)
		answered := 0
		for err == nil {
			var m *bigtablepb.MutateRowsResponse
			m, err = stream.Recv()
			for _, e := range m.GetEntries() {
				if e.Index != int64(answered) || e.Status.GetCode() != 0 {
					t.Fatalf("index %d: %v", answered, e)
				}
				answered++
			}
		}
		if !errors.Is(err, io.EOF) || answered != entries {
			t.Errorf("%d entries of %d bytes: %d answered, %v", entries, proto.Size(req), answered, err)
		}
	}
}
