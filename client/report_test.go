package client

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
)

// TestReportTimes: the quantiles of a report are at most an eighth above those of the times, and of its interval alone.
func TestReportTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(testseed.New(t), 1))
	c := &Client{locator: &locator{}, calls: caller{report: &reporter{}}}
	last := c.counted()
	for range 50 {
		var took []int64
		for range 1 + random.IntN(2000) {
			micros := random.Int64N(1 << random.IntN(34))
			took = append(took, micros)
			c.calls.report.note(&call{traceID: new([]byte)}, time.Duration(micros)*time.Microsecond, nil)
		}
		c.calls.report.note(&call{method: api.MethodCreateTable}, time.Hour, ErrClosed)
		c.calls.report.note(&call{method: api.MethodReportClient}, time.Hour, ErrClosed)
		now := c.counted()
		r := now.since(last)
		last = now
		slices.Sort(took)
		n := len(took)
		for name, q := range map[string][2]int64{"median": {r.P50US, took[(n+1)/2-1]}, "p99": {r.P99US, took[n-n/100-1]}} {
			if q[0] < q[1] || q[0] > q[1]+q[1]/8 {
				t.Errorf("of %d times, the %s is %d, want %d", n, name, q[0], q[1])
			}
		}
		if longest := c.calls.report.maxMicros.Swap(0); longest != took[n-1] || r.Calls != int64(n)+1 || r.Errors != 1 {
			t.Errorf("%+v, longest %d, of %d times up to %d", r, longest, n, took[n-1])
		}
	}
}

// TestReportConfig: reports are off unless they are requested, and their settings are checked.
func TestReportConfig(t *testing.T) {
	if c := newClient(t.Context(), Config{}.withDefaults(), []string{"127.0.0.1:1"}); c.calls.report != nil {
		t.Error("a client reports without a request for it")
	}
	for _, c := range []Config{{ReportEvery: -1}, {ReportEvery: time.Millisecond}, {ReportEvery: time.Hour}, {ReportName: string(make([]byte, 65))}, {ReportName: "\xff"}} {
		if err := c.withDefaults().Validate(); err == nil {
			t.Errorf("%v, %q is accepted", c.ReportEvery, c.ReportName)
		}
	}
	if err := (Config{ReportEvery: time.Second}).withDefaults().Validate(); err != nil {
		t.Error(err)
	}
}
