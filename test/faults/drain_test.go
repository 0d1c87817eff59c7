package faults

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// drainTime bounds a drain without another fault.
	drainTime = 60 * time.Second
	// drainStop and faultStop bound the exit of a process after SIGTERM: of a drained one, and of
	// any one, which may wait for unreachable nodes.
	drainStop, faultStop = 15 * time.Second, 30 * time.Second
	// drainPatience bounds the wait of an operation during a drain and restart without another
	// fault.
	drainPatience = 5 * time.Second
	// waitMin is the minimum wait of an operation that its own timeout of 500 ms or more ended: a
	// client does not begin a pause that would outlast it. An earlier failure was a rejection.
	waitMin = 200 * time.Millisecond
)

// drained is a node that an operator takes out of the cluster for a while.
type drained struct {
	*node
	done chan struct{} // closed when the command has ended
	back bool          // it was stopped and started again
	out  string
	err  error
	took time.Duration
}

// period is a time interval.
type period struct{ from, to int64 }

// drain drains a node, while another fault begins if there is one.
func (r *wholeRun) drain(f fault) {
	r.t.Helper()
	v := r.up(f)
	if len(v) == 0 {
		return
	}
	via := r.nodes[f.pick[len(f.pick)-1]].address()
	if v[0].address() == via {
		via = r.nodes[f.pick[0]].address()
	}
	d := &drained{node: v[0], done: make(chan struct{})}
	r.drained = append(r.drained, d)
	most := drainTime
	if !r.onlyFault {
		most = drainStop // it may wait for unreachable nodes
	}
	go func() {
		defer close(d.done)
		start := time.Now()
		d.out, d.err = r.stele("--addr", via, "node", "drain", d.String(), "--timeout", most.String())
		d.took = time.Since(start)
	}()
	if !r.onlyFault {
		return
	}
	<-d.done
	if d.err != nil {
		r.t.Errorf("drain %v, without another fault: %v: %s", d.node, d.err, tail(d.out, 5))
		r.diagnose()
		r.t.FailNow()
	}
}

// restartDrained stops the node cleanly and starts it again.
func (r *wholeRun) restartDrained(f fault) {
	r.t.Helper()
	i := slices.IndexFunc(r.drained, func(d *drained) bool { return !d.back })
	if i < 0 {
		return
	}
	d := r.drained[i]
	d.back = true
	if d.shouldRun && !d.paused { // by a later fault
		within := faultStop
		if r.onlyFault {
			within = drainStop
		}
		start := time.Now()
		err := d.stopWithin(within)
		r.t.Logf("          %v stopped after %v: %v", d.node, time.Since(start).Round(10*time.Millisecond), err)
		if err != nil && r.onlyFault { // otherwise it may have waited for unreachable nodes
			r.t.Errorf("stop drained node %v: exited with %v", d.node, err)
		}
	}
	time.Sleep(f.rest)
	if !d.shouldRun {
		d.start()
	}
}

// undrain undrains the nodes, once all faults are over.
func (r *wholeRun) undrain() {
	r.t.Helper()
	for _, d := range r.drained {
		<-d.done // otherwise it would drain the node again
		r.t.Logf("          %v: drain %v after %v", d.node, d.err, d.took.Round(100*time.Millisecond))
		var out string
		err := await(recoverTime, func() (err error) {
			out, err = r.stele("--addr", strings.Join(r.addresses(), ","), "node", "undrain", d.String(), "--timeout", "10s")
			return err
		})
		if err != nil {
			r.t.Errorf("undrain %v: %v: %s", d.node, err, tail(out, 5))
			r.diagnose()
			r.t.FailNow()
		}
	}
	r.drained = nil
}

// refused returns the operations that failed while only a drain and restart were in progress.
func (h *userHistories) refused(quiet []period) (bad []string) {
	for _, op := range h.failed {
		took := op.to - op.from
		late := took < int64(drainPatience) && (took > int64(waitMin) || strings.Contains(op.Error, context.DeadlineExceeded.Error()))
		if late || op.to == math.MaxInt64 || strings.Contains(op.Error, context.Canceled.Error()) {
			continue
		}
		for _, s := range quiet {
			if s.from < op.from && op.to < s.to && len(bad) < 10 {
				bad = append(bad, fmt.Sprintf("no fault but a drain and restart from %.3f to %.3f s, and user %d's %s of %s from %.3f to %.3f s fails: %s",
					float64(s.from)/1e9, float64(s.to)/1e9, op.client, op.Kind, op.Row, float64(op.from)/1e9, float64(op.to)/1e9, op.Error))
			}
		}
	}
	return bad
}
