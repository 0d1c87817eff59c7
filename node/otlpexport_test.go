package node_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
)

// TestOTLPEndpoint: a node sends the traces that it keeps to its collector, the last ones when it stops.
func TestOTLPEndpoint(t *testing.T) {
	t.Parallel()
	received := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.URL.Path }))
	defer collector.Close()
	ctx := within(t, 60*time.Second)
	n, err := node.Start(ctx, node.Config{
		DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20, TraceSample: 1, OTLPEndpoint: collector.URL,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := n.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	select {
	case path := <-received:
		if path != "/v1/traces" {
			t.Errorf("sent to %s", path)
		}
	default:
		t.Error("nothing was sent")
	}
}
