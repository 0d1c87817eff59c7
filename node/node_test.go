package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
)

func start(t testing.TB, dir string) *node.Node {
	t.Helper()
	n, err := node.Start(context.Background(), node.Config{
		DataDirs: []string{dir}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "127.0.0.1:0", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func stop(t testing.TB, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestWriteRestartRead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	n := start(t, dir)
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := table.ParseFamilySpec("anchor")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tables().Create(ctx, "webtable", spec); err != nil {
		t.Fatal(err)
	}
	tab := c.Table("webtable")
	m := client.NewRowMutation("com.cnn.www").Set("anchor:www.c-span.org", []byte("CNN"))
	if err := tab.Apply(ctx, m); err != nil {
		t.Fatal(err)
	}
	c.Close()
	stop(t, n)

	n = start(t, dir)
	defer stop(t, n)
	if c, err = client.Open(ctx, n.RPCAddr(), client.Config{}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	row, err := c.Table("webtable").Get(ctx, "com.cnn.www")
	if err != nil {
		t.Fatal(err)
	}
	if len(row.Cells) != 1 || string(row.Cells[0].Value) != "CNN" {
		t.Fatalf("got %+v", row)
	}
}
