package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
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
	if _, err := c.Tables().Create(ctx, "t", spec); err != nil {
		t.Fatal(err)
	}
	for i := range allocRows {
		if err := c.Table("t").Apply(ctx, client.NewRowMutation(benchRow(i)).Set("f:q", randomValue())); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Tables().Compact(ctx, "t", false); err != nil {
		t.Fatal(err)
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
			if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", all, 0); err != nil {
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
			test.measure(t, conn)
		})
	}
}

// request is a kind of requests, one for each of allocRows rows, whose answers are all as long.
type request struct {
	what, method string
	params       func(e *wire.Encoder, row []byte)
	most         float64 // allocations of one
}

const allocRows = 1000

// measure sends such requests one after the other, and bounds what they allocate.
func (r *request) measure(t *testing.T, conn net.Conn) {
	t.Helper()
	var requests [][]byte
	for i := range allocRows {
		var e wire.Encoder
		e.Array(4)
		e.Uint(0)
		e.Uint(7)
		e.Str(r.method)
		r.params(&e, []byte(benchRow(i)))
		requests = append(requests, e.Bytes())
	}
	answer := make([]byte, 64<<10)
	size, err := exchange(conn, requests[0], answer)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	got := testing.AllocsPerRun(3000, func() {
		if _, err := conn.Write(requests[i%allocRows]); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(conn, answer[:size]); err != nil {
			t.Error(err)
		}
		i++
	})
	t.Logf("%.1f allocations", got)
	if got > r.most {
		t.Errorf("%.1f allocations for a %s, which may take %.0f", got, r.what, r.most)
	}
}

// TestServerAllocationsOfPrincipals is the same over TLS, for a principal with a right on one family of two. Allocations of both
// ends of the TLS connection count.
func TestServerAllocationsOfPrincipals(t *testing.T) {
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	admin, ctx := f.client(0), within(t, 60*time.Second)
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}); err != nil {
		t.Fatal(err)
	}
	for i := range allocRows {
		if err := admin.Table("t").Apply(ctx, client.NewRowMutation(benchRow(i)).Set("f:q", randomValue()).Set("g:q", randomValue())); err != nil {
			t.Fatal(err)
		}
	}
	ann := pki.NewEndpoint(f.user(admin, "ann"), pki.Options{})
	if err := errors.Join(admin.Tables().Compact(ctx, "t", false), admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Family: "f", Rights: "read,write"})); err != nil {
		t.Fatal(err)
	}
	for _, test := range []request{
		{"read", api.MethodRead, func(e *wire.Encoder, row []byte) { (&api.ReadRequest{Table: "t", Row: row}).Append(e) }, 6},
		{"scan of ten rows", api.MethodScanOpen, func(e *wire.Encoder, _ []byte) {
			(&api.ScanOpenRequest{Table: "t", Start: []byte(benchRow(5)), Limit: 10}).Append(e)
		}, 20},
		{"write", api.MethodMutate, func(e *wire.Encoder, row []byte) {
			rm := table.RowMutation{Row: row, Mutations: []table.Mutation{table.Set("f", []byte("q"), 1, make([]byte, 100))}}
			(&api.MutateRequest{Table: "t", Row: rm}).Append(e)
		}, 26},
	} {
		t.Run(test.what, func(t *testing.T) {
			conn, err := ann.Dial(ctx, "", f.nodes[0].RPCAddr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			test.measure(t, conn)
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
