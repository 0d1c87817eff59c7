package node_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// TestServerAllocations bounds what the node's side of a request allocates, of its whole path from the connection to the disk and back. The
// caller here allocates nothing.
func TestServerAllocations(t *testing.T) {
	n := start(t, t.TempDir())
	defer stop(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec, err := table.ParseFamilySpec("f:versions=1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateTable(ctx, "t", spec); err != nil {
		t.Fatal(err)
	}
	const rows = 1000
	for i := range rows {
		if err := c.Table("t").Apply(ctx, client.NewRowMutation(benchRow(i)).Set("f:q", randomValue())); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Compact(ctx, "t", false); err != nil {
		t.Fatal(err)
	}
	type request struct {
		what, method string
		params       func(e *wire.Encoder, row []byte)
		most         float64
	}
	requests := []request{
		{"read", api.MethodRead, func(e *wire.Encoder, row []byte) { (&api.ReadRequest{Table: "t", Row: row}).Append(e) }, 4},
		// Each is a batch of the commit log by itself here; of 64 clients it is 5.
		{"write", api.MethodMutate, func(e *wire.Encoder, row []byte) {
			rm := table.RowMutation{Row: row, Mutations: []table.Mutation{table.Set("f", []byte("q"), 1, make([]byte, 100))}}
			(&api.MutateRequest{Table: "t", Row: rm}).Append(e)
		}, 24},
	}
	tests := requests
	for _, r := range requests {
		r.what += " with quotas"
		tests = append(tests, r)
	}
	for i, test := range tests {
		if i == len(requests) {
			all := map[string]int64{api.QuotaReadOps: 1e9, api.QuotaReadBytes: 1e12, api.QuotaWriteOps: 1e9, api.QuotaWriteBytes: 1e12}
			if err := c.SetQuota(ctx, client.QuotaOfTable, "t", all, 0); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(20 * time.Second); !n.HasQuota("t"); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the node does not hear of a quota")
				}
			}
		}
		t.Run(test.what, func(t *testing.T) {
			conn, err := net.Dial("tcp", n.RPCAddr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var requests [][]byte
			for i := range rows {
				var e wire.Encoder
				e.Array(4)
				e.Uint(0)
				e.Uint(7)
				e.Str(test.method)
				test.params(&e, []byte(benchRow(i)))
				requests = append(requests, e.Bytes())
			}
			answer := make([]byte, 4096)
			size, err := exchange(conn, requests[0], answer)
			if err != nil {
				t.Fatal(err)
			}
			i := 0
			got := testing.AllocsPerRun(3000, func() {
				if _, err := conn.Write(requests[i%rows]); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(conn, answer[:size]); err != nil {
					t.Error(err)
				}
				i++
			})
			t.Logf("%.1f allocations", got)
			if got > test.most {
				t.Errorf("%.1f allocations for a %s, which may take %.0f", got, test.what, test.most)
			}
		})
	}
}

// exchange sends the first request and returns how long its answer is.
func exchange(conn net.Conn, request, answer []byte) (size int, err error) {
	if _, err := conn.Write(request); err != nil {
		return 0, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	for {
		n, err := conn.Read(answer[size:])
		if size += n; err != nil {
			return 0, err
		}
		d := wire.NewDecoder(answer[:size])
		d.Array()
		d.Skip()
		d.Skip()
		whole := d.Err() == nil
		refused := whole && !d.IsNil()
		d.Skip()
		if whole = whole && d.Err() == nil; refused {
			return 0, fmt.Errorf("refused: %q", answer[:size])
		} else if whole {
			return size, conn.SetReadDeadline(time.Time{})
		}
	}
}
