package bigtable

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/steledb/stele/node"
)

// counter counts the virtual RPCs, and all other calls, of a client.
type counter struct{ virtual, unary, streams atomic.Int64 }

type counted struct {
	grpc.ClientStream
	virtual *atomic.Int64
}

func (c counted) SendMsg(m any) error {
	if r, ok := m.(*bigtablepb.SessionRequest); ok && r.GetVirtualRpc() != nil {
		c.virtual.Add(1)
	}
	return c.ClientStream.SendMsg(m)
}

func (c *counter) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	if !strings.HasSuffix(method, "/OpenTable") && !strings.HasSuffix(method, "/OpenAuthorizedView") {
		c.streams.Add(1)
	}
	return counted{s, &c.virtual}, err
}

func (c *counter) call(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if strings.HasSuffix(method, "/MutateRow") {
		c.unary.Add(1)
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// sessionClient returns Google's Go client, connected as to Google's service, so that it opens sessions.
func sessionClient(t testing.TB, addr string) (*bigtable.Client, *counter) {
	t.Helper()
	n := &counter{}
	c, err := n.client(t.Context(), addr, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, n
}

// client returns such a client with an app profile.
func (c *counter) client(ctx context.Context, addr, profile string) (*bigtable.Client, error) {
	cfg := bigtable.ClientConfig{AppProfile: profile, MetricsProvider: bigtable.NoopMetricsProvider{}, DisableDirectAccess: true}
	return bigtable.NewClientWithConfig(ctx, project, instance, cfg,
		option.WithEndpoint("passthrough:///"+addr), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(c.stream)), option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(c.call)))
}

// awaitSessions reads a row until the client does that in a session: it asks the node after it has started.
func awaitSessions(t testing.TB, tbl bigtable.TableAPI, n *counter) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); n.virtual.Load() == 0; {
		if _, err := tbl.ReadRow(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the client opens no session")
		}
	}
}

// TestGoSessions: Google's Go client reads and mutates rows in sessions, with the results of plain calls.
func TestGoSessions(t *testing.T) {
	node := startNode(t)
	_, admin := goClient(t, node)
	createTable(t, admin)
	t.Setenv("BIGTABLE_EMULATOR_HOST", "")
	c, n := sessionClient(t, node.BigtableAddr())
	tbl := c.OpenTable(table)
	awaitSessions(t, tbl, n)
	streams := n.streams.Load()
	m := bigtable.NewMutation()
	m.Set("f", "q", 1000, []byte("v"))
	m.Set("g", "", 2000, make([]byte, 2<<20))
	if err := tbl.Apply(t.Context(), "a", m); err != nil {
		t.Fatal(err)
	}
	row, err := tbl.ReadRow(t.Context(), "a", bigtable.RowFilter(bigtable.FamilyFilter("f|g")))
	if err != nil || len(row["f"]) != 1 || string(row["f"][0].Value) != "v" || row["f"][0].Timestamp != 1000 || len(row["g"][0].Value) != 2<<20 {
		t.Errorf("%.200v, %v", row, err)
	}
	if row, err := tbl.ReadRow(t.Context(), "a", bigtable.RowFilter(bigtable.BlockAllFilter())); err != nil || row != nil {
		t.Errorf("%v, %v", row, err)
	}
	m.Set("none", "q", 1000, nil)
	if err := tbl.Apply(t.Context(), "a", m); err == nil {
		t.Error("a mutation of a family that does not exist succeeds")
	}
	if n.unary.Load() > 0 || n.streams.Load() > streams {
		t.Errorf("%d rows were mutated and %d read without sessions", n.unary.Load(), n.streams.Load()-streams)
	}
}

// TestGoSessionsRestart: a node with clients in sessions shuts down at once. When it is back, clients continue in sessions, and no write that
// was acknowledged is lost.
func TestGoSessionsRestart(t *testing.T) {
	cfg := node.Config{DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", Bigtable: "127.0.0.1:0", BigtableSessions: true, MemoryBytes: 512 << 20, ExtentBytes: 1 << 20}
	one, err := node.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, admin := goClient(t, one)
	createTable(t, admin)
	t.Setenv("BIGTABLE_EMULATOR_HOST", "")
	cfg.Bigtable = one.BigtableAddr()
	c, n := sessionClient(t, one.BigtableAddr())
	tbl := c.OpenTable(table)
	awaitSessions(t, tbl, n)
	var callers sync.WaitGroup
	var acknowledged [4]int
	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop); callers.Wait() })
	defer end()
	for i := range acknowledged {
		callers.Go(func() { acknowledged[i] = writeUntil(t, tbl, i, stop) })
	}
	writes := func(k int64) {
		deadline := time.Now().Add(2 * time.Minute)
		for k += n.virtual.Load(); n.virtual.Load() < k; {
			if time.Now().After(deadline) {
				t.Fatal("no writes in sessions")
			}
			time.Sleep(time.Millisecond) // a sampling period
		}
	}
	writes(200)
	began := time.Now()
	if err := one.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the node closed in %v", took)
	}
	if one, err = node.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer one.Close(t.Context())
	writes(200)
	end()
	want := 0
	for _, k := range acknowledged {
		want += k
	}
	if rows, err := read(t.Context(), bigtablepb.NewBigtableClient(dial(t, one)), nil); err != nil || rows != want {
		t.Errorf("%d rows, %v, want %d", rows, err, want)
	}
}

// writeUntil writes rows of caller i, each until it is acknowledged, and returns their number.
func writeUntil(t *testing.T, tbl bigtable.TableAPI, i int, stop <-chan struct{}) (acknowledged int) {
	for {
		select {
		case <-stop:
			return acknowledged
		default:
		}
		m := bigtable.NewMutation()
		m.Set("f", "q", 1000, []byte("v"))
		var err error
		for deadline := time.Now().Add(time.Minute); ; {
			// The client forgets a call that waits for a session while the node is down: see docs/bigtable.md.
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err = tbl.Apply(ctx, fmt.Sprintf("%d-%06d", i, acknowledged), m)
			if cancel(); err == nil || time.Now().After(deadline) {
				break
			}
		}
		if err != nil {
			t.Errorf("a write while the node restarts: %v", err)
			return acknowledged
		}
		acknowledged++
	}
}
