package cluster

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

// drainWorld is a simulated drain; seen returns its state by the time since start.
type drainWorld struct {
	start time.Time
	seen  func(after time.Duration) drainState
	err   error
}

func (w *drainWorld) look() (*drainState, error) {
	x := w.seen(time.Since(w.start))
	x.node = &client.NodeInfo{ID: "n7f", Name: "n3"}
	if x.tablets > 0 {
		x.holds = "it still serves " + cli.Plural(x.tablets, "tablet")
	}
	return &x, w.err
}

// awaitDrain waits until the node is drained, or gives up and reports what the node still holds.
func TestDrainIsAwaited(t *testing.T) {
	moving := func(after time.Duration) drainState {
		return drainState{tablets: max(0, 120-int64(after.Seconds())), targets: 2}
	}
	stalled := func(time.Duration) drainState { return drainState{tablets: 12, targets: 1} }
	noTarget := func(after time.Duration) drainState {
		x := drainState{tablets: 12, targets: 1}
		if after > time.Minute {
			x.targets = 0
		}
		return x
	}
	restarts := func(after time.Duration) drainState {
		x := moving(after)
		if after%(40*time.Second) > 20*time.Second {
			x.targets = 0
		}
		return x
	}
	continues := `the drain continues: wait for it by "stele node drain n3", or cancel it by "stele node undrain n3"`
	for name, test := range map[string]struct {
		seen    func(time.Duration) drainState
		timeout time.Duration
		took    time.Duration
		code    int
		err     string
		hint    string
		json    string
	}{
		"all tablets move": {seen: moving, took: 2 * time.Minute, json: `"done":true,"voter":false,"tablets":0`},
		"others restart":   {seen: restarts, took: 2 * time.Minute, json: `"done":true,"voter":false,"tablets":0`},
		"in its time":      {seen: moving, timeout: 3 * time.Minute, took: 2 * time.Minute, json: `"done":true`},
		"not in its time": {seen: moving, timeout: time.Minute + 200*time.Millisecond, took: time.Minute, code: cli.ExitTimeout,
			err:  "node n3 is not drained after 1m: it still serves 60 tablets",
			hint: `"stele status" lists tablets that cannot be served; if there is none, the moves only take longer; ` + continues, json: `"done":false,"voter":false,"tablets":60`},
		"nothing moves": {seen: stalled, took: 5 * time.Minute, code: cli.ExitTimeout,
			err:  "node n3 is not drained after 5m: it still serves 12 tablets, and there has been no progress for 5m",
			hint: `"stele status" lists tablets that cannot be served; if there is none, the moves only take longer; ` + continues, json: `"done":false,"voter":false,"tablets":12`},
		"nothing moves, and it has time": {seen: stalled, timeout: time.Hour, took: time.Hour, code: cli.ExitTimeout,
			err:  "node n3 is not drained after 1h 0m: it still serves 12 tablets",
			hint: `"stele status" lists tablets that cannot be served; if there is none, the moves only take longer; ` + continues, json: `"done":false`},
		"no other node": {seen: noTarget, timeout: time.Hour, took: 90 * time.Second, code: cli.ExitError,
			err:  "node n3 is not drained after 1m 30s: it still serves 12 tablets, and no other node can take over",
			hint: "start another node, or undrain one; " + continues, json: `"done":false,"voter":false,"tablets":12`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &drainWorld{start: time.Now(), seen: test.seen}
				ctx, cancel := context.WithCancel(t.Context())
				if test.timeout > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), test.timeout)
				}
				defer cancel()
				var out, errs bytes.Buffer
				a := cli.New(strings.NewReader(""), &out, &errs)
				a.JSON = true
				err := awaitDrain(ctx, a, &client.NodeInfo{ID: "n7f", Name: "n3"}, w.look)
				took := time.Since(w.start)
				if took < test.took-time.Second || took > test.took+time.Second {
					t.Errorf("it took %v, want %v", took, test.took)
				}
				if test.err == "" {
					if err != nil {
						t.Error(err)
					}
				} else if f := cli.FaultOf(err); f.Code != test.code || err.Error() != test.err || f.Hint != test.hint {
					t.Errorf("got code %d, %q, %q\nwant %d, %q, %q", f.Code, err, f.Hint, test.code, test.err, test.hint)
				}
				if err := a.Out.Flush(); err != nil {
					t.Error(err)
				}
				if !strings.Contains(out.String(), test.json) || strings.Count(out.String(), "\n") != 1 {
					t.Errorf("it printed %q, and not %q", &out, test.json)
				}
				lines := strings.Count(errs.String(), "draining n3: it still serves ")
				if most := int(took/cli.ProgressLines) + 1; lines == 0 || lines > most {
					t.Errorf("%d lines of progress in %v", lines, took)
				}
			})
		})
	}
}

// The errors of an interrupt and of a failed poll have the hint that the drain continues.
func TestDrainContinuesHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &drainWorld{start: time.Now(), seen: func(time.Duration) drainState { return drainState{tablets: 1, targets: 1} }}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		var out, errs bytes.Buffer
		a := cli.New(strings.NewReader(""), &out, &errs)
		err := awaitDrain(ctx, a, &client.NodeInfo{ID: "n7f", Name: "n3"}, w.look)
		if f := cli.FaultOf(err); !errors.Is(err, context.Canceled) || f.Code != cli.ExitError || !strings.HasPrefix(f.Hint, "the drain continues") {
			t.Errorf("%v: %+v", err, f)
		}
		w.err = client.ErrUnavailable
		err = awaitDrain(t.Context(), a, &client.NodeInfo{ID: "n7f", Name: "n3"}, w.look)
		if f := cli.FaultOf(err); !errors.Is(err, client.ErrUnavailable) || f.Code != cli.ExitUnhealthy || !strings.HasPrefix(f.Hint, "the drain continues") {
			t.Errorf("%v: %+v", err, f)
		}
	})
}
