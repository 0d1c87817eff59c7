package bigtable

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/steledb/stele/node"
)

const (
	project  = "p"
	instance = "i"
)

// startNode starts a node that serves the API. It is closed at the end of the test.
func startNode(t testing.TB) *node.Node {
	t.Helper()
	n, err := node.Start(t.Context(), node.Config{
		DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", Bigtable: "127.0.0.1:0", BigtableSessions: true, MemoryBytes: 512 << 20, ExtentBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

// goClient returns Google's Go client, connected as programs connect to an emulator.
func goClient(t *testing.T, n *node.Node) (*bigtable.Client, *bigtable.AdminClient) {
	t.Helper()
	t.Setenv("BIGTABLE_EMULATOR_HOST", n.BigtableAddr())
	admin, err := bigtable.NewAdminClient(t.Context(), project, instance)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	c, err := bigtable.NewClient(t.Context(), project, instance)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, admin
}

// dial returns a connection without any client library.
func dial(t *testing.T, n *node.Node) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(n.BigtableAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
