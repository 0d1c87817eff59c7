package bigtable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// writeLarge writes a row with values of these sizes.
func writeLarge(t *testing.T, c bigtablepb.BigtableClient, row string, sizes ...int) {
	t.Helper()
	for i, n := range sizes {
		set := &bigtablepb.Mutation_SetCell{FamilyName: "f", ColumnQualifier: fmt.Append(nil, i), TimestampMicros: 1000, Value: make([]byte, n)}
		if _, err := c.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: []byte(row),
			Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: set}}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// readLarge returns the keys of the rows that a request returns, with their numbers of bytes, and the code of its end.
func readLarge(ctx context.Context, c bigtablepb.BigtableClient, req *bigtablepb.ReadRowsRequest) (string, error) {
	req.TableName = tableName
	stream, err := c.ReadRows(ctx, req, grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		return "", err
	}
	var rows []string
	key, bytes := "", 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if m == nil {
			return strings.Join(rows, " "), err
		}
		for _, chunk := range m.Chunks {
			if len(chunk.RowKey) > 0 {
				key, bytes = string(chunk.RowKey), 0
			}
			if bytes += len(chunk.Value); chunk.GetCommitRow() {
				rows = append(rows, fmt.Sprint(key, "=", bytes))
			}
		}
	}
}

// TestLargeRows: reads find all rows, although the memory for large ones is reserved when a read comes to them. A row for which the port can never
// have memory is an error.
func TestLargeRows(t *testing.T) {
	n := startNode(t)
	_, admin := goClient(t, n)
	createTable(t, admin)
	c := bigtablepb.NewBigtableClient(dial(t, n))
	const large, larger, largest = 200 << 10, 700 << 10, 3 << 20
	for row, sizes := range map[string][]int{
		"a": {1}, "b": {large}, "c": {2}, "d": {larger}, "e": {3}, "f": {4}, "g": {largest}, "h": {5}, "i": {largest, 1}, "j": {6}, "z": {4 << 20, 4 << 20, 4 << 20},
	} {
		writeLarge(t, c, row, sizes...)
	}
	text := func(rows string) string { // with numbers of bytes
		size := map[byte]int{'a': 1, 'b': large, 'c': 2, 'd': larger, 'e': 3, 'f': 4, 'g': largest, 'h': 5, 'i': largest + 1, 'j': 6}
		var all []string
		for i := range len(rows) {
			all = append(all, fmt.Sprint(rows[i:i+1], "=", size[rows[i]]))
		}
		return strings.Join(all, " ")
	}
	between := func(start, end string) *bigtablepb.RowRange {
		return &bigtablepb.RowRange{StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte(start)}, EndKey: &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte(end)}}
	}
	keys := func(all string) *bigtablepb.RowSet {
		set := &bigtablepb.RowSet{}
		for i := range len(all) {
			set.RowKeys = append(set.RowKeys, []byte(all[i:i+1]))
		}
		return set
	}
	ranges := func(all ...*bigtablepb.RowRange) *bigtablepb.RowSet { return &bigtablepb.RowSet{RowRanges: all} }
	mixed := ranges(between("a", "c"), between("h", "k"))
	mixed.RowKeys = keys("dg").RowKeys
	for _, test := range []struct {
		rows     *bigtablepb.RowSet
		limit    int64
		reversed bool
		want     string
		code     codes.Code
	}{
		{keys("a"), 0, false, "a", codes.OK},
		{keys("b"), 0, false, "b", codes.OK},
		{keys("d"), 0, false, "d", codes.OK},
		{keys("i"), 0, false, "i", codes.OK},
		{keys("z"), 0, false, "", codes.FailedPrecondition},
		{ranges(between("a", "k")), 0, false, "abcdefghij", codes.OK},
		{ranges(between("a", "k")), 0, true, "jihgfedcba", codes.OK},
		{ranges(between("a", "k")), 7, false, "abcdefg", codes.OK},
		{ranges(between("a", "k")), 4, false, "abcd", codes.OK},
		{ranges(between("a", "k")), 2, true, "ji", codes.OK},
		{ranges(between("a", "k")), 8, true, "jihgfedc", codes.OK},
		{ranges(between("d", "e")), 0, false, "d", codes.OK},
		{ranges(between("g", "h")), 1, true, "g", codes.OK},
		{keys("adgj"), 0, false, "adgj", codes.OK},
		{keys("adgj"), 0, true, "jgda", codes.OK},
		{keys("ag"), 0, false, "ag", codes.OK},
		{keys("gj"), 0, true, "jg", codes.OK},
		{mixed, 0, false, "abdghij", codes.OK},
		{mixed, 0, true, "jihgdba", codes.OK},
		{mixed, 5, false, "abdgh", codes.OK},
		{nil, 0, false, "abcdefghij", codes.FailedPrecondition},
		{nil, 0, true, "", codes.FailedPrecondition},
		{nil, 10, false, "abcdefghij", codes.OK},
	} {
		got, err := readLarge(t.Context(), c, &bigtablepb.ReadRowsRequest{Rows: test.rows, RowsLimit: test.limit, Reversed: test.reversed})
		if got != text(test.want) || status.Code(err) != test.code {
			t.Errorf("%v, limit %d, reversed %t:\n%s, %v, want\n%s, %v", test.rows, test.limit, test.reversed, got, err, text(test.want), test.code)
		}
	}
	first := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowLimitFilter{CellsPerRowLimitFilter: 1}}
	if got, err := readLarge(t.Context(), c, &bigtablepb.ReadRowsRequest{Rows: keys("z"), Filter: first}); err != nil || got != fmt.Sprint("z=", 4<<20) {
		t.Errorf("one cell of a row that is too large: %s, %v", got, err)
	}
}

// TestLargeRowsInSessions: a session returns rows for which memory is reserved, too.
func TestLargeRowsInSessions(t *testing.T) {
	n := startNode(t)
	_, admin := goClient(t, n)
	createTable(t, admin)
	c := bigtablepb.NewBigtableClient(dial(t, n))
	writeLarge(t, c, "medium", 700<<10)
	writeLarge(t, c, "large", 3<<20)
	s, err := openRawSession(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"medium", "large", "medium", "none"} {
		if err := s.call(&bigtablepb.TableRequest{Payload: &bigtablepb.TableRequest_ReadRow{ReadRow: &bigtablepb.SessionReadRowRequest{Key: []byte(row)}}}); err != nil {
			t.Errorf("row %s: %v", row, err)
		}
	}
}

// TestUnreceivedRows: rows that a client does not receive use the memory of the port until it does: then further large rows are rejected, and small
// ones are not. Their memory is free again when the calls are cancelled, and when the connection is closed.
func TestUnreceivedRows(t *testing.T) {
	n := startNode(t)
	_, admin := goClient(t, n)
	createTable(t, admin)
	good := bigtablepb.NewBigtableClient(dial(t, n))
	writeLarge(t, good, "small", 10)
	writeLarge(t, good, "large", 900<<10)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	get := func(row string) error {
		_, err := readLarge(ctx, good, &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte(row)}}})
		return err
	}
	for _, closes := range []bool{false, true} {
		conn, err := grpc.NewClient(n.BigtableAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(1<<16), grpc.WithStaticConnWindowSize(1<<16))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		calls, end := context.WithCancel(ctx)
		defer end()
		for err = nil; err == nil; err = get("large") { // until the calls have what there is
			if _, err := bigtablepb.NewBigtableClient(conn).ReadRows(calls, &bigtablepb.ReadRowsRequest{TableName: tableName, Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("large")}}}); err != nil {
				t.Fatal(err)
			}
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a large row, while others are not received: %v, want UNAVAILABLE", err)
		}
		err = get("small")
		for status.Code(err) == codes.Unavailable && ctx.Err() == nil { // calls for large rows are still waiting
			err = get("small")
		}
		if err != nil {
			t.Errorf("a small row: %v", err)
		}
		if closes {
			_ = conn.Close()
		} else {
			end()
		}
		for status.Code(err) == codes.Unavailable { // until the node has freed it
			err = get("large")
		}
		if err != nil {
			t.Errorf("a large row, when the others are gone: %v", err)
		}
	}
}
