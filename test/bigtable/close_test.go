package bigtable

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/steledb/stele/node"
)

// TestPortInUse: a node whose port for the API is in use does not start, and leaves nothing behind.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := node.Config{DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", Bigtable: l.Addr().String(), MemoryBytes: 512 << 20, ExtentBytes: 1 << 20}
	if n, err := node.Start(t.Context(), cfg); err == nil {
		t.Errorf("node %s started", n.ID())
	}
	cfg.Bigtable = "127.0.0.1:0"
	n, err := node.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCloseDuringCalls: a node closes while clients read and hold connections. Their calls fail, and no acknowledged write is lost.
func TestCloseDuringCalls(t *testing.T) {
	cfg := node.Config{DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", Bigtable: "127.0.0.1:0", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20}
	start := func() (*node.Node, bigtablepb.BigtableClient) {
		n, err := node.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return n, bigtablepb.NewBigtableClient(dial(t, n))
	}
	n, data := start()
	_, admin := goClient(t, n)
	createTable(t, admin)
	write := func(i int) error {
		set := &bigtablepb.Mutation_SetCell{FamilyName: "f", ColumnQualifier: []byte("q"), TimestampMicros: 1000, Value: []byte("v")}
		_, err := data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: fmt.Appendf(nil, "r%06d", i),
			Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: set}}}})
		return err
	}
	acknowledged, busy := make(chan int, 1), make(chan struct{})
	begun := sync.OnceFunc(func() { close(busy) })
	go func() {
		defer begun()
		i := 0
		for ; write(i) == nil; i++ {
			if i == 50 {
				begun()
			}
		}
		acknowledged <- i
	}()
	<-busy
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
	want := <-acknowledged
	n, data = start()
	defer n.Close(t.Context())
	rows, err := read(t.Context(), data, nil)
	if err != nil || rows != want && rows != want+1 {
		t.Errorf("%d rows, %v, want the %d that were acknowledged", rows, err, want)
	}
}
