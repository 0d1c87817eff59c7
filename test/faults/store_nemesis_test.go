package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/netlab"
)

// storeKinds are the faults of the block store's tests.
var storeKinds = map[string]struct{ do, undo func(*storeRun, fault) }{
	"kill one": {func(r *storeRun, f fault) { r.kill(f, 1) }, (*storeRun).startAll},
	"kill two": {func(r *storeRun, f fault) { r.kill(f, 2) }, (*storeRun).startAll},
	"kill all": {func(r *storeRun, f fault) { r.kill(f, len(r.nodes)) }, (*storeRun).startAll},

	"pause one": {func(r *storeRun, f fault) { r.pause(f, 1) }, (*storeRun).resumeAll},
	"pause two": {func(r *storeRun, f fault) { r.pause(f, 2) }, (*storeRun).resumeAll},

	"isolate one": {func(r *storeRun, f fault) { r.split(f, 1, false) }, (*storeRun).heal},
	"split":       {func(r *storeRun, f fault) { r.split(f, 2, false) }, (*storeRun).heal},
	"bridge":      {(*storeRun).bridge, (*storeRun).heal},
	"one way":     {(*storeRun).oneWay, (*storeRun).heal},
	"deaf":        {(*storeRun).deaf, (*storeRun).heal},
	"mute":        {(*storeRun).mute, (*storeRun).heal},

	"full disk":  {func(r *storeRun, f fault) { r.fill(f, 1, 1, storeReserve/2) }, (*storeRun).emptyAll},
	"full node":  {func(r *storeRun, f fault) { r.fill(f, 1, 2, storeReserve/2) }, (*storeRun).emptyAll},
	"full nodes": {(*storeRun).fillNodes, (*storeRun).emptyAll},
	"no sync":    {(*storeRun).injure, (*storeRun).mend},

	"flip in a blob":         {func(r *storeRun, f fault) { r.damage(f, "blob", false) }, (*storeRun).nothing},
	"flip in a blob, down":   {func(r *storeRun, f fault) { r.damage(f, "blob", true) }, (*storeRun).startAll},
	"flip in a log":          {func(r *storeRun, f fault) { r.damage(f, "log", false) }, (*storeRun).nothing},
	"flip in a log, down":    {func(r *storeRun, f fault) { r.damage(f, "log", true) }, (*storeRun).startAll},
	"flip in a log's header": {func(r *storeRun, f fault) { r.damage(f, "header", true) }, (*storeRun).startAll},
	"flip in holders":        {func(r *storeRun, f fault) { r.damage(f, "holders", true) }, (*storeRun).startAll},
	"lost disk":              {func(r *storeRun, f fault) { r.lose(f, 1) }, (*storeRun).startAll},
	"lost disks":             {func(r *storeRun, f fault) { r.lose(f, 2) }, (*storeRun).startAll},
}

// storePlan draws the steps: one fault, or two at a time if neither removes replicas permanently,
// or uses all disk space.
func storePlan(r *rand.Rand, faults, nodes int, longest time.Duration) (steps [][]fault) {
	var waiting *fault
	for _, f := range plan(r, slices.Collect(maps.Keys(storeKinds)), faults, nodes, longest) {
		single := strings.HasPrefix(f.kind, "flip") || strings.HasPrefix(f.kind, "lost") || f.kind == "full nodes"
		switch {
		case single || r.IntN(2) == 0:
			steps = append(steps, []fault{f})
		case waiting == nil:
			waiting = &f
		default:
			steps = append(steps, []fault{*waiting, f})
			waiting = nil
		}
	}
	if waiting != nil {
		steps = append(steps, []fault{*waiting})
	}
	return steps
}

// step does one or two faults, the second one while the first lasts.
func (r *storeRun) step(start time.Time, faults []fault) {
	r.t.Helper()
	for _, f := range faults {
		r.t.Logf("%6.1f s: %s for %v", time.Since(start).Seconds(), f.kind, f.length)
		storeKinds[f.kind].do(r, f)
		time.Sleep(f.length / time.Duration(len(faults)))
	}
	for _, f := range faults {
		storeKinds[f.kind].undo(r, f)
		time.Sleep(f.rest / 4)
	}
	r.recovers()
	time.Sleep(faults[0].rest / 2)
}

func (r *storeRun) nothing(fault) {}

func (r *storeRun) deaf(f fault) {
	v := hosts(r.victims(f, false))
	r.lab.Cut(v[1:], v[:1])
}

func (r *storeRun) mute(f fault) {
	v := hosts(r.victims(f, false))
	r.lab.Cut(v[:1], v[1:])
}

// fill fills disks of nodes.
func (r *storeRun) fill(f fault, nodes, disks int, leave int64) {
	r.t.Helper()
	for _, n := range r.victims(f, false)[:nodes] {
		for _, d := range n.disks[:disks] {
			if err := d.fill(leave); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// fillNodes fills all disks, and writes until that fails. The error must be that the disks are
// full.
func (r *storeRun) fillNodes(f fault) {
	r.t.Helper()
	r.fill(f, len(r.nodes), 2, storeReserve/2)
	ctx, cancel := context.WithTimeout(r.t.Context(), 60*time.Second)
	defer cancel()
	i := f.pick[0] % storeTables
	w, n := r.probes[i], 0
	r.probed++
	var err error
	for ; ctx.Err() == nil; n++ {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		err = w.write(call, r.conns[i], w.key(1_000_000*r.probed+n))
		cancel()
		if errors.Is(err, client.ErrDiskFull) {
			r.t.Logf("          disk full after %d rows", n)
			return
		}
	}
	r.t.Errorf("%d rows were written to full disks without a disk full error; the last: %v", n, err)
}

func (r *storeRun) emptyAll(fault) {
	r.t.Helper()
	for _, n := range r.nodes {
		for _, d := range n.disks {
			if err := d.empty(); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// injury makes the syncs of a node's process fail.
type injury struct {
	node   *node
	tracer *netlab.Process
}

// injure makes all syncs of a node fail. The node may exit.
func (r *storeRun) injure(f fault) {
	r.t.Helper()
	n := r.victims(f, false)[0]
	if !n.shouldRun || n.paused {
		return
	}
	n.mayExit = true
	r.injured = &injury{n, n.trace(syncs, "error=EIO")}
}

// syncs are the system calls that make data durable.
const syncs = "fsync,fdatasync"

// trace tampers with system calls of the node's process until the returned tracer ends.
func (n *node) trace(calls, inject string) *netlab.Process {
	t := n.c.t
	t.Helper()
	out, err := os.OpenFile(filepath.Join(n.c.dir, "strace.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("strace", "-f", "-p", fmt.Sprint(n.proc.Pid()), "-e", "trace="+calls, "-e", "inject="+calls+":"+inject)
	cmd.Stdout, cmd.Stderr = out, out
	p, err := n.c.lab.Here.Start(cmd)
	if err != nil {
		t.Fatalf("trace system calls: %v: install strace", err)
	}
	select {
	case <-n.proc.Done(): // it exited at once
		return p
	case <-p.Done():
	case <-time.After(200 * time.Millisecond):
		return p
	}
	select {
	case <-n.proc.Done(): // the tracer has ended too
	case <-time.After(200 * time.Millisecond):
		output, _ := os.ReadFile(out.Name())
		t.Fatalf("strace may not trace a process here (%v): %s", p.Err(), tail(string(output), 3))
	}
	return p
}

// mend ends the injury, and a new disk or a restart repairs its effects.
func (r *storeRun) mend(fault) {
	r.t.Helper()
	if r.injured == nil {
		return
	}
	n := r.injured.node
	select {
	case <-n.proc.Done():
		r.t.Logf("          %v ended: %v: %s", n, n.proc.Err(), tail(n.log(), 1))
	default:
	}
	n.kill()
	r.injured.tracer.Kill()
	r.injured, n.mayExit = nil, false
	n.start()
}

// spare returns an error if data on these disks is on no others.
func (r *storeRun) spare(ctx context.Context, n *node, disks []*disk) error {
	all, err := needed(ctx, r.lib, r.patient)
	if err != nil {
		return err
	}
	for _, x := range all {
		elsewhere := 0
		for _, o := range r.nodes {
			good, err := o.copies(x)
			if err != nil {
				return err
			}
			if o == n {
				good = slices.DeleteFunc(good, func(name string) bool {
					return slices.ContainsFunc(disks, func(d *disk) bool { return strings.HasPrefix(name, d.path+"/") })
				})
			}
			elsewhere += len(good)
		}
		if elsewhere == 0 {
			return fmt.Errorf("%v is on no other node than %v", x, n)
		}
	}
	return nil
}

// renew rewrites the tables, so that all extents have their full number of replicas.
func (r *storeRun) renew() {
	r.t.Helper()
	if err := r.probe(recoverTime); err != nil {
		r.t.Fatal(err)
	}
	for i := range r.probes {
		if err := await(recoverTime, func() error { return r.compact(r.t.Context(), i, true) }); err != nil {
			r.t.Fatalf("compact table %d: %v", i, err)
		}
	}
}

// lose removes disks from a node while it is down, once all their data has other replicas.
func (r *storeRun) lose(f fault, disks int) {
	r.t.Helper()
	n := r.victims(f, false)[0]
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	gone := n.disks[len(n.disks)-disks:]
	for {
		r.renew()
		n.kill()
		// Logs may be about to release extents with a replica there.
		err := await(3*time.Second, func() error { return r.spare(ctx, n, gone) })
		if err == nil {
			break
		}
		r.t.Logf("          not yet: %v", err)
		n.start()
		r.recovers()
		_ = verifyAll(ctx, r.all[0]) // corruption that is found is repaired
		if ctx.Err() != nil {
			r.t.Fatalf("what %v has is not on other nodes: %v", n, err)
		}
		time.Sleep(time.Second)
	}
	for _, d := range gone {
		if err := d.lose(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// damage flips a bit of a file of a node, of which another node has the same.
func (r *storeRun) damage(f fault, what string, down bool) {
	r.t.Helper()
	v := r.victims(f, false)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		n := v[i%len(v)]
		if what == "blob" {
			r.renew()
		}
		if down && n.shouldRun {
			n.kill()
		}
		done, err := r.flipOne(ctx, n, what)
		if err != nil {
			r.t.Fatal(err)
		}
		if done != "" {
			r.t.Logf("          %s", done)
			return
		}
		r.startAll(f)
	}
	r.t.Fatalf("found no %s to damage", what)
}

// flipOne flips a bit of a file that may be damaged, if there is one, and describes it.
func (r *storeRun) flipOne(ctx context.Context, n *node, what string) (string, error) {
	if what == "holders" {
		name := filepath.Join(n.disks[r.rand.IntN(len(n.disks))].blobs(), "holders")
		st, err := os.Stat(name)
		if err != nil || st.Size() == 0 {
			return "", nil
		}
		return r.flipIn(name, 0, st.Size())
	}
	all, err := needed(ctx, r.lib, r.patient)
	if err != nil {
		return "", err
	}
	for _, i := range r.rand.Perm(len(all)) {
		x := all[i]
		if x.log != (what != "blob") {
			continue
		}
		mine, err := n.copies(x)
		if err != nil {
			return "", err
		}
		holders, err := r.holders(x)
		if err != nil {
			return "", err
		}
		if len(mine) == 0 || len(holders) < 2 {
			continue
		}
		b, err := os.ReadFile(mine[0])
		if err != nil {
			return "", err
		}
		switch what {
		case "blob":
			return r.flipIn(mine[0], 0, int64(len(b)))
		case "header":
			at := 2048 * r.rand.Int64N(2)
			return r.flipIn(mine[0], at, at+512)
		}
		if at := replicaFrames(b, replicaHeader(b)); len(at) > 1 {
			from := at[0]
			if r.rand.IntN(2) == 0 {
				from = at[len(at)-2] // damage to the last one looks like a torn write, not corruption
			}
			return r.flipIn(mine[0], from, at[len(at)-1])
		}
	}
	return "", nil
}

// flipIn flips a bit within a range of a file.
func (r *storeRun) flipIn(name string, from, to int64) (string, error) {
	at, bit := from+r.rand.Int64N(to-from), r.rand.IntN(8)
	rel, _ := filepath.Rel(r.dir, name)
	return fmt.Sprintf("bit %d of byte %d of %s", bit, at, rel), flip(name, at, bit)
}
