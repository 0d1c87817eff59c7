package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TestRefusalsNameTheRightNode: a node that is asked for a row that it does not serve
// names the node that does, also one that has never looked for the table, and after the
// tablet has moved.
func TestRefusalsNameTheRightNode(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	c := f.client(0)
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	var conns []*rpc.Conn
	for i, n := range f.nodes {
		conn, err := rpc.Dial(ctx, n.RPCAddr(), rpc.ConnConfig{})
		if err != nil {
			t.Fatalf("connect to node %d: %v", i, err)
		}
		t.Cleanup(func() { conn.Close() })
		conns = append(conns, conn)
	}
	set := []table.Mutation{table.Set("f", nil, 1, []byte("v"))}
	row := []byte("r")
	ask := func(i int, method string, request func(*wire.Encoder)) error {
		return api.FromRPC(conns[i].CallRetain(ctx, method, request, func(d *wire.Decoder) error { d.Skip(); return d.Err() }))
	}
	// check asks every node but the one that serves the row, and returns what is wrong.
	check := func(owner int) (wrong error) {
		for method, request := range map[string]func(*wire.Encoder){
			api.MethodRead:     (&api.ReadRequest{Table: "t", Row: row}).Append,
			api.MethodMutate:   (&api.MutateRequest{Table: "t", Row: table.RowMutation{Row: row, Mutations: set}}).Append,
			api.MethodScanOpen: (&api.ScanOpenRequest{Table: "t", Start: row}).Append,
		} {
			for i := range conns {
				err := ask(i, method, request)
				var refused *api.NotServingError
				switch {
				case i == owner:
					wrong = errors.Join(wrong, err)
				case !errors.As(err, &refused) || refused.Addr != f.nodes[owner].RPCAddr():
					wrong = errors.Join(wrong, fmt.Errorf("%s at node %d, of a row at %s: %v", method, i, f.nodes[owner].RPCAddr(), err))
				}
			}
		}
		return wrong
	}
	at := slices.IndexFunc(conns, func(conn *rpc.Conn) bool {
		return ask(slices.Index(conns, conn), api.MethodRead, (&api.ReadRequest{Table: "t", Row: row}).Append) == nil
	})
	if at < 0 {
		t.Fatal("no node serves the row")
	}
	if err := check(at); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		at = (at + 1) % len(conns)
		if _, err := c.Tablets().Move(ctx, "t", client.TabletRef{Row: "r"}, f.nodes[at].ID()); err != nil {
			t.Fatal(err)
		}
		for { // a node that is not concerned may name the last one for a second
			err := check(at)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}
