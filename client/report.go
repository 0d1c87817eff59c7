package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/steledb/stele/client/api"
)

// reporter counts what a client reports about itself: see Config.ReportEvery. A nil reporter counts nothing.
type reporter struct {
	calls, errors, retries atomic.Int64
	times                  timeCounts
	maxMicros              atomic.Int64
}

// timeCounts counts times by their size in µs: eight counters for each power of two, so that a bound is at most an eighth too large.
type timeCounts [8 * 40]atomic.Int64

// timePlace returns the counter of a time.
func timePlace(micros int64) int {
	n := uint64(max(micros, 0))
	if n < 8 {
		return int(n)
	}
	power := bits.Len64(n) - 4 // n>>power has four bits
	return min(8*(power+1)+int(n>>power)-8, len(timeCounts{})-1)
}

// timeBound returns the longest time of a counter, in µs.
func timeBound(place int) int64 {
	if place < 8 {
		return int64(place)
	}
	power := place/8 - 1
	return int64(place%8+9)<<power - 1
}

// note counts a call that has ended.
func (r *reporter) note(k *call, took time.Duration, err error) {
	if k.method == api.MethodReportClient {
		return
	}
	r.calls.Add(1)
	switch {
	case err == nil:
	case k.misrouted.relocate: // the caller makes it again elsewhere
		r.retries.Add(1)
	default:
		r.errors.Add(1)
	}
	if k.traceID == nil { // of administration, or one that waits for changes
		return
	}
	r.raise(took.Microseconds())
	r.times[timePlace(took.Microseconds())].Add(1)
}

// raise makes a time the longest one if it is.
func (r *reporter) raise(micros int64) {
	for old := r.maxMicros.Load(); micros > old && !r.maxMicros.CompareAndSwap(old, micros); old = r.maxMicros.Load() {
	}
}

// retried counts an attempt after the first one of a call.
func (r *reporter) retried() {
	if r != nil {
		r.retries.Add(1)
	}
}

// counted is what a client has counted since Open.
type counted struct {
	at                                    time.Time
	calls, errors, retries, hits, lookups int64
	times                                 [len(timeCounts{})]int64
}

// counted returns what was counted until now.
func (c *Client) counted() *counted {
	r, s := c.calls.report, &c.locator.stats
	n := &counted{at: time.Now(), errors: r.errors.Load(), retries: r.retries.Load(), hits: s.hits.Load(), lookups: s.lookups.Load()}
	n.calls = r.calls.Load() // after the errors, which are not more
	for i := range r.times {
		n.times[i] = r.times[i].Load()
	}
	return n
}

// since returns what was counted since an earlier moment.
func (n *counted) since(o *counted) api.ClientReport {
	most := func(v int64) int64 { return min(v, api.ClientCallsMax) }
	r := api.ClientReport{
		IntervalMS: min(max(n.at.Sub(o.at).Milliseconds(), 1), api.ClientIntervalMax.Milliseconds()), Calls: most(n.calls - o.calls),
		Retries: most(n.retries - o.retries), Hits: most(n.hits - o.hits), Lookups: most(n.lookups - o.lookups),
	}
	r.Errors = min(n.errors-o.errors, r.Calls)
	total, seen := int64(0), int64(0)
	for i := range n.times {
		total += n.times[i] - o.times[i]
	}
	for i := range n.times {
		before := seen
		seen += n.times[i] - o.times[i]
		if half := (total + 1) / 2; before < half && seen >= half {
			r.P50US = timeBound(i)
		}
		if most := total - total/100; before < most && seen >= most {
			r.P99US = timeBound(i)
		}
	}
	return r
}

// reportMax bounds the time in which a report must arrive.
const reportMax = 5 * time.Second

// sendReports reports until the client is closed. What a report that fails had is part of the next one.
func (c *Client) sendReports() {
	var id [api.ClientIDLen / 2]byte
	_, _ = rand.Read(id[:]) // never fails
	started, last := time.Now().UnixMilli(), c.counted()
	tick := time.NewTicker(c.cfg.ReportEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.life.ctx.Done():
			return
		case <-tick.C:
		}
		now, longest := c.counted(), c.calls.report.maxMicros.Swap(0)
		req := api.ReportClientRequest{Report: now.since(last)}
		r := &req.Report
		r.ID, r.Name, r.StartedMS = hex.EncodeToString(id[:]), c.cfg.ReportName, started
		if r.MaxUS = min(longest, (24 * time.Hour).Microseconds()); r.MaxUS == 0 {
			r.MaxUS = r.P99US
		}
		r.P50US, r.P99US = min(r.P50US, r.MaxUS), min(r.P99US, r.MaxUS)
		ctx, cancel := context.WithTimeout(c.life.ctx, min(reportMax, c.cfg.ReportEvery))
		err := c.calls.do(ctx, &call{method: api.MethodReportClient, safe: true, encode: req.Append})
		cancel()
		if err == nil {
			last = now
			continue
		}
		c.calls.report.raise(longest)
		c.cfg.Logger.Debug("client metrics not reported", "err", err)
	}
}

// checkReport checks the fields of Config for reports.
func (c Config) checkReport() error {
	switch {
	case c.ReportEvery < 0 || c.ReportEvery > 0 && c.ReportEvery < time.Second || c.ReportEvery > time.Minute:
		return fmt.Errorf("report every: %v, want 1s to 1m", c.ReportEvery)
	case len(c.ReportName) > api.ClientNameMax || !utf8.ValidString(c.ReportName):
		return fmt.Errorf("report name: %.80q, want at most %d bytes of UTF-8", c.ReportName, api.ClientNameMax)
	}
	return nil
}

// programName returns the name of the program, as ReportName.
func programName() string {
	name := strings.ToValidUTF8(filepath.Base(os.Args[0]), "")
	return strings.ToValidUTF8(name[:min(len(name), api.ClientNameMax)], "")
}
