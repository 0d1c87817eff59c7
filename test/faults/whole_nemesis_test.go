package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/raftmeta/api"
)

// wholeKinds are the faults of TestCluster.
var wholeKinds = map[string]struct{ do, undo func(*wholeRun, fault) }{
	"kill one":    {func(r *wholeRun, f fault) { r.kill(f, 1) }, (*wholeRun).startAll},
	"kill two":    {func(r *wholeRun, f fault) { r.kill(f, 2) }, (*wholeRun).startAll},
	"kill all":    {func(r *wholeRun, f fault) { r.kill(f, len(r.nodes)) }, (*wholeRun).startAll},
	"kill master": {(*wholeRun).killLeader, (*wholeRun).startAll},
	"stop one":    {(*wholeRun).stopOne, (*wholeRun).startAll},

	"pause one":    {func(r *wholeRun, f fault) { r.pause(f, 1) }, (*wholeRun).resumeAll},
	"pause two":    {func(r *wholeRun, f fault) { r.pause(f, 2) }, (*wholeRun).resumeAll},
	"pause master": {(*wholeRun).pauseLeader, (*wholeRun).resumeAll},

	"isolate one":    {func(r *wholeRun, f fault) { r.split(f, 1, false) }, (*wholeRun).heal},
	"isolate master": {func(r *wholeRun, f fault) { r.split(f, 1, true) }, (*wholeRun).heal},
	"split":          {func(r *wholeRun, f fault) { r.split(f, 2, false) }, (*wholeRun).heal},
	"bridge":         {(*wholeRun).bridge, (*wholeRun).heal},
	"one way":        {(*wholeRun).oneWay, (*wholeRun).heal},
	"deaf one":       {(*wholeRun).deafOne, (*wholeRun).heal},
	"mute one":       {(*wholeRun).muteOne, (*wholeRun).heal},

	"full disk":  {func(r *wholeRun, f fault) { r.fillDisks(f, 1) }, (*wholeRun).emptyDisks},
	"full node":  {func(r *wholeRun, f fault) { r.fillDisks(f, 2) }, (*wholeRun).emptyDisks},
	"slow disks": {(*wholeRun).slowDown, (*wholeRun).speedUp},

	"power cut of one":  {func(r *wholeRun, f fault) { r.cutPower(f, 1) }, (*wholeRun).startAll},
	"power cut of two":  {func(r *wholeRun, f fault) { r.cutPower(f, 2) }, (*wholeRun).startAll},
	"power cut of all":  {func(r *wholeRun, f fault) { r.cutPower(f, len(r.nodes)) }, (*wholeRun).startAll},
	"drain and restart": {(*wholeRun).drain, (*wholeRun).restartDrained},

	"kill users":  {(*wholeRun).killUsers, (*wholeRun).startUsers},
	"pause users": {(*wholeRun).pauseUsers, (*wholeRun).resumeUsers},

	"clock forward": {func(r *wholeRun, f fault) { r.setClocks(f, time.Hour, 1) }, (*wholeRun).nothing},
	"clock back":    {func(r *wholeRun, f fault) { r.setClocks(f, -time.Hour, 1) }, (*wholeRun).nothing},
	"clocks apart":  {(*wholeRun).clocksApart, (*wholeRun).rightClocks},
}

// wholeChoice returns the kinds of faults to make: all, or those in STELE_FAULT_KINDS, separated by
// commas.
func wholeChoice(t *testing.T) (kinds []string) {
	t.Helper()
	chosen := os.Getenv("STELE_FAULT_KINDS")
	if chosen == "" {
		return slices.Collect(maps.Keys(wholeKinds))
	}
	for kind := range strings.SplitSeq(chosen, ",") {
		if _, ok := wholeKinds[kind]; !ok {
			t.Fatalf("STELE_FAULT_KINDS: unknown fault %q; known are %q", kind, slices.Sorted(maps.Keys(wholeKinds)))
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// wholePlan draws the steps: one fault, or two at a time.
func wholePlan(r *rand.Rand, kinds []string, faults, nodes int, longest time.Duration) (steps [][]fault) {
	all := plan(r, kinds, faults, nodes, longest)
	for len(all) > 0 {
		n := min(len(all), 1+r.IntN(2))
		steps = append(steps, all[:n])
		all = all[n:]
	}
	return steps
}

// step does one or two faults, the second one while the first lasts.
func (r *wholeRun) step(start time.Time, faults []fault) {
	r.t.Helper()
	r.onlyFault = len(faults) == 1
	if drainsOnly(faults) { // leases that an earlier fault affected expire within this time
		time.Sleep(api.LeaseDefault)
		r.recovers()
	}
	from := now()
	for _, f := range faults {
		r.t.Logf("%6.1f s: %s for %v", time.Since(start).Seconds(), f.kind, f.length)
		r.kinds[f.kind]++
		wholeKinds[f.kind].do(r, f)
		time.Sleep(f.length / time.Duration(len(faults)))
	}
	for _, f := range faults {
		wholeKinds[f.kind].undo(r, f)
		time.Sleep(f.rest / 4)
	}
	r.undrain()
	r.recovers()
	if drainsOnly(faults) {
		r.quiet = append(r.quiet, period{from, now()})
	}
	time.Sleep(faults[0].rest / 2)
}

func drainsOnly(faults []fault) bool {
	return len(faults) == 1 && faults[0].kind == "drain and restart"
}

func (r *wholeRun) nothing(fault) {}

func (r *wholeRun) cutPower(f fault, many int) { r.losePower(r.victims(f, false)[:many]...) }

// up returns running victims.
func (r *wholeRun) up(f fault) []*node {
	return slices.DeleteFunc(r.victims(f, false), func(n *node) bool { return !n.shouldRun || n.paused })
}

func (r *wholeRun) stopOne(f fault) {
	if v := r.up(f); len(v) == len(r.nodes) { // otherwise it may wait for unreachable nodes
		v[0].stop()
	}
}

func (r *wholeRun) deafOne(f fault) {
	v := hosts(r.victims(f, false))
	r.lab.Cut(v[1:], v[:1])
}

func (r *wholeRun) muteOne(f fault) {
	v := hosts(r.victims(f, false))
	r.lab.Cut(v[:1], v[1:])
}

func (r *wholeRun) fillDisks(f fault, disks int) {
	r.t.Helper()
	for _, d := range r.victims(f, false)[0].disks[:disks] {
		if err := d.fill(storeReserve / 2); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *wholeRun) emptyDisks(fault) {
	r.t.Helper()
	for _, n := range r.nodes {
		for _, d := range n.disks {
			if err := d.empty(); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// slowDown makes every sync of a node take a quarter of a second.
func (r *wholeRun) slowDown(f fault) {
	r.t.Helper()
	if v := r.up(f); len(v) > 0 {
		r.slow = append(r.slow, v[0].trace(syncs, "delay_enter=250000"))
	}
}

func (r *wholeRun) speedUp(fault) {
	for _, p := range r.slow {
		p.Kill()
	}
	r.slow = nil
}

// setClocks sets wrong clocks on nodes, which keep them until another fault corrects them.
func (r *wholeRun) setClocks(f fault, off time.Duration, nodes int) {
	for _, n := range r.victims(f, false)[:nodes] {
		n.setClock(off)
	}
}

func (r *wholeRun) clocksApart(f fault) {
	for i, n := range r.victims(f, false) {
		n.setClock(time.Duration(i-len(r.nodes)/2) * time.Hour / 2)
	}
}

func (r *wholeRun) rightClocks(fault) {
	for _, n := range r.nodes {
		n.setClock(0)
	}
}

// shaker forces operations on tablets that otherwise happen only occasionally.
type shaker struct {
	db    *client.Client
	nodes []string
	rand  *rand.Rand

	mu     sync.Mutex
	counts map[string]int
}

func (s *shaker) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "forced on tablets:" + summary(s.counts)
}

func (s *shaker) run(ctx context.Context) {
	for pause(ctx, 500*time.Millisecond); ctx.Err() == nil; pause(ctx, time.Duration(s.rand.Int64N(int64(600*time.Millisecond)))) {
		call, cancel := context.WithTimeout(ctx, 5*time.Second+time.Duration(s.rand.Int64N(int64(15*time.Second))))
		what, err := s.shake(call, userTables[s.rand.IntN(len(userTables))])
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			what += " not done"
		}
		for _, unforeseen := range []error{client.ErrCorrupt, client.ErrNoTable} {
			if errors.Is(err, unforeseen) {
				what = fmt.Sprintf("%s %.150q", what, err)
			}
		}
		s.mu.Lock()
		s.counts[what]++
		s.mu.Unlock()
	}
}

// tabletsMost is the number of tablets of a table above which none is split.
const tabletsMost = 6

// shake makes one operation on a table.
func (s *shaker) shake(ctx context.Context, name string) (what string, err error) {
	at := client.TabletRef{Row: fmt.Sprintf("%x", s.rand.Uint32())}
	switch n := s.rand.IntN(20); {
	case n < 6:
		info, err := s.db.Tables().Describe(ctx, name)
		if err == nil && len(info.Tablets) < tabletsMost {
			_, err = s.db.Tablets().Split(ctx, name, s.place(name))
		}
		return "splits", err
	case n < 8:
		_, err = s.db.Tablets().Halve(ctx, name, at)
		return "halvings", err
	case n < 12:
		_, err = s.db.Tablets().Merge(ctx, name, at)
		return "merges", err
	case n < 17:
		_, err = s.db.Tablets().Move(ctx, name, at, s.node())
		return "moves", err
	case n < 18:
		_, err = s.db.Tablets().Move(ctx, metadata.Name, client.TabletRef{}, s.node())
		return "moves of METADATA", err
	case n < 19:
		return "major compactions", s.db.Tables().Compact(ctx, name, true)
	}
	return "minor compactions", s.db.Tables().Compact(ctx, name, false)
}

func (s *shaker) node() string { return s.nodes[s.rand.IntN(len(s.nodes))] }

// place returns a row to split at, usually where rows are being written.
func (s *shaker) place(name string) string {
	if name == rowsTable {
		return rowKey(s.rand.IntN(rowGroups), now()/int64(eraLength)-s.rand.Int64N(8))
	}
	return fmt.Sprintf("%08x", s.rand.Uint32())
}
