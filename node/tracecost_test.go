package node_test

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
)

// processorTime returns the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tracedTable starts a node that traces one request of so many, with rows in a table in SSTables, and returns the table.
func tracedTable(b *testing.B, traceSample int) *client.Table {
	ctx := context.Background()
	n, err := node.Start(ctx, node.Config{DataDirs: []string{b.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20, TraceSample: traceSample})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stop(b, n) })
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	if _, err := c.Tables().Create(ctx, "bench", table.FamilySpec{Name: "f"}); err != nil {
		b.Fatal(err)
	}
	t := c.Table("bench")
	for i := range 1000 {
		if err := t.Apply(ctx, client.NewRowMutation(benchRow(i)).Set("f:v", make([]byte, 100))); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.Tables().Compact(ctx, "bench", true); err != nil {
		b.Fatal(err)
	}
	return t
}

// BenchmarkTracing compares the processor time of a request, its client included, on two nodes of one process: one that traces no requests, and one
// that traces one of 1000. Both get requests in turns: "on/off" is the median
// ratio of two turns.
func BenchmarkTracing(b *testing.B) {
	nodes := [2]*client.Table{tracedTable(b, -1), tracedTable(b, 1000)}
	ctx := context.Background()
	const turn, clients = 1000, 8
	requests := func(b *testing.B, t *client.Table, do func(t *client.Table, i int) error) float64 {
		began := processorTime(b)
		var active sync.WaitGroup
		for k := range clients {
			active.Go(func() {
				for i := k; i < turn; i += clients {
					if err := do(t, i); err != nil {
						b.Error(err)
					}
				}
			})
		}
		active.Wait()
		return float64(processorTime(b)-began) / turn
	}
	for name, do := range map[string]func(t *client.Table, i int) error{
		"read": func(t *client.Table, i int) error { _, err := t.Get(ctx, benchRow(i%1000)); return err },
		"mutate": func(t *client.Table, i int) error {
			return t.Apply(ctx, client.NewRowMutation(benchRow(i+1000)).Set("f:v", nil))
		},
	} {
		b.Run(name, func(b *testing.B) {
			var cost [2][]float64
			var ratios []float64
			for i := 0; b.Loop(); i++ {
				for k := range nodes {
					k = (k + i) % 2
					cost[k] = append(cost[k], requests(b, nodes[k], do))
				}
				ratios = append(ratios, cost[1][i]/cost[0][i])
			}
			median := func(x []float64) float64 { slices.Sort(x); return x[len(x)/2] }
			b.ReportMetric(median(cost[0]), "cpu-ns/off")
			b.ReportMetric(median(cost[1]), "cpu-ns/on")
			b.ReportMetric(median(ratios), "on/off")
		})
	}
}
