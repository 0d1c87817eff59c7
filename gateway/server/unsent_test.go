package server

import (
	"context"
	"net"
	"sync"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/bigtable"
	"github.com/steledb/stele/table"
)

// takingTable executes a request, and takes all memory before the answer is sent.
type takingTable struct {
	bigtable.Table
	take  func()
	fails error // of the read-modify-write; nil if it is executed
}

var mediumRow = &table.Row{Key: []byte("r"), Cells: []table.Cell{{Family: "f", Timestamp: 1, Value: make([]byte, 20<<10)}}}

func (t takingTable) ReadModifyWriteWithin(context.Context, string, int64, ...table.Rule) (*table.Row, error) {
	t.take()
	return mediumRow, t.fails
}

func (t takingTable) Get(context.Context, string, ...client.ReadOption) (*table.Row, error) {
	t.take()
	return mediumRow, nil
}

// TestUnsentAnswers: a call that has changed a row, and whose answer has no memory, fails with a code that clients do not resend. A read, and a change
// that was not made, may be repeated.
func TestUnsentAnswers(t *testing.T) {
	var s *Server
	all := func() {
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		s.memory.chargeLocked("", memoryLimit)
	}
	taking := &takingTable{take: all}
	s = New(Config{MemoryBytes: memoryLimit, Data: bigtable.Config{Open: func(context.Context, string, string) (bigtable.Table, error) { return taking, nil }}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Shutdown(context.Background()); serving.Wait() })
	c := bigtablepb.NewBigtableClient(connect(t, l.Addr().String()))
	name := mutation("", 0).TableName
	modify := &bigtablepb.ReadModifyWriteRowRequest{TableName: name, RowKey: []byte("r"),
		Rules: []*bigtablepb.ReadModifyWriteRule{{FamilyName: "f", Rule: &bigtablepb.ReadModifyWriteRule_AppendValue{AppendValue: []byte("x")}}}}
	rows := &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("r")}}
	for _, k := range []struct {
		what  string
		fails error
		call  func() error
		want  codes.Code
	}{
		{"a change", nil, func() error { _, err := c.ReadModifyWriteRow(t.Context(), modify); return err }, codes.Unknown},
		{"a change that was not made", &api.RowTooLargeError{Limit: 1}, func() error { _, err := c.ReadModifyWriteRow(t.Context(), modify); return err }, codes.Unavailable},
		{"a read", nil, func() error {
			stream, err := c.ReadRows(t.Context(), &bigtablepb.ReadRowsRequest{TableName: name, Rows: rows})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, codes.Unavailable},
	} {
		taking.fails = k.fails
		if err := k.call(); status.Code(err) != k.want {
			t.Errorf("%s: %v, want %v", k.what, err, k.want)
		}
		s.memory.release("", memoryLimit)
	}
}
