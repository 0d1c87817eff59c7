package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestStopWithoutLog: a node whose commit log has lost the other nodes, and that cannot record the loss because the lock service has no majority, stops soon,
// although requests wait for that log and others for those requests' rows.
func TestStopWithoutLog(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	awaitAllLogReplicas(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	c, err := client.Open(ctx, f.addrs[0], client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	var splits []string
	for i := range 12 {
		splits = append(splits, fmt.Sprintf("%02d", i))
	}
	if _, err := c.Tables().CreateSplit(ctx, "t", splits, spec); err != nil {
		t.Fatal(err)
	}
	counting, enough := context.WithCancel(ctx)
	var users sync.WaitGroup
	defer users.Wait()
	defer enough()
	for _, row := range splits {
		for range 3 {
			users.Go(func() {
				for counting.Err() == nil {
					_, _ = c.Table("t").Increment(counting, row, "f:q", 1) // most fail, once nodes are gone
				}
			})
		}
	}
	time.Sleep(500 * time.Millisecond)
	var gone sync.WaitGroup
	for _, i := range []int{1, 2} {
		gone.Go(func() {
			now, cancel := context.WithCancel(ctx)
			cancel()
			_ = f.nodes[i].Close(now) // the error states what it had no time for
			f.nodes[i] = nil
		})
	}
	gone.Wait()
	time.Sleep(time.Second)
	const drain = time.Second
	within, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	began, closed := time.Now(), make(chan error, 1)
	n := f.nodes[0]
	f.nodes[0] = nil
	go func() { closed <- n.Close(within) }()
	select {
	case err := <-closed:
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		t.Logf("closed after %v", time.Since(began))
	case <-time.After(drain + 10*time.Second):
		t.Errorf("not closed after %v", time.Since(began))
	}
}
