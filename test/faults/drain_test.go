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
	// drainTime bounds a drain that meets no other fault.
	drainTime = 60 * time.Second
	// drainStop and faultStop bound the end of a process after SIGTERM: of one that was drained, and of any: what it
	// waits for may not be there.
	drainStop, faultStop = 15 * time.Second, 30 * time.Second
	// drainPatience is how long an operation may wait, at most, in a drain and restart that meet no fault.
	drainPatience = 5 * time.Second
	// waitMin is how long an operation has waited at least that was given up in its own time, of 500 ms or more: a client
	// does not begin a pause that would outlast it. What fails sooner was refused.
	waitMin = 200 * time.Millisecond
)

// drained is a node that an operator takes out of the cluster for a while.
type drained struct {
	*node
	done chan struct{} // closed once the command has ended
	back bool          // it was stopped and started again
	out  string
	err  error
	took time.Duration
}

// period is a time.
type period struct{ from, to int64 }

// drain has the operator drain a node, while another fault begins if there is one.
func (r *wholeRun) drain(f fault) {
	r.t.Helper()
	v := r.up(f)
	if len(v) == 0 {
		return
	}
	ask := r.nodes[f.pick[len(f.pick)-1]].address()
	if v[0].address() == ask {
		ask = r.nodes[f.pick[0]].address()
	}
	d := &drained{node: v[0], done: make(chan struct{})}
	r.drained = append(r.drained, d)
	most := drainTime
	if !r.alone {
		most = drainStop // it may wait for what is not there
	}
	go func() {
		defer close(d.done)
		start := time.Now()
		d.out, d.err = r.stele("--addr", ask, "node", "drain", d.String(), "--timeout", most.String())
		d.took = time.Since(start)
	}()
	if !r.alone {
		return
	}
	<-d.done
	if d.err != nil {
		r.t.Errorf("drain %v, without another fault: %v: %s", d.node, d.err, tail(d.out, 5))
		r.diagnose()
		r.t.FailNow()
	}
}

// restartDrained stops the node in order and starts it again.
func (r *wholeRun) restartDrained(f fault) {
	r.t.Helper()
	i := slices.IndexFunc(r.drained, func(d *drained) bool { return !d.back })
	if i < 0 {
		return
	}
	d := r.drained[i]
	d.back = true
	if d.wanted && !d.paused { // by what came after
		within := faultStop
		if r.alone {
			within = drainStop
		}
		start := time.Now()
		err := d.stopWithin(within)
		r.t.Logf("          %v stopped after %v: %v", d.node, time.Since(start).Round(10*time.Millisecond), err)
		if err != nil && r.alone { // if not, it may have waited for what was not there
			r.t.Errorf("%v was drained, told to stop, and ended with %v", d.node, err)
		}
	}
	time.Sleep(f.rest)
	if !d.wanted {
		d.start()
	}
}

// undrain takes the wishes back, once all faults are over.
func (r *wholeRun) undrain() {
	r.t.Helper()
	for _, d := range r.drained {
		<-d.done // or it would drain it again
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

// refused tells of operations that failed while nothing but a drain and restart went on.
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
