package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// A table has a quota of quotaRate writes in a second, with a burst of one second. Its clients make many more for quotaTime, after
// quotaLearns, in which the master learns what each server needs.
const (
	quotaTable   = "limited"
	quotaRate    = 20
	quotaLearns  = 8 * time.Second
	quotaTime    = 8 * time.Second
	quotaWriters = 8
	// quotaSlack is the share by which the measured rate may be above the quota, and quotaLeast the one that the servers must admit: the clients ask
	// for more all the time.
	quotaSlack = 0.25
	quotaLeast = 0.75
)

// judgeQuota checks, in some plans, that the servers of a table together admit no more than its quota (SW16). There are no faults meanwhile.
func (w inspector) judgeQuota() {
	if !w.plan.quota || w.failed != "" {
		return
	}
	splits := []string{"4", "8", "c"}
	err := w.ask(time.Now().Add(healMax), func(ctx context.Context, c *client.Client) error {
		_, err := c.Tables().CreateSplit(ctx, quotaTable, splits, table.FamilySpec{Name: "f"})
		if err != nil && !errors.Is(err, client.ErrTableExists) {
			return err
		}
		return c.Quotas().Set(ctx, client.QuotaOfTable, quotaTable, map[string]int64{api.QuotaWriteOps: quotaRate}, time.Second)
	})
	if err != nil {
		w.fail("SW1 service: no table with a quota can be created: %v", err)
		return
	}
	var admitted atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for n := range quotaWriters {
		w.inClients(func() { w.useLimited(ctx, n, append(slices.Clone(splits), "0"), &admitted) })
	}
	time.Sleep(quotaLearns)
	before := admitted.Load()
	time.Sleep(quotaTime)
	n := admitted.Load() - before
	w.most("writes within a quota", n)
	if limit := int64(quotaRate * (quotaTime.Seconds()*(1+quotaSlack) + 1)); n > limit {
		w.fail("SW16 quotas: %d writes in %v, the quota is %d a second", n, quotaTime, quotaRate)
	}
	if least := int64(quotaRate * quotaTime.Seconds() * quotaLeast); n < least {
		w.fail("SW16 quotas: %d writes in %v, the quota of %d a second admits more", n, quotaTime, quotaRate)
	}
	_ = w.ask(time.Now().Add(healMax), func(ctx context.Context, c *client.Client) error { return c.Tables().DropNow(ctx, quotaTable) }) // SW1 judges the others
}

// useLimited writes the table as fast as its quota admits, and counts the writes.
func (w inspector) useLimited(ctx context.Context, n int, starts []string, admitted *atomic.Int64) {
	c, err := cluster{w.World}.Open(ctx, n, nil)
	if err != nil {
		return
	}
	defer c.Close()
	for i := 0; ctx.Err() == nil; i++ {
		once, cancel := context.WithTimeout(ctx, time.Second)
		if c.Table(quotaTable).Apply(once, client.NewRowMutation(fmt.Sprintf("%s%d", starts[(i+n)%len(starts)], n)).Set("f:v", []byte("v"))) == nil {
			admitted.Add(1)
		}
		cancel()
		sleepIn(ctx, 5*time.Millisecond)
	}
}
