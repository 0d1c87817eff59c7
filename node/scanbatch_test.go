package node_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// loadRows writes rows 00000, 00001 and so on.
func loadRows(t *testing.T, c *client.Client, name, column string, from, to int) {
	t.Helper()
	var rows []*client.RowMutation
	for i := from; i < to; i++ {
		rows = append(rows, client.NewRowMutation(fmt.Sprintf("%05d", i)).Set(column, []byte("v")))
	}
	if err := c.Table(name).ApplyAll(within(t, 60*time.Second), rows); err != nil {
		t.Fatal(err)
	}
}

// openScan asks for the first batch of a scan, nextBatch for another.
func openScan(ctx context.Context, conn *rpc.Conn, r *api.ScanOpenRequest) (got api.ScanResult, err error) {
	err = conn.Call(ctx, api.MethodScanOpen, r.Append, got.Decode)
	return got, err
}

func nextBatch(ctx context.Context, conn *rpc.Conn, cursor uint64) (got api.ScanResult, err error) {
	err = conn.Call(ctx, api.MethodScanNext, (&api.ScanNextRequest{Cursor: cursor}).Append, got.Decode)
	return got, err
}

// TestScanOfNothing: a scan that finds nothing answers now and then how far it has come, and what it has looked at counts.
func TestScanOfNothing(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	if _, err := c.Tables().Create(ctx, "t", good(table.ParseFamilySpec("f"))); err != nil {
		t.Fatal(err)
	}
	const rows = 25_000
	loadRows(t, c, "t", "f:q", 0, rows)
	conn, err := rpc.Dial(ctx, f.nodes[0].RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var e wire.Encoder
	table.AppendFilter(&e, table.ValueRegex("absent"))
	open := api.ScanOpenRequest{Table: "t", Filter: e.Bytes(), BatchRows: 10}
	batches := 1
	got, err := openScan(ctx, conn, &open)
	for ; err == nil && got.Cursor != 0; batches++ {
		if want := fmt.Sprintf("%05d", 10_000*batches); got.Count != 0 || string(got.Next) != want {
			t.Fatalf("batch %d has %d rows, and goes on at %q, want %q", batches, got.Count, got.Next, want)
		}
		got, err = nextBatch(ctx, conn, got.Cursor)
	}
	if err != nil || batches != 3 {
		t.Errorf("%d batches, %v", batches, err)
	}
	if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaReadOps: 1000}, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	scan := func() error {
		_, err := openScan(ctx, conn, &open)
		return api.FromRPC(err)
	}
	if used := awaitQuota(t, scan); used.RetryAfter < 5*time.Second {
		t.Errorf("10,000 rows that were looked at are paid for in %v, at 1000 a second", used.RetryAfter)
	}
}

// TestScanTellsNothingHidden: the position of a scan is not revealed to a caller that may not see the rows there, and the scan still returns all other rows.
func TestScanTellsNothingHidden(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	admin := f.client(0)
	ann := f.user(admin, "ann")
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "seen"}, table.FamilySpec{Name: "hidden"}); err != nil {
		t.Fatal(err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Family: "seen", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	const rows = 30_000
	loadRows(t, admin, "t", "seen:q", 0, 1)
	loadRows(t, admin, "t", "hidden:q", 1, rows-1)
	loadRows(t, admin, "t", "seen:q", rows-1, rows)
	conn := f.dialAs(0, ann)
	resume := map[string]int{}
	open := api.ScanOpenRequest{Table: "t"}
	var inHidden uint64 // a cursor that stands among rows that are hidden
	// Batches end after half of the time that the caller waits: what is too short for a batch is tried again.
	for wait := time.Millisecond; resume["00000\x00"] < 3; wait += wait / 8 {
		if wait > 10*time.Second {
			t.Fatalf("no batch ended before the last: %v", resume)
		}
		open.Timeout = wait
		got, err := openScan(ctx, conn, &open)
		seen := got.Count
		for err == nil && got.Cursor != 0 {
			resume[string(got.Next)]++
			if string(got.Next) == "00000\x00" && inHidden == 0 {
				inHidden = got.Cursor
				break
			}
			if got, err = nextBatch(ctx, conn, got.Cursor); err == nil {
				seen += got.Count
			}
		}
		if err != nil && !errors.Is(err, rpc.CodeDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rpc.CodeUnavailable) {
			t.Fatal(err)
		}
		if err == nil && got.Cursor == 0 && seen != 2 {
			t.Fatalf("%d rows, of 2", seen)
		}
	}
	for key := range resume {
		if key != "" && key != "00000\x00" {
			t.Errorf("told that it goes on at %q", key)
		}
	}
	defer f.nodes[0].Abdicate(ctx)() // or the table would be served again
	if err := f.nodes[0].UnloadTable(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := nextBatch(ctx, conn, inHidden); !errors.Is(api.FromRPC(err), api.ErrNotServing) || regexp.MustCompile(`"\d{5}`).MatchString(err.Error()) {
		t.Errorf("the tablet went, and a scan among hidden rows is told: %v", err)
	}
}
