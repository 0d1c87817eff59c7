package node_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestTokensSurviveKills: additions with tokens that are sent until they are acknowledged, and once more, count once each, although the node is killed meanwhile.
func TestTokensSurviveKills(t *testing.T) {
	ctx := within(t, endWait)
	p := newProcess(t)
	p.start(os.Stderr)
	c := p.client(ctx)
	sum := table.AggregateSum
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "sum", Aggregate: &sum}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	var acked [8]int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for w := range acked {
		wg.Go(func() {
			c := p.client(ctx)
			defer c.Close()
			for ctx.Err() == nil && !stop.Load() {
				id := fmt.Appendf(nil, "worker %d, addition %d", w, acked[w])
				m := client.NewRowMutation("r").AddInt(fmt.Sprintf("sum:%d", w), 1000, 1).WithToken(id, time.Now())
				for again := 0; again < 2 && ctx.Err() == nil; {
					if err := c.Table("t").Apply(ctx, m); err == nil {
						again++
					}
				}
				acked[w]++
			}
		})
	}
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		p.kill()
		p.start(os.Stderr)
		p.client(ctx).Close()
	}
	stop.Store(true)
	wg.Wait()
	c = p.client(ctx)
	defer c.Close()
	row, err := c.Table("t").Get(ctx, "r")
	if err != nil || row == nil || len(row.Cells) != len(acked) {
		t.Fatalf("%+v, %v", row, err)
	}
	for w, want := range acked {
		if got := int64(binary.BigEndian.Uint64(row.Cells[w].Value)); got != want || want == 0 {
			t.Errorf("worker %d: %d, want %d", w, got, want)
		}
	}
	t.Logf("acknowledged %v", acked)
}
