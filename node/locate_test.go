package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/locate"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// oneNode is a running node and a connection to it.
func oneNode(t *testing.T) (*Node, *rpc.Conn) {
	t.Helper()
	ctx := context.Background()
	n, err := Start(ctx, Config{DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := rpc.Dial(ctx, n.RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n, conn
}

func ask(conn *rpc.Conn, method string, request interface{ Append(*wire.Encoder) }, decode func(*wire.Decoder) error) error {
	if decode == nil {
		decode = func(d *wire.Decoder) error { d.Skip(); return d.Err() }
	}
	return api.FromRPC(conn.CallRetain(context.Background(), method, request.Append, decode))
}

func TestRootTellsWhereMetadataIs(t *testing.T) {
	n, conn := oneNode(t)
	ctx := context.Background()
	var info api.RootInfo
	root := func(name string) error {
		return ask(conn, api.MethodRoot, &api.NamesRequest{Names: []string{name}}, info.Decode)
	}
	if err := ask(conn, api.MethodCreateTable, &api.CreateTableRequest{Name: "web"}, nil); err != nil {
		t.Fatal(err)
	}
	s, _, err := n.catalog.Schema(ctx, "web")
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]uint64{"web": s.ID, metadata.Name: metadata.TableID} {
		want := api.RootInfo{Metadata: true, Table: id, Server: namespace.MetadataServer(n.tabletServer.Current().Name), Addr: n.RPCAddr()}
		if err := root(name); err != nil || info != want {
			t.Errorf("root of %s: %+v, %v, want %+v", name, info, err, want)
		}
	}
	if err := root("nosuch"); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("root of no table: %v", err)
	}
}

func TestWhatIsNotServedIsToldFrom(t *testing.T) {
	n, conn := oneNode(t)
	n.locator = func() locate.Locator { return neighbour{} }
	s, err := table.NewSchema("parts", 99).Apply(table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.catalog.SaveTable(context.Background(), s, nil, 0); err != nil {
		t.Fatal(err)
	}
	for i, rg := range [][2]string{{"", "d"}, {"d", "h"}, {"p", ""}} {
		m := &tablet.Meta{ID: uint64(900 + i), Table: 99, Start: []byte(rg[0]), End: []byte(rg[1]), LastMajor: time.Now()}
		if err := n.tabletServer.Users().Load(context.Background(), tablet.Load{Meta: m, Schema: s}); err != nil {
			t.Fatal(err)
		}
	}
	here, there := []byte("a"), []byte("k")
	set := []table.Mutation{table.Set("f", nil, 1, nil)}
	moved := func(what string, err error) {
		t.Helper()
		var reported *api.NotServingError
		if !errors.As(err, &reported) || *reported != (api.NotServingError{Addr: "10.0.0.7:7106", Node: "n7"}) {
			t.Errorf("%s of what is elsewhere: %v", what, err)
		}
	}
	moved("read", ask(conn, api.MethodRead, &api.ReadRequest{Table: "parts", Row: there}, nil))
	moved("read_rows", ask(conn, api.MethodReadRows, &api.ReadRowsRequest{Table: "parts", Rows: [][]byte{here, there}}, nil))
	moved("mutate", ask(conn, api.MethodMutate, &api.MutateRequest{Table: "parts", Row: table.RowMutation{Row: there, Mutations: set}}, nil))
	moved("check", ask(conn, api.MethodCheckAndMutate, &api.CheckAndMutateRequest{Table: "parts", Row: there, False: set}, nil))
	moved("modify", ask(conn, api.MethodReadModifyWrite, &api.ReadModifyWriteRequest{Table: "parts", Row: there,
		Rules: []table.Rule{{Op: table.RuleIncrement, Family: "f", Amount: 1}}}, nil))
	moved("scan", ask(conn, api.MethodScanOpen, &api.ScanOpenRequest{Table: "parts", Start: there}, nil))
	moved("scan in reverse from elsewhere", ask(conn, api.MethodScanOpen, &api.ScanOpenRequest{Table: "parts", End: there, Reversed: true}, nil))
	moved("sample", ask(conn, api.MethodSampleRowKeys, &api.SampleRowKeysRequest{Table: "parts", Start: there}, nil))
	var errs []error
	batch := api.MutateRowsRequest{Table: "parts", Rows: []table.RowMutation{{Row: there, Mutations: set}, {Row: here, Mutations: set}}}
	err = ask(conn, api.MethodMutateRows, &batch, func(d *wire.Decoder) error {
		return api.DecodeMutateResults(d, 2, func(_ int, _ int64, err *rpc.Error) {
			if err != nil {
				errs = append(errs, api.FromRPC(err))
			}
		})
	})
	if err != nil || len(errs) != 1 {
		t.Fatalf("batch: %v, %v", err, errs)
	}
	moved("one of a batch", errs[0])

	var r api.ScanResult
	open := api.ScanOpenRequest{Table: "parts", Parts: true}
	if err := ask(conn, api.MethodScanOpen, &open, r.Decode); err != nil || r.Count != 1 || r.Cursor != 0 || string(r.Next) != "h\x00" {
		t.Errorf("scan by parts: %d rows, cursor %d, next %q, %v", r.Count, r.Cursor, r.Next, err)
	}
	open.Parts = false
	if err := ask(conn, api.MethodScanOpen, &open, r.Decode); err != nil || r.Count != 1 || r.Cursor == 0 || string(r.Next) != "h\x00" {
		t.Errorf("scan: %d rows, cursor %d, next %q, %v", r.Count, r.Cursor, r.Next, err)
	}
	moved("the rest of a scan", ask(conn, api.MethodScanNext, &api.ScanNextRequest{Cursor: r.Cursor}, nil))
	for start, want := range map[string][]string{"": {"d", "h"}, "e": {"h"}, "q": {""}} {
		var keys []string
		err := ask(conn, api.MethodSampleRowKeys, &api.SampleRowKeysRequest{Table: "parts", Start: []byte(start)}, func(d *wire.Decoder) error {
			samples, err := api.DecodeSamples(d)
			for _, s := range samples {
				keys = append(keys, string(s.Key))
			}
			return err
		})
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("samples from %q: %q, %v, want %q", start, keys, err, want)
		}
	}
}

// neighbour returns the node that a refusal names.
type neighbour struct{}

func (neighbour) Locate(_ context.Context, table string, _ uint64, _ []byte, _ string) (addr, node string, ok bool) {
	return "10.0.0.7:7106", "n7", table == "parts"
}
