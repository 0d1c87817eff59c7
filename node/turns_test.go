package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/dataapi"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TestCostlyRequestsWaitForTurns: each kind of request that matches a long pattern with a large value waits while all turns
// are taken, and other requests do not. A read whose connection is closed does not wait any longer.
func TestCostlyRequestsWaitForTurns(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx := t.Context()
	makeTable(ctx, t, c)
	tb := c.Table("t")
	err := tb.ApplyAll(ctx, []*client.RowMutation{
		client.NewRowMutation("slow").Set("f:q", bytes.Repeat([]byte("x"), 20<<10)), client.NewRowMutation("small").Set("f:q", []byte("v")),
	})
	if err != nil {
		t.Fatal(err)
	}
	costly, row := table.ValueRegex(`.*(?:x?){60}y`), []byte("slow")
	var coded wire.Encoder
	table.AppendFilter(&coded, costly)
	filter := coded.Bytes()
	if _, err := tb.Get(ctx, "small", client.Filter(costly)); err != nil { // to compile it takes a turn as well
		t.Fatal(err)
	}
	if _, err := tb.Get(ctx, "small", client.Filter(table.ValueRegex("v.*"))); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(*wire.Encoder){
		api.MethodRead:           (&api.ReadRequest{Table: "t", Row: row, Filter: filter}).Append,
		api.MethodReadRows:       (&api.ReadRowsRequest{Table: "t", Rows: [][]byte{row, []byte("small")}, Filter: filter}).Append,
		api.MethodScanOpen:       (&api.ScanOpenRequest{Table: "t", Filter: filter}).Append,
		api.MethodCheckAndMutate: (&api.CheckAndMutateRequest{Table: "t", Row: row, Predicate: filter}).Append,
	}
	call := func(name string) (*rpc.Conn, chan error) {
		conn, err := rpc.Dial(ctx, n.RPCAddr(), rpc.ConnConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		answered := make(chan error, 1)
		go func() {
			answered <- conn.Call(ctx, name, calls[name], func(d *wire.Decoder) error { d.Skip(); return d.Err() })
		}()
		return conn, answered
	}
	for name := range calls {
		release := takeAllTurns(t, n)
		_, answered := call(name)
		untilAwaited(t, n, true, answered)
		for range 20 {
			if row, err := tb.Get(ctx, "small", client.Filter(table.ValueRegex("v.*"))); err != nil || row == nil {
				t.Fatalf("a short pattern while %s waits: %v, %v", name, row, err)
			}
		}
		release()
		if err := <-answered; err != nil {
			t.Errorf("%s, which got a turn: %v", name, err)
		}
	}
	release := takeAllTurns(t, n) // each request has ended its turn
	defer release()
	conn, answered := call(api.MethodRead)
	untilAwaited(t, n, true, answered)
	conn.Close()
	<-answered
	untilAwaited(t, n, false, nil)
}

// TestCrowdedTurns: one user's requests that are too many to wait are refused, as overloaded.
func TestCrowdedTurns(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx := t.Context()
	makeTable(ctx, t, c)
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("slow").Set("f:q", bytes.Repeat([]byte("x"), 20<<10))); err != nil {
		t.Fatal(err)
	}
	var coded wire.Encoder
	table.AppendFilter(&coded, table.ValueRegex(`.*(?:x?){60}y`))
	defer takeAllTurns(t, n)()
	conn, err := rpc.Dial(ctx, n.RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := make(chan error, dataapi.TurnsWaitMax+1)
	for range dataapi.TurnsWaitMax + 1 {
		go func() {
			r := api.ReadRequest{Table: "t", Row: []byte("slow"), Filter: coded.Bytes()}
			answers <- conn.Call(ctx, api.MethodRead, r.Append, nil)
		}()
	}
	var e *rpc.Error
	if err := <-answers; !errors.As(err, &e) || e.Code != rpc.CodeOverloaded {
		t.Errorf("one request too many: %v", err)
	}
	select {
	case err := <-answers:
		t.Errorf("another was answered: %v", err)
	default:
	}
}

// TestCheapFiltersTakeNoTurn: filters that are new to the node, as they are if an application gives each a time or a key, wait
// for no turn if they are cheap to compile, and for one otherwise.
func TestCheapFiltersTakeNoTurn(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx := t.Context()
	makeTable(ctx, t, c)
	tb := c.Table("t")
	if err := tb.Apply(ctx, client.NewRowMutation("row").SetAt("f:q", 1, []byte("v"))); err != nil {
		t.Fatal(err)
	}
	release := takeAllTurns(t, n)
	for i := range int64(20) {
		f := table.Chain{table.TimestampRange{Start: 0, End: table.Before(2 + i)}, table.ValueRegex(fmt.Sprintf("v|x%d.*", i))}
		if row, err := tb.Get(ctx, "row", client.Filter(f)); err != nil || row == nil {
			t.Fatalf("read %d: %v, %v", i, row, err)
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := tb.Get(ctx, "row", client.Filter(table.ValueRegex("v{1,50}")))
		answered <- err
	}()
	untilAwaited(t, n, true, answered)
	release()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// takeAllTurns takes all turns of n until the function that it returns is called.
func takeAllTurns(t *testing.T, n *Node) (release func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	count := dataapi.CostlyTurns()
	for range count {
		if err := n.data.Costly.Acquire(ctx, "test"); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for range count {
			n.data.Costly.Release()
		}
	}
}

// untilAwaited waits until a request waits for a turn, or none does. No request must be answered meanwhile.
func untilAwaited(t *testing.T, n *Node, awaited bool, answered <-chan error) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); n.data.Costly.Awaited() != awaited; time.Sleep(time.Millisecond) {
		select {
		case err := <-answered:
			t.Fatalf("answered without a turn: %v", err)
		default:
		}
		if time.Now().After(until) {
			t.Fatalf("a request waits for a turn: %v", !awaited)
		}
	}
}
