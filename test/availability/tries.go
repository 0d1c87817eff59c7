package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

const (
	tableName = "probed"
	// cellBytes is the size of the values that fill memtables.
	cellBytes = 1000
	// goals, in ms and as counts
	goalKill, goalSlow, goalSplit, goalMove = 4000, 1000, 50, 100
)

// run is a run of tries, under probes.
type run struct {
	f       *cluster
	o       *options
	table   *table.Schema
	ends    []string // of the tablets; the last has none
	probers []*prober
	cancel  context.CancelFunc
	work    sync.WaitGroup
	splits  int
}

// prepare creates the table and starts the probers.
func (r *run) prepare(ctx context.Context) (err error) {
	if r.table, err = r.f.c.Tables().Create(ctx, tableName, table.FamilySpec{Name: "f"}); err != nil {
		return err
	}
	for i := 1; i < r.o.tablets; i++ {
		end := fmt.Sprintf("t%04d", i)
		if _, err := r.f.c.Tablets().Split(ctx, tableName, end); err != nil {
			return fmt.Errorf("split at %s: %w", end, err)
		}
		r.ends = append(r.ends, end)
	}
	probing, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	for i := range r.o.tablets {
		p := &prober{t: r.f.c.Table(tableName), row: rowOf(i, "probe")}
		p.pause.Store(int64(probePause))
		r.probers = append(r.probers, p)
		r.work.Go(func() { p.run(probing) })
	}
	return nil
}

func (r *run) end() {
	r.cancel()
	r.work.Wait()
}

// rowOf returns a row of the i-th tablet, above the end of the preceding one.
func rowOf(i int, rest string) string { return fmt.Sprintf("t%04d-%s", i, rest) }

// figure measures one figure.
func (r *run) figure(ctx context.Context, what string) ([]*figure, error) {
	switch what {
	case "kill":
		return r.kills(ctx)
	case "master":
		return r.masters(ctx)
	case "split":
		return r.changes(ctx, "split", goalSplit, r.split)
	case "move":
		return r.changes(ctx, "move", goalMove, r.move)
	case "restart":
		return r.restarts(ctx)
	}
	return nil, fmt.Errorf("unknown figure %q", what)
}

// settle waits until the cluster has settled, and drops earlier writes.
func (r *run) settle(ctx context.Context) error {
	if err := r.f.settled(ctx, r.table.ID); err != nil {
		return err
	}
	for _, p := range r.probers {
		p.forget(time.Now().Add(-10 * time.Second))
	}
	return nil
}

// kills measures the time from SIGKILL of a node until all tablets are served.
func (r *run) kills(ctx context.Context) ([]*figure, error) {
	plain := &figure{what: fmt.Sprintf("kill of a node with %d MiB in memtables, until the last tablet serves", r.o.mib), goal: goalKill}
	master := &figure{what: "kill of the master's node, until the last tablet serves", goal: goalKill}
	filled := &figure{what: "MiB held only by its logs", counts: true, goal: -1}
	for i := range r.o.tries {
		victim := r.f.nodes[i%nodes]
		if err := r.fill(ctx, victim); err != nil {
			return nil, err
		}
		leader, err := r.f.leader(ctx)
		if err != nil {
			return nil, err
		}
		s, err := r.f.status(ctx, victim)
		if err != nil {
			return nil, err
		}
		killed := time.Now()
		r.f.end(victim, syscall.SIGKILL)
		took, err := r.served(ctx, killed)
		if err != nil {
			return nil, err
		}
		kind := plain
		if victim == leader {
			kind = master
		}
		kind.add(took)
		filled.all = append(filled.all, float64(s.MemtableBytes>>20))
		r.logf("kill of %s, master %v, %d MiB: %v", victim.name, victim == leader, s.MemtableBytes>>20, took.Round(time.Millisecond))
		if err := r.f.start(victim); err != nil {
			return nil, err
		}
	}
	return []*figure{plain, master, filled}, nil
}

// served returns how long after a time the last tablet answered a write.
func (r *run) served(ctx context.Context, since time.Time) (took time.Duration, err error) {
	err = until(ctx, "all tablets serve", func() error {
		took = 0
		for i, p := range r.probers {
			at, ok := p.answered(since)
			if !ok {
				return fmt.Errorf("tablet %d does not serve", i)
			}
			took = max(took, at.Sub(since))
		}
		return nil
	})
	return took, err
}

// fill waits until the cluster has settled, and writes rows into a node's tablets until its
// memtables hold the configured amount.
func (r *run) fill(ctx context.Context, victim *process) error {
	if err := r.settle(ctx); err != nil {
		return err
	}
	places, err := r.f.places(ctx, r.table.ID)
	if err != nil {
		return err
	}
	var mine []int
	for i := range places {
		if places[i].addr == victim.rpc && i < r.o.tablets {
			mine = append(mine, i)
		}
	}
	if len(mine) == 0 {
		return fmt.Errorf("%s has no tablet", victim.name)
	}
	s, err := r.f.status(ctx, victim)
	if err != nil {
		return err
	}
	left := int64(r.o.mib)<<20 - s.MemtableBytes
	value := make([]byte, cellBytes)
	_, _ = rand.Read(value)
	t := r.f.c.Table(tableName)
	for n := 0; left > 0; n++ {
		var rows []*client.RowMutation
		for range 1000 {
			row := rowOf(mine[(n+len(rows))%len(mine)], fmt.Sprintf("%x", len(rows)*7919+n*104729))
			rows = append(rows, client.NewRowMutation(row).Set("f:fill", value))
		}
		if err := t.ApplyAll(ctx, rows); err != nil {
			return fmt.Errorf("fill memtables: %w", err)
		}
		left -= int64(len(rows)) * cellBytes
	}
	return nil
}

// window is how long the effects of a change are observed.
const window = 500 * time.Millisecond

// changes measures the slowest write to a tablet during an operation on it.
func (r *run) changes(ctx context.Context, what string, goal float64, do func(ctx context.Context, tablet int) error) ([]*figure, error) {
	slow := &figure{what: what + ": slowest write to the tablet", goal: goal}
	base := &figure{what: "baseline: of as long before", goal: -1}
	took := &figure{what: what + ": duration", goal: -1}
	failures := &figure{what: what + ": failed writes", counts: true, goal: 0}
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	for i := range r.o.tries {
		tablet := i % r.o.tablets
		p := r.probers[tablet]
		p.pause.Store(int64(probeFast))
		time.Sleep(2 * window)
		began := time.Now()
		if err := do(ctx, tablet); err != nil {
			return nil, err
		}
		ended := time.Now()
		time.Sleep(window)
		p.pause.Store(int64(probePause))
		most, failed := p.slowest(began, ended.Add(window/2))
		before, _ := p.slowest(began.Add(began.Sub(ended)-window/2), began.Add(-time.Millisecond))
		slow.add(most)
		base.add(before)
		took.add(ended.Sub(began))
		failures.all = append(failures.all, float64(failed))
		r.logf("%s of tablet %d: slowest write %v, before %v, took %v", what, tablet, most.Round(time.Millisecond/10), before.Round(time.Millisecond/10), ended.Sub(began).Round(time.Millisecond))
	}
	return []*figure{slow, base, took, failures}, nil
}

// split splits a tablet next to the probed row. The lower part shrinks with each call.
func (r *run) split(ctx context.Context, tablet int) error {
	r.splits++
	_, err := r.f.c.Tablets().Split(ctx, tableName, rowOf(tablet, fmt.Sprintf("a%06d", 999999-r.splits)))
	return err
}

// move moves a tablet to another node.
func (r *run) move(ctx context.Context, tablet int) error {
	to, err := r.otherNode(ctx, r.probers[tablet].row)
	if err != nil {
		return err
	}
	_, err = r.f.c.Tablets().Move(ctx, tableName, client.TabletRef{Row: r.probers[tablet].row}, to.name)
	return err
}

// otherNode returns the node with the fewest tablets among those that do not have a row. The
// balancer leaves moved tablets where they are, and the cluster does not settle while a node has
// too few.
func (r *run) otherNode(ctx context.Context, row string) (*process, error) {
	places, err := r.f.places(ctx, r.table.ID)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(places, func(p place) bool { return p.end == "" || p.end >= row })
	tablets := map[string]int{}
	for _, p := range places {
		tablets[p.addr]++
	}
	var to *process
	for _, p := range r.f.nodes {
		if p.rpc != places[i].addr && (to == nil || tablets[p.rpc] < tablets[to.rpc]) {
			to = p
		}
	}
	return to, nil
}

// masters measures the effect of the master's death on writes to other nodes.
func (r *run) masters(ctx context.Context) ([]*figure, error) {
	slow := &figure{what: "kill of the master: slowest write to tablets on other nodes", goal: goalSlow}
	base := &figure{what: "baseline: of as long before", goal: -1}
	failures := &figure{what: "kill of the master: failed writes", counts: true, goal: 0}
	const long = 5 * time.Second
	for range r.o.tries {
		if err := r.settle(ctx); err != nil {
			return nil, err
		}
		leader, err := r.f.leader(ctx)
		if err != nil {
			return nil, err
		}
		if err := r.empty(ctx, leader); err != nil {
			return nil, err
		}
		time.Sleep(long)
		probers, err := r.probersOutside(ctx, leader)
		if err != nil {
			return nil, err
		}
		killed := time.Now()
		r.f.end(leader, syscall.SIGKILL)
		time.Sleep(long)
		most, failed := slowestOf(probers, killed, killed.Add(long))
		before, _ := slowestOf(probers, killed.Add(-long), killed.Add(-time.Millisecond))
		slow.add(most)
		base.add(before)
		failures.all = append(failures.all, float64(failed))
		r.logf("kill of the master %s: slowest write to %d tablets elsewhere %v, before %v, %d failed", leader.name, len(probers), most.Round(time.Millisecond), before.Round(time.Millisecond), failed)
		if err := r.f.start(leader); err != nil {
			return nil, err
		}
	}
	return []*figure{slow, base, failures}, nil
}

// empty moves a node's tablets to others.
func (r *run) empty(ctx context.Context, from *process) error {
	var others []*process
	for _, p := range r.f.nodes {
		if p != from {
			others = append(others, p)
		}
	}
	places, err := r.f.places(ctx, r.table.ID)
	if err != nil {
		return err
	}
	for i, p := range places {
		if p.addr != from.rpc {
			continue
		}
		row := p.end
		if row == "" {
			row = rowOf(9999, "")
		}
		if _, err := r.f.c.Tablets().Move(ctx, tableName, client.TabletRef{Row: row}, others[i%len(others)].name); err != nil {
			return err
		}
	}
	return nil
}

// probersOutside returns the probers whose tablets are not on a node. The balancer may have moved
// some back to it after empty.
func (r *run) probersOutside(ctx context.Context, from *process) (all []*prober, err error) {
	places, err := r.f.places(ctx, r.table.ID)
	if err != nil {
		return nil, err
	}
	for _, p := range r.probers {
		i := slices.IndexFunc(places, func(x place) bool { return x.end == "" || x.end >= p.row })
		if i >= 0 && places[i].addr != "" && places[i].addr != from.rpc {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("measure the kill of the master: all tablets are on %s", from.name)
	}
	return all, nil
}

// restarts measures the effect of a rolling restart on writes.
func (r *run) restarts(ctx context.Context) ([]*figure, error) {
	failures := &figure{what: "rolling restart: failed writes", counts: true, goal: 0}
	slow := &figure{what: "rolling restart: slowest write", goal: -1}
	took := &figure{what: "rolling restart: duration", goal: -1}
	for range max(1, r.o.tries/10) {
		if err := r.settle(ctx); err != nil {
			return nil, err
		}
		began := time.Now()
		for _, p := range r.f.nodes {
			if err := r.restart(ctx, p); err != nil {
				return nil, err
			}
		}
		ended := time.Now()
		most, failed := slowestOf(r.probers, began, ended)
		failures.all = append(failures.all, float64(failed))
		slow.add(most)
		took.add(ended.Sub(began))
		r.logf("rolling restart: %d writes failed, the slowest took %v, all %v", failed, most.Round(time.Millisecond), ended.Sub(began).Round(time.Millisecond))
	}
	return []*figure{failures, slow, took}, nil
}

func (r *run) restart(ctx context.Context, p *process) error {
	if _, err := r.f.run(ctx, "node", "drain", p.name, "--timeout", settleTimeout.String()); err != nil {
		return err
	}
	r.f.end(p, syscall.SIGTERM)
	if err := r.f.start(p); err != nil {
		return err
	}
	if err := r.f.await(ctx, p); err != nil {
		return err
	}
	if _, err := r.f.run(ctx, "node", "undrain", p.name); err != nil {
		return err
	}
	return r.f.settled(ctx, r.table.ID)
}

// logf logs progress.
func (r *run) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
