package world

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/test/simulation/machine"
)

// Bounds of the phase in which all disks are full.
const (
	fullTable   = "full"           // the table that fills them
	fillMax     = 90 * time.Second // until writes are rejected
	dropMax     = time.Minute      // until the table is dropped
	noticeMax   = 3 * time.Second  // until all servers know that it is
	releaseMax  = 15 * time.Second // until its tablets are released
	fullWriters = 8
)

// run fills all disks with a table, in some plans, so that no write is accepted, while other clients work; in half of these one
// host ends meanwhile. Dropping the table must succeed, and its tablets must be released (SW12). Then the disks get space again: by garbage collection where its rounds
// are frequent, and otherwise as an operator would give it. Everything must be served then.
func (w fullPhase) run() {
	if !w.plan.full || w.failed != "" || w.inspector().corrupts() {
		return
	}
	if err := w.ask(time.Now().Add(healMax), w.create); err != nil {
		w.fail("SW1 service: no table can be created: %v", err)
		return
	}
	for _, h := range w.hosts {
		h.troubled()
		h.disk.SetCapacity(h.disk.Used() + h.cfg.ReserveBytes + 2<<20 + w.r.Int64N(4<<20))
	}
	w.trace.addf("nemesis", "all disks become full")
	w.count("full disks")
	var lost *host
	done := make(chan struct{}, 1)
	if w.r.IntN(2) == 0 && len(w.hosts) >= hostsMin && w.operators().await(time.Now().Add(healMax), func(ctx context.Context, c *client.Client) error {
		return w.inspector().votersFollow(ctx, c, nil, new(uint64))
	}) {
		lost = w.host()
		go func() { w.lose(lost); done <- struct{}{} }()
	}
	w.write()
	if lost != nil {
		<-done
	}
	w.sleep(0, 30*time.Second)
	if err := w.ask(time.Now().Add(dropMax), w.drop); err != nil {
		w.fail("SW12 full disks: the table that fills the disks cannot be dropped within %v: %v", dropMax, err)
		return
	}
	w.trace.addf("world", "the table that filled the disks is dropped")
	w.judgeDrop()
	w.empty(lost)
}

// lose takes a host from the cluster while the disks fill, sometimes at the instant at which another program takes what is left of all disks.
func (w fullPhase) lose(h *host) {
	w.sleep(time.Second, 5*time.Second)
	if w.r.IntN(2) == 0 {
		w.count("full disks without a reserve")
		for _, o := range w.hosts {
			o.disk.SetCapacity(o.disk.Used() + leftBytes)
		}
	}
	w.absent = h
	h.kill(w.r.IntN(2) == 0)
}

// leftBytes is what another program leaves of a disk: the lock service needs 2 MiB, and extents of commit logs leave half of the reserve.
const leftBytes = 4 << 20

// judgeDrop checks that all servers release the tablets of a dropped table, their memory and their files, also while nothing can be appended to the
// commit logs (SW12).
func (w fullPhase) judgeDrop() {
	held, began := map[string]int64{}, time.Now()
	time.Sleep(noticeMax)
	for end := time.Now().Add(releaseMax); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		clear(held)
		for _, h := range w.hosts {
			if n := h.node; n != nil && h.state == serving {
				machine.Start(h.process, func() { held[h.name] = node.Discarding(n) })
			}
		}
		time.Sleep(1)
		if !slices.ContainsFunc(slices.Collect(maps.Values(held)), func(n int64) bool { return n > 0 }) {
			w.inspector().most("ms until a dropped table is released", time.Since(began).Milliseconds())
			return
		}
	}
	w.fail("SW12 full disks: tablets of the dropped table are not released within %v, by server: %v", releaseMax, held)
}

// empty gives all disks space again, and judges that everything is served then.
func (w fullPhase) empty(lost *host) {
	limit := healMax
	if gc := w.plan.tuning.GC; gc.Every > 0 && lost == nil {
		limit += w.plan.tuning.SweepDelay + garbageRounds*gc.Every + 3*(gc.Warn+gc.Grace)
	} else {
		for _, h := range w.hosts {
			h.disk.SetCapacity(w.plan.diskBytes)
		}
	}
	if lost != nil { // its log may have no other replica: on full disks there is no space for one
		w.absent = nil
		lost.up()
	}
	w.inspector().awaitServiceIn(time.Now(), limit) // not later: what clients write fills the disks again
	w.heal()
	w.inspector().awaitService(time.Now())
}

// fullPhase is the phase in which a table fills all disks.
type fullPhase struct{ *World }

func (w fullPhase) create(ctx context.Context, c *client.Client) error {
	_, err := c.Tables().CreateSplit(ctx, fullTable, []string{"4", "8", "c"}, table.FamilySpec{Name: "f"})
	if errors.Is(err, client.ErrTableExists) { // by an attempt whose answer was lost
		err = nil
	}
	return err
}

func (w fullPhase) drop(ctx context.Context, c *client.Client) error {
	err := c.Tables().DropNow(ctx, fullTable)
	if errors.Is(err, client.ErrNoTable) { // dropped by an attempt whose answer was lost
		err = nil
	}
	return err
}

// write writes the table until writes are rejected because disks are full.
func (w fullPhase) write() {
	var rejected atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), fillMax)
	defer cancel()
	done := make(chan struct{}, fullWriters)
	for n := range fullWriters {
		w.inClients(func() {
			w.writeOne(ctx, n, &rejected)
			done <- struct{}{}
		})
	}
	for range fullWriters {
		<-done
	}
	w.inspector().most("writes rejected for full disks", rejected.Load())
}

// rejectedMax is how many writes are rejected until the disks count as full.
const rejectedMax = 40

func (w fullPhase) writeOne(ctx context.Context, n int, rejected *atomic.Int64) {
	c, err := cluster{w.World}.Open(ctx, n, nil)
	if err != nil {
		return
	}
	defer c.Close()
	value := make([]byte, 32<<10)
	for i := 0; ctx.Err() == nil && rejected.Load() < rejectedMax; i++ {
		for j := range value {
			value[j] = byte(i*j ^ j>>8 ^ n)
		}
		once, cancel := context.WithTimeout(ctx, probeTimeout)
		err := c.Table(fullTable).Apply(once, client.NewRowMutation(fmt.Sprintf("%x-%d-%d", (i*5+n)%16, n, i)).Set("f:v", value))
		cancel()
		if errors.Is(err, client.ErrDiskFull) {
			rejected.Add(1)
		}
		sleepIn(ctx, 20*time.Millisecond)
	}
}
