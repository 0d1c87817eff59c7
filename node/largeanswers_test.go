package node_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// TestLargeAnswersAreBounded (I13): unread answers stay within the memory for results, and other callers still get memory: clients that hardly read
// are disconnected.
func TestLargeAnswersAreBounded(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir()) // 64 MiB are for results
	defer stop(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tables().Create(ctx, "t", spec); err != nil {
		t.Fatal(err)
	}
	const size = 20 << 20
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("row").Set("f:q", make([]byte, size))); err != nil {
		t.Fatal(err)
	}
	var request wire.Encoder
	request.Array(4)
	request.Uint(0)
	request.Uint(7)
	request.Str(api.MethodRead)
	(&api.ReadRequest{Table: "t", Row: []byte("row")}).Append(&request)
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) { // little of the answer leaves
		if failed := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10) }); failed != nil {
			return failed
		}
		return err
	}}
	var idle []net.Conn
	for range 3 {
		conn, err := dialer.DialContext(ctx, "tcp", n.RPCAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(request.Bytes()); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the answer is under way
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	if n.ResultsAreFree(size) {
		t.Error("three answers that wait do not take the memory for results")
	}
	row, err := c.Table("t").Get(ctx, "row")
	if err != nil || len(row.Cells) != 1 || len(row.Cells[0].Value) != size {
		t.Errorf("a fourth answer: %v", err)
	}
	ended := 0
	for _, conn := range idle {
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.CopyN(io.Discard, conn, size); got < size {
			ended++
		}
	}
	if ended == 0 {
		t.Error("nobody had to give way")
	}
}
