package bench

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startNode(t testing.TB, cfg Config) *client.Client {
	t.Helper()
	return startNodeBehind(t, cfg, nil)
}

// startNodeBehind starts a node, and a client that connects with dial.
func startNodeBehind(t testing.TB, cfg Config, dial func(context.Context, string) (net.Conn, error)) *client.Client {
	t.Helper()
	n, err := node.Start(context.Background(), node.Config{
		DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	clientCfg := cfg.ClientConfig(1)
	clientCfg.Dial = dial
	c, err := client.Open(context.Background(), n.RPCAddr(), clientCfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func run(t *testing.T, c *client.Client, cfg Config) map[Workload]Result {
	t.Helper()
	cfg.quiet = 10 * time.Millisecond
	b, err := New(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	got := map[Workload]Result{}
	if err := b.Run(context.Background(), func(r Result) { got[r.Workload] = r }); err != nil {
		t.Fatal(err)
	}
	if left := b.Tables(); len(left) != 0 {
		t.Errorf("tables left: %v", left)
	}
	return got
}

// TestAllWorkloads: every workload processes all of its rows and reads correct data, with one row
// per call and with many.
func TestAllWorkloads(t *testing.T) {
	for _, batch := range []int{1, 7} {
		cfg := Config{Rows: 3000, Clients: 8, Batch: batch, ReadTimeMin: time.Millisecond, ValueBytes: 100, Tablets: batch}
		c := startNode(t, cfg)
		got := run(t, c, cfg)
		for _, w := range PaperWorkloads() {
			r, want := got[w], int64(3000)
			if w == RandomReadMem {
				want = 300
			}
			if r.Ops < want || r.Bad != 0 || r.Rows != want || r.PerSecond <= 0 || r.PaperRatio <= 0 || r.Latency.P50 <= 0 || r.Latency.P99 < r.Latency.P50 || r.Latency.Max < r.Latency.P999 || r.Tablets != batch || r.Client.CPU <= 0 || r.Client.Allocs <= 0 {
				t.Errorf("batch %d, %s: %+v", batch, w, r)
			}
		}
		if w := got[RandomWrite]; w.Ops != 3000 {
			t.Errorf("batch %d: wrote %d rows", batch, w.Ops)
		}
		if schemas, err := c.Tables().List(context.Background()); err != nil || len(schemas) != 0 {
			t.Errorf("%d tables left, %v", len(schemas), err)
		}
	}
}

// TestOnly: the rows of a read workload are written for it.
func TestOnly(t *testing.T) {
	for _, w := range []Workload{RandomRead, Scan} {
		cfg := Config{Rows: 2500, Clients: 4, Workloads: []Workload{w}, ReadTimeMin: time.Millisecond, Major: true, Warm: true, Options: "block=8KiB,compression=none"}
		got := run(t, startNode(t, cfg), cfg)
		if r := got[w]; len(got) != 1 || r.Ops < 2500 || r.Bad != 0 {
			t.Errorf("%s: %+v", w, got)
		}
	}
}

// TestBadRowsAreCounted: BN4, for missing and for wrong rows.
func TestBadRowsAreCounted(t *testing.T) {
	ctx := context.Background()
	cfg := Config{Rows: 1000, Clients: 2, Workloads: []Workload{SequentialWrite, SequentialRead, Scan}, ReadTimeMin: time.Nanosecond, ValueBytes: 100}
	c := startNode(t, cfg)
	cfg.quiet = 10 * time.Millisecond
	b, err := New(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var bad []int64
	err = b.Run(ctx, func(r Result) {
		bad = append(bad, r.Bad)
		if r.Workload != SequentialWrite {
			return
		}
		tab := c.Table(b.Tables()[0])
		if err := tab.Apply(ctx, client.NewRowMutation(string(appendKey(nil, 17))).Set("data:", []byte("wrong"))); err != nil {
			t.Error(err)
		}
		if err := tab.Apply(ctx, client.NewRowMutation(string(appendKey(nil, 999))).DeleteRow()); err != nil {
			t.Error(err)
		}
	})
	if err != nil || !slices.Equal(bad, []int64{0, 2, 2}) {
		t.Errorf("bad rows %v, %v", bad, err)
	}
}

// TestRate: clients keep to the rate.
func TestRate(t *testing.T) {
	cfg := Config{Rows: 200, Clients: 4, Workloads: []Workload{SequentialWrite}, Rate: 1000, ValueBytes: 100}
	got := run(t, startNode(t, cfg), cfg)
	if r := got[SequentialWrite]; r.Took < 190*time.Millisecond {
		t.Errorf("200 rows at 1000 a second took %v", r.Took)
	}
}

// TestConnectionsBreak: rows with an unknown outcome are written again, and none is lost.
func TestConnectionsBreak(t *testing.T) {
	var mu sync.Mutex
	var open []net.Conn
	broken := 0
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			open = append(open, conn)
		}
		return conn, err
	}
	cfg := Config{Rows: 2000, Clients: 8, Rate: 4000, Workloads: []Workload{RandomWrite, RandomRead}, ReadTimeMin: time.Millisecond, ValueBytes: 100}
	cfg.Measuring = func(w Workload) func() {
		if w != RandomWrite {
			return func() {}
		}
		end := make(chan struct{})
		var breaking sync.WaitGroup
		breaking.Go(func() {
			tick := time.NewTicker(80 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					mu.Lock()
					for _, conn := range open {
						conn.Close()
						broken++
					}
					open = nil
					mu.Unlock()
				case <-end:
					return
				}
			}
		})
		return func() {
			close(end)
			breaking.Wait()
		}
	}
	got := run(t, startNodeBehind(t, cfg, dial), cfg)
	if r := got[RandomRead]; r.Ops < 2000 || r.Bad != 0 || broken < 3 {
		t.Errorf("after %d broken connections: %+v", broken, r)
	}
}

// TestInterrupted: created tables are also dropped when the run is cancelled.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg := Config{Rows: 5000, Clients: 4, ValueBytes: 100, Measuring: func(Workload) func() {
		cancel()
		return func() {}
	}}
	c := startNode(t, cfg)
	cfg.quiet = 10 * time.Millisecond
	b, err := New(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Run(ctx, func(r Result) { t.Errorf("got %+v", r) }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if schemas, err := c.Tables().List(context.Background()); err != nil || len(schemas) != 0 {
		t.Errorf("%d tables left, %v", len(schemas), err)
	}
}

func TestConfigRefuses(t *testing.T) {
	for _, cfg := range []Config{
		{Rows: 3}, {Rows: -1}, {Clients: -1}, {Clients: ClientsMax + 1}, {Batch: BatchMax + 1}, {ValueBytes: 7},
		{ValueBytes: ValueBytesMax + 1}, {Rate: -1}, {Tablets: TabletsMax + 1}, {Operations: -1},
		{Rows: RecordsMax + 1, Workloads: []Workload{YCSBC}}, {Options: "block=no"}, {Options: "versions=2"},
	} {
		if _, err := New(nil, cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	if _, err := ParseWorkloads("random-read,randm-write"); err == nil {
		t.Error("an unknown workload was accepted")
	}
	if b, err := New(nil, Config{Rows: 77}); err != nil || b.Operations() != 77 {
		t.Errorf("%v operations, %v", b.Operations(), err)
	}
	for text, want := range map[string][]Workload{
		"scan, random-read,scan": {Scan, RandomRead}, "": PaperWorkloads(), "paper": PaperWorkloads(), "all": Workloads(),
		"ycsb-f,ycsb": {YCSBF, YCSBA, YCSBB, YCSBC, YCSBD, YCSBE},
	} {
		if ws, err := ParseWorkloads(text); err != nil || !slices.Equal(ws, want) {
			t.Errorf("%q: %v, %v", text, ws, err)
		}
	}
}
