package node_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// rowRequests returns a request of each method about rows, for a row of the table t with that id.
func rowRequests(id uint64) map[string]func(*wire.Encoder) {
	o, row := api.TableOptions{TableID: id}, []byte("r")
	set := []table.Mutation{table.Set("f", nil, 1, []byte("v"))}
	mutation := table.RowMutation{Row: row, Mutations: set}
	return map[string]func(*wire.Encoder){
		api.MethodMutate:          (&api.MutateRequest{TableOptions: o, Table: "t", Row: mutation}).Append,
		api.MethodMutateRows:      (&api.MutateRowsRequest{TableOptions: o, Table: "t", Rows: []table.RowMutation{mutation}}).Append,
		api.MethodBulkWrite:       (&api.BulkWriteRequest{MutateRowsRequest: api.MutateRowsRequest{TableOptions: o, Table: "t", Rows: []table.RowMutation{mutation}}}).Append,
		api.MethodBulkCommit:      (&api.BulkRequest{TableOptions: o, Table: "t", Row: row, Requests: 1}).Append,
		api.MethodBulkAbort:       (&api.BulkRequest{TableOptions: o, Table: "t", Row: row}).Append,
		api.MethodRead:            (&api.ReadRequest{TableOptions: o, Table: "t", Row: row}).Append,
		api.MethodReadRows:        (&api.ReadRowsRequest{TableOptions: o, Table: "t", Rows: [][]byte{row, row}}).Append,
		api.MethodScanOpen:        (&api.ScanOpenRequest{TableOptions: o, Table: "t", Start: row, BatchRows: 1}).Append,
		api.MethodCheckAndMutate:  (&api.CheckAndMutateRequest{TableOptions: o, Table: "t", Row: row, True: set, False: set}).Append,
		api.MethodReadModifyWrite: (&api.ReadModifyWriteRequest{TableOptions: o, Table: "t", Row: row, Rules: []table.Rule{{Op: table.RuleAppend, Family: "f"}}}).Append,
		api.MethodReadChanges:     (&api.ReadChangesRequest{TableOptions: o, Table: "t", Start: row}).Append,
		api.MethodSampleRowKeys:   (&api.SampleRowKeysRequest{TableOptions: o, Table: "t", Start: row}).Append,
	}
}

// call makes a call and returns its error, or that of the only row that it changes.
func call(ctx context.Context, conn *rpc.Conn, method string, request func(*wire.Encoder)) error {
	var failed *rpc.Error
	err := conn.Call(ctx, method, request, func(d *wire.Decoder) error {
		if method != api.MethodMutateRows {
			d.Skip()
			return d.Err()
		}
		return api.DecodeMutateResults(d, 1, func(_ int, _ int64, e *rpc.Error) { failed = e })
	})
	if err == nil && failed != nil {
		err = failed
	}
	return api.FromRPC(err)
}

// TestTableID (I15): a request that names a table's id is executed in that table or not at all, whichever node gets it.
func TestTableID(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	create := func() uint64 {
		t.Helper()
		s, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"})
		if err == nil {
			_, err = c.Tables().Alter(ctx, "t", table.Change{Op: table.ChangeStream, Retention: time.Hour})
		}
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	// check asks all nodes and returns how many of them execute each request; the others answer with want, or that the
	// tablet is not there if they are to.
	check := func(id uint64, want error) {
		t.Helper()
		for method, request := range rowRequests(id) {
			served := 0
			for i, n := range f.nodes {
				conn, err := rpc.Dial(ctx, n.RPCAddr(), rpc.ConnConfig{})
				if err != nil {
					t.Fatal(err)
				}
				err = call(ctx, conn, method, request)
				_ = conn.Close()
				switch {
				case err == nil, errors.Is(err, api.ErrBulkRefused), errors.Is(err, api.ErrBulkExpired): // the table has a change stream, and no part
					served++
				case want == nil && errors.Is(err, api.ErrNotServing):
				case want == nil || !errors.Is(err, want):
					t.Errorf("%s with table id %d at node %d: %v, want %v", method, id, i, err, want)
				}
			}
			if want == nil && served != 1 || want != nil && served != 0 {
				t.Errorf("%s with table id %d was executed at %d nodes, want error %v", method, id, served, want)
			}
		}
	}
	first := create()
	check(0, nil)
	check(first, nil)
	check(first+1000, api.ErrTableReplaced)
	if err := c.Tables().Drop(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	check(0, api.ErrNoTable)
	check(first, api.ErrNoTable)
	second := create()
	check(first, api.ErrTableReplaced)
	if row, err := c.Table("t").Get(ctx, "r"); row != nil || err != nil {
		t.Errorf("row of the new table: %v, %v", row, err)
	}
	check(0, nil)
	check(second, nil)
	conn, err := rpc.Dial(ctx, f.nodes[0].RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var replaced *api.TableReplacedError
	if err := call(ctx, conn, api.MethodRead, rowRequests(first)[api.MethodRead]); !errors.As(err, &replaced) || replaced.ID != second || replaced.Table != "t" {
		t.Errorf("read with the id of a dropped table: %v, want the id %d", err, second)
	}
}

// TestScanOfReplacedTable: the batches of a scan are of one table, with and without its id in the request.
func TestScanOfReplacedTable(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	c := f.client(0)
	conn, err := rpc.Dial(ctx, f.nodes[0].RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	create := func() uint64 {
		t.Helper()
		s, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"})
		if err == nil {
			_, err = c.Tables().Alter(ctx, "t", table.Change{Op: table.ChangeStream, Retention: time.Hour})
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range []string{"a", "b", "c"} {
			if err := c.Table("t").Apply(ctx, client.NewRowMutation(row).Set("f:q", []byte("v"))); err != nil {
				t.Fatal(err)
			}
		}
		return s.ID
	}
	id := create()
	for _, named := range []bool{false, true} {
		req := api.ScanOpenRequest{Table: "t", BatchRows: 1}
		if named {
			req.TableID = id
		}
		var got api.ScanResult
		if err := conn.CallRetain(ctx, api.MethodScanOpen, req.Append, got.Decode); err != nil || got.Cursor == 0 {
			t.Fatalf("cursor %d, %v", got.Cursor, err)
		}
		if err := c.Tables().Drop(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		id = create()
		next := api.ScanNextRequest{Cursor: got.Cursor}
		if err := api.FromRPC(conn.CallRetain(ctx, api.MethodScanNext, next.Append, got.Decode)); !errors.Is(err, api.ErrTableReplaced) {
			t.Errorf("id named: %v: scan goes on in another table: %v, want %v", named, err, api.ErrTableReplaced)
		}
	}
}

// TestTableIDTellsNothing (I12): a user without rights on a table gets, whatever id a request names, the answer for a table
// that does not exist.
func TestTableIDTellsNothing(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	admin := f.client(0)
	ann := pki.NewEndpoint(f.user(admin, "ann"), pki.Options{})
	conn, err := rpc.Dial(ctx, f.nodes[0].RPCAddr(), rpc.ConnConfig{
		Dialer: func(ctx context.Context, addr string) (net.Conn, error) { return ann.Dial(ctx, "", addr) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := func(id uint64) map[string]string {
		all := map[string]string{}
		for method, request := range rowRequests(id) {
			err := call(ctx, conn, method, request)
			if !errors.Is(err, api.ErrNoTable) {
				t.Errorf("%s with table id %d: %v, want %v", method, id, err, api.ErrNoTable)
			}
			var answer *rpc.Error
			if errors.As(err, &answer) {
				all[method] = answer.Error()
			}
		}
		return all
	}
	missing := answers(7)
	s, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{0, s.ID, s.ID + 5} {
		for method, answer := range answers(id) {
			if answer != missing[method] {
				t.Errorf("%s with table id %d: %q, want %q as of a table that does not exist", method, id, answer, missing[method])
			}
		}
	}
}

// TestLocationOfRecreatedTable: the nodes that a request without a table's id reaches name the node that has the tablet, and not one that had it
// in an earlier table of the name, whose rows of METADATA are kept.
func TestLocationOfRecreatedTable(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	for holder, at := range f.nodes {
		if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
			t.Fatal(err)
		}
		for ctx.Err() == nil {
			if _, err := c.Tablets().Move(ctx, "t", client.TabletRef{Row: "r"}, at.ID()); err == nil {
				break
			}
		}
		for i, n := range f.nodes {
			conn, err := rpc.Dial(ctx, n.RPCAddr(), rpc.ConnConfig{})
			if err != nil {
				t.Fatal(err)
			}
			err = call(ctx, conn, api.MethodRead, (&api.ReadRequest{Table: "t", Row: []byte("r")}).Append)
			_ = conn.Close()
			var elsewhere *api.NotServingError
			if errors.As(err, &elsewhere) && elsewhere.Node != at.ID() || i == holder != (err == nil) {
				t.Errorf("table %d at node %d: node %d answers %v", holder, holder, i, err)
			}
		}
		if err := c.Tables().Drop(ctx, "t"); err != nil {
			t.Fatal(err)
		}
	}
}
