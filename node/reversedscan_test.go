package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// scannedKeys returns the keys of the rows of a scan.
func scannedKeys(ctx context.Context, t *client.Table, opts ...client.ScanOption) (keys []string, err error) {
	for row, err := range t.Scan(ctx, opts...).Rows() {
		if err != nil {
			return keys, err
		}
		keys = append(keys, string(row.Key))
	}
	return keys, nil
}

// TestReversedScanAcrossNodes: a reversed scan returns the rows of tablets on several nodes from the last to the first, also while
// tablets move, split and merge.
func TestReversedScanAcrossNodes(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	if _, err := c.Tables().CreateSplit(ctx, "t", []string{"01000", "02000", "02000\x00", "02500"}, good(table.ParseFamilySpec("f"))); err != nil {
		t.Fatal(err)
	}
	const rows = 4000
	loadRows(t, c, "t", "f:q", 0, rows)
	for i, row := range []string{"0", "01500", "02000\x00", "03"} { // put some of the tablets on other nodes
		if _, err := c.Tablets().Move(ctx, "t", client.TabletRef{Row: row}, f.nodes[i%3].ID()); err != nil {
			t.Fatal(err)
		}
	}
	var many []string // in several requests
	for i := range rows {
		if i%3 == 0 {
			many = append(many, fmt.Sprintf("%05d", i), fmt.Sprintf("%05d-", i))
		}
	}
	compare := func() {
		t.Helper()
		for _, opts := range [][]client.ScanOption{
			{client.BatchRows(300)}, {client.Start("00990"), client.End("02001")}, {client.Prefix("02"), client.BatchRows(7)},
			{client.RowKeys("00003", "03999", "absent", "02000", "02000\x00", "01999"), client.RowRange("00995", "01005"), client.RowRange("02400", "02600")},
			{client.RowKeys(many...), client.BatchRows(130)}, {client.RowKeys(many...), client.Prefix("01"), client.RowRange("0100", "")}, {client.RowKeys()},
			{client.End("02000"), client.Filter(table.RowRegex(`\d*7`))}, {client.Start("02000"), client.End("02000\x00")}, {client.Prefix("9")},
		} {
			forward, err := scannedKeys(ctx, c.Table("t"), opts...)
			if err != nil {
				t.Fatal(err)
			}
			backward, err := scannedKeys(ctx, c.Table("t"), append(opts, client.Reversed())...)
			if err != nil {
				t.Fatal(err)
			}
			last, err := scannedKeys(ctx, c.Table("t"), append(opts, client.Reversed(), client.Limit(3))...)
			if err != nil {
				t.Fatal(err)
			}
			slices.Reverse(forward)
			if !slices.Equal(backward, forward) || !slices.Equal(last, forward[:min(3, len(forward))]) {
				t.Fatalf("%d rows backward, %d forward, the last are %q", len(backward), len(forward), last)
			}
		}
	}
	compare()
	if keys, err := scannedKeys(ctx, c.Table("t"), client.RowKeys(many...)); err != nil || len(keys) != (rows+2)/3 || keys[1] != "00003" {
		t.Fatalf("%d rows of a set, %v", len(keys), err)
	}
	var moving sync.WaitGroup
	defer moving.Wait()
	stop := make(chan struct{})
	defer close(stop)
	moving.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				row := fmt.Sprintf("%05d", i*997%rows)
				_, _ = c.Tablets().Move(ctx, "t", client.TabletRef{Row: row}, f.nodes[i%3].ID()) // it may be there
				if i%4 == 0 {
					_, _ = c.Tablets().Split(ctx, "t", row)
				}
			}
		}
	})
	for range 3 {
		compare()
	}
}

// TestReversedScanTellsNothingHidden: as TestScanTellsNothingHidden.
func TestReversedScanTellsNothingHidden(t *testing.T) {
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
	const rows = 20_000
	loadRows(t, admin, "t", "seen:q", 0, 1)
	loadRows(t, admin, "t", "hidden:q", 1, rows-1)
	loadRows(t, admin, "t", "seen:q", rows-1, rows)
	conn, last := f.dialAs(0, ann), fmt.Sprintf("%05d", rows-1)
	open := api.ScanOpenRequest{Table: "t", Reversed: true}
	// Batches end after half of the time that the caller waits.
	for wait, ended := time.Millisecond, 0; ended < 3; wait += wait / 8 {
		if wait > 10*time.Second {
			t.Fatal("no batch ended before the last")
		}
		open.Timeout = wait
		got, err := openScan(ctx, conn, &open)
		seen := got.Count
		for err == nil && got.Cursor != 0 {
			if next := string(got.Next); next != "" && next != last {
				t.Fatalf("a batch ends at %q", next)
			} else if next == last {
				ended++
			}
			if got, err = nextBatch(ctx, conn, got.Cursor); err == nil {
				seen += got.Count
			}
		}
		if err == nil && seen != 2 {
			t.Fatalf("%d rows, of 2", seen)
		}
		if err != nil && !errors.Is(err, rpc.CodeDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rpc.CodeUnavailable) {
			t.Fatal(err)
		}
	}
}
