package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/table"
)

// TestScanStats: a scan counts the rows and cells that it has examined and returned, but not those that the user may not see.
func TestScanStats(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	if _, err := c.Tables().CreateSplit(ctx, "t", []string{"050"}, table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}); err != nil {
		t.Fatal(err)
	}
	ann := f.user(c, "ann")
	if err := c.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Family: "f", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 { // five cells in each row: three versions, one of another column, one of another family
		m := client.NewRowMutation(fmt.Sprintf("%03d", i)).SetAt("g:q", 1, nil).SetAt("f:b", 1, nil)
		for v := range int64(3) {
			m.SetAt("f:a", v+1, fmt.Appendf(nil, "%d", i%10))
		}
		if err := c.Table("t").Apply(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		opts []client.ScanOption
		want client.ScanStats
	}{
		{"all", nil, api.ScanStats{RowsSeen: 100, RowsReturned: 100, CellsSeen: 500, CellsReturned: 500}},
		{"by value", []client.ScanOption{client.Filter(table.ValueRegex("7"))}, api.ScanStats{RowsSeen: 100, RowsReturned: 10, CellsSeen: 500, CellsReturned: 30}},
		{"a family", []client.ScanOption{client.Families("g")}, api.ScanStats{RowsSeen: 100, RowsReturned: 100, CellsSeen: 100, CellsReturned: 100}},
		{"versions", []client.ScanOption{client.Versions(1)}, api.ScanStats{RowsSeen: 100, RowsReturned: 100, CellsSeen: 300, CellsReturned: 300}},
		{"rows", []client.ScanOption{client.RowKeys("000", "000x", "099")}, api.ScanStats{RowsSeen: 3, RowsReturned: 2, CellsSeen: 10, CellsReturned: 10}},
		{"few", []client.ScanOption{client.Limit(5)}, api.ScanStats{RowsSeen: 5, RowsReturned: 5, CellsSeen: 25, CellsReturned: 25}},
	} {
		for _, more := range [][]client.ScanOption{{client.CountSeen()}, {client.CountSeen(), client.BatchRows(7), client.Reversed()}} {
			s := c.Table("t").Scan(ctx, append(more, test.opts...)...)
			for s.Next() {
			}
			if err := s.Close(); err != nil || s.Stats() != test.want {
				t.Errorf("%s: %+v, %v, want %+v", test.name, s.Stats(), err, test.want)
			}
		}
	}
	s := c.Table("t").Scan(ctx)
	for s.Next() {
	}
	if err := s.Close(); err != nil || s.Stats() != (client.ScanStats{}) {
		t.Errorf("a scan that does not count: %+v, %v", s.Stats(), err)
	}
	got, err := openScan(ctx, f.dialAs(0, ann), &api.ScanOpenRequest{Table: "t", Stats: true, Filter: wiretest.Encode(func(e *wire.Encoder) { table.AppendFilter(e, table.ValueRegex("7")) })})
	if want := (api.ScanStats{RowsSeen: 10, RowsReturned: 10, CellsSeen: 30, CellsReturned: 30}); err != nil || got.Stats != want {
		t.Errorf("of a user who sees one family: %+v, %v, want %+v", got.Stats, err, want)
	}
}
