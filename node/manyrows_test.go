package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TestManyRowsKeepToMemory (I13): rows that are read together take no more memory than one call may have. A larger request fails with the limit, and
// the client then requests fewer.
func TestManyRowsKeepToMemory(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir()) // 33 MiB are for results, an eighth for an answer, which is in memory twice: there is memory for four
	defer stop(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	const rows, size = 200, 100 << 10
	var keys []string
	var changeRequest [][]byte
	for i := range rows {
		keys = append(keys, fmt.Sprintf("%03d", i))
		changeRequest = append(changeRequest, []byte(keys[i]))
		if i == 7 || i == 20 {
			continue // they are not there
		}
		if err := c.Table("t").Apply(ctx, client.NewRowMutation(keys[i]).Set("f:q", make([]byte, size))); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := rpc.Dial(ctx, n.RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, test := range []struct {
		rows int
		fits bool
	}{{0, true}, {1, true}, {2, true}, {8, true}, {9, true}, {30, true}, {60, false}, {rows, false}} {
		got := 0
		err := conn.Call(ctx, api.MethodReadRows, (&api.ReadRowsRequest{Table: "t", Rows: changeRequest[:test.rows]}).Append, func(d *wire.Decoder) error {
			for n := d.Array(); got < n && d.Err() == nil; got++ {
				d.Skip()
			}
			return d.Err()
		})
		var limit *table.LimitError
		switch err = api.FromRPC(err); {
		case test.fits && (err != nil || got != test.rows):
			t.Errorf("%d rows: %d came, %v", test.rows, got, err)
		case !test.fits && (!errors.As(err, &limit) || limit.What != api.ResultBytes || limit.Limit < 3<<20 || limit.Limit > 5<<20):
			t.Errorf("%d rows: %v", test.rows, err)
		}
	}
	all, err := c.Table("t").GetAll(ctx, keys)
	if err != nil || len(all) != rows {
		t.Fatalf("%d rows, %v", len(all), err)
	}
	for i, r := range all {
		if there := i != 7 && i != 20; (r != nil) != there || there && (string(r.Key) != keys[i] || len(r.Cells[0].Value) != size) {
			t.Errorf("row %d: %v", i, r)
		}
	}
	for end := time.Now().Add(10 * time.Second); !n.ResultsAreFree(1); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("memory for results was not given back")
		}
	}
}
