package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	clientapi "github.com/steledb/stele/client/api"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/test/simulation/machine"
)

// A checklist has what a healed cluster does not do yet.
type checklist struct {
	// mu guards the fields in it. Never held by a goroutine that waits.
	mu struct {
		sync.Mutex
		open map[string]string // by what must happen: why it has not
	}
}

// set records why something has not happened; an empty text means that it has.
func (l *checklist) set(what, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.open == nil {
		l.mu.open = map[string]string{}
	}
	if l.mu.open[what] = why; why == "" {
		delete(l.mu.open, what)
	}
}

// String lists what is missing.
func (l *checklist) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for what, why := range l.mu.open {
		all = append(all, fmt.Sprintf("%s: %s", what, why))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// awaitService waits until the cluster serves everything, which it must within a bound of healMax
// (SW1), and then for a while, in which clients work without faults.
func (w inspector) awaitService(healed time.Time) { w.awaitServiceIn(healed, healMax) }

// awaitServiceIn is awaitService with another bound.
func (w inspector) awaitServiceIn(healed time.Time, limit time.Duration) {
	var l checklist
	ctx, cancel := context.WithDeadline(context.Background(), healed.Add(limit))
	defer cancel()
	done := make(chan struct{}, 1)
	w.inClients(func() {
		w.serve(ctx, &l, healed)
		done <- struct{}{}
	})
	select {
	case <-done:
	case <-time.After(time.Until(healed.Add(limit)) + time.Second):
	}
	if missing := l.String(); missing != "" {
		w.fail("SW1 service: %v after all faults have ended: %s", limit, missing)
	}
	from := machine.Now()
	time.Sleep(peaceTime)
	if w.peaceTo == 0 {
		w.peaceFrom, w.peaceTo = from, machine.Now()
	}
}

// peaceTime is how long clients work without faults once everything is served.
const peaceTime = 5 * time.Second

// most records the largest of values.
func (w inspector) most(name string, value int64) {
	name = "max " + name
	w.counts[name] = max(w.counts[name], value)
}

// serve completes the checklist. It returns when all is done, or the context ends.
func (w inspector) serve(ctx context.Context, l *checklist, healed time.Time) {
	reached := func(step string) { w.most("ms until "+step, time.Since(healed).Milliseconds()) }
	l.set("tables", "nodes come first")
	w.nodesServe(ctx, l)
	reached("nodes serve")
	var c *client.Client
	if !retry(ctx, l, "tables", func(ctx context.Context) (err error) {
		c, err = cluster{w.World}.Open(ctx, int(w.cfg.Seed), nil)
		return err
	}) {
		return
	}
	defer c.Close()
	var all sync.WaitGroup
	all.Go(func() { w.locksServe(ctx, l); reached("locks serve") })
	l.set("tables", "not listed")
	retry(ctx, l, "tables", func(once context.Context) error {
		schemas, err := c.Tables().List(once)
		for _, s := range schemas {
			l.set("table "+s.Name, "not described")
			all.Go(func() { w.tableServes(ctx, l, c, s.Name) })
		}
		return err
	})
	all.Wait()
	reached("tables serve")
}

// nodesServe waits until all nodes serve.
func (w inspector) nodesServe(ctx context.Context, l *checklist) {
	for ctx.Err() == nil {
		waits := false
		for _, h := range w.hosts {
			why := ""
			if h.state != serving && !h.gone && h != w.absent {
				why, waits = "waits for "+h.waits, true
			}
			l.set(h.name, why)
		}
		if !waits {
			return
		}
		sleepIn(ctx, 50*time.Millisecond)
	}
}

// locksServe writes a file of the lock service.
func (w inspector) locksServe(ctx context.Context, l *checklist) {
	locks, err := cluster{w.World}.OpenLocks(int(w.cfg.Seed))
	if err != nil {
		l.set("lock service", err.Error())
		return
	}
	defer locks.Close()
	retry(ctx, l, "lock service", func(ctx context.Context) error {
		_, err := locks.Set(ctx, "/locks/probe", []byte("probe"), api.AnyGeneration, api.SetOptions{})
		return err
	})
}

// tableServes reads all rows of a table, and writes to each tablet.
func (w inspector) tableServes(ctx context.Context, l *checklist, c *client.Client, name string) {
	var all sync.WaitGroup
	what := "table " + name
	all.Go(func() {
		retry(ctx, l, "read of "+what, func(ctx context.Context) error {
			s := c.Table(name).Scan(ctx)
			for s.Next() {
			}
			return errors.Join(s.Err(), s.Close())
		})
	})
	retry(ctx, l, what, func(once context.Context) error {
		info, err := c.Tables().Describe(once, name)
		if err != nil {
			return err
		}
		for _, t := range info.Tablets {
			// The first row of the tablet, which has no cells.
			m := client.NewRowMutation(string(t.Start) + "\x00").DeleteRow()
			part := fmt.Sprintf("write to tablet %d of %s after row %q, on %s", t.ID, what, t.Start, t.Node)
			l.set(part, "not tried")
			all.Go(func() {
				retry(ctx, l, part, func(ctx context.Context) error { return c.Table(name).Apply(ctx, m) })
			})
		}
		return nil
	})
	all.Wait()
}

// probeTimeout bounds one attempt of retry.
const probeTimeout = 5 * time.Second

// retry repeats a probe until it succeeds or the context ends, and records why it fails. It reports
// whether it succeeded. A table that was dropped, has used its quota, or follows another one, is served.
func retry(ctx context.Context, l *checklist, what string, do func(context.Context) error) bool {
	for {
		once, cancel := context.WithTimeout(ctx, probeTimeout)
		err := do(once)
		cancel()
		if err == nil || errors.Is(err, client.ErrNoTable) || errors.Is(err, client.ErrTableReplaced) || errors.Is(err, client.ErrQuota) || errors.Is(err, clientapi.ErrFollower) {
			l.set(what, "")
			return err == nil
		}
		if ctx.Err() != nil {
			return false
		}
		l.set(what, err.Error())
		sleepIn(ctx, 100*time.Millisecond)
	}
}

// sleepIn waits for d or until the context ends.
func sleepIn(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
