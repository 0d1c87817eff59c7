package console

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

// chart is a chart: its series for the script that draws it, and the last values for pages without scripts.
type chart struct {
	Title, Unit string
	Series      string // JSON: {"unit", "times", "lines": [{"name", "colour", "values"}]}
	Lines       []chartLine
}

// chartLine is one line of a chart. A value of -1 is none.
type chartLine struct {
	Name   string
	Colour string // a variable of the style sheet
	Dash   []int
	values []int64
	scale  float64 // of a value to the chart's unit
	Last   string
}

// activityOf returns the activity of nodes by id. Those that do not answer are missing.
func activityOf(ctx context.Context, c *client.Client, nodes []client.NodeInfo) map[string]*client.Activity {
	var mu sync.Mutex
	all := map[string]*client.Activity{}
	_ = eachNode(nodes, func(n *client.NodeInfo) error {
		a, err := c.Nodes().Activity(ctx, n.RPC)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			all[n.ID] = a
		}
		return err
	})
	return all
}

// sumOf adds up the activity of nodes. Their intervals end at different times, less than one interval apart: they are added by their place from the
// end. Times are those of the slowest node.
func sumOf(all map[string]*client.Activity) *client.Activity {
	sum := &client.Activity{}
	for _, a := range all {
		sum.IntervalMS, sum.EndMS = a.IntervalMS, max(sum.EndMS, a.EndMS)
		to, from := sum.Series(), a.Series()
		for i := range to {
			slowest := to[i] == &sum.ReadMeanUS || to[i] == &sum.ReadP99US || to[i] == &sum.WriteMeanUS || to[i] == &sum.WriteP99US
			*to[i] = joined(*to[i], *from[i], slowest)
		}
	}
	return sum
}

// gapsOf returns a line for each node whose part of the sums is missing: it does not answer, or its history begins later than that of others,
// since it keeps it in memory.
func gapsOf(nodes []client.NodeInfo, all map[string]*client.Activity) (lines []string) {
	longest := time.Duration(0)
	for _, a := range all {
		longest = max(longest, past(a))
	}
	for i := range nodes {
		n := &nodes[i]
		a := all[n.ID]
		switch {
		case a == nil && n.State == api.NodeLeft:
		case a == nil:
			lines = append(lines, "without node "+health.NameOf(n)+", which does not answer")
		case longest-past(a) >= 2*time.Duration(a.IntervalMS)*time.Millisecond:
			lines = append(lines, "without node "+health.NameOf(n)+" until "+text.Uptime(past(a))+" ago, when it started: its requests of before are lost")
		}
	}
	slices.Sort(lines)
	return lines
}

// joined adds b to a by the place from the end, or takes the larger value.
func joined(a, b []int64, larger bool) []int64 {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := append([]int64(nil), a...)
	for i, v := range b {
		at := len(out) - len(b) + i
		if larger {
			out[at] = max(out[at], v)
		} else {
			out[at] += v
		}
	}
	return out
}

// lately are the figures of a node's last interval.
type lately struct{ Reads, Writes, ReadP99, WriteP99 string }

// latelyOf returns the figures of an activity; ? if it is nil, and – for what there was not.
func latelyOf(a *client.Activity) lately {
	if a == nil || len(a.Reads) == 0 {
		return lately{"?", "?", "?", "?"}
	}
	last := len(a.Reads) - 1
	rate := func(n int64) string { return text.Count((1000*n + a.IntervalMS/2) / a.IntervalMS) }
	ms := func(us int64) string {
		if us < 0 {
			return "–"
		}
		return text.Millis(float64(us) / 1000)
	}
	return lately{rate(a.Reads[last] + a.Scans[last]), rate(a.Writes[last]), ms(a.ReadP99US[last]), ms(a.WriteP99US[last])}
}

// chartsOf returns the charts of an activity; none before the first interval has ended.
func chartsOf(a *client.Activity) []chart {
	if len(a.Reads) == 0 {
		return nil
	}
	perSecond := 1000 / float64(a.IntervalMS)
	const ms = 1.0 / 1000
	charts := []chart{
		{Title: "Requests a second", Unit: "count", Lines: []chartLine{
			{Name: "reads", Colour: "--line-1", values: a.Reads, scale: perSecond}, {Name: "batches of scans", Colour: "--line-2", values: a.Scans, scale: perSecond},
			{Name: "writes", Colour: "--line-3", values: a.Writes, scale: perSecond}, {Name: "errors", Colour: "--bad", values: a.Errors, scale: perSecond}}},
		{Title: "Time to the answer", Unit: "ms", Lines: []chartLine{
			{Name: "reads, 99%", Colour: "--line-1", values: a.ReadP99US, scale: ms}, {Name: "reads, mean", Colour: "--line-1", Dash: []int{4, 3}, values: a.ReadMeanUS, scale: ms},
			{Name: "writes, 99%", Colour: "--line-3", values: a.WriteP99US, scale: ms}, {Name: "writes, mean", Colour: "--line-3", Dash: []int{4, 3}, values: a.WriteMeanUS, scale: ms}}},
		{Title: "Bytes a second", Unit: "bytes", Lines: []chartLine{
			{Name: "received", Colour: "--line-3", values: a.BytesIn, scale: perSecond}, {Name: "sent", Colour: "--line-1", values: a.BytesOut, scale: perSecond}}},
	}
	for i := range charts {
		charts[i].encode(a)
	}
	return charts
}

// encode sets what the script and the table get.
func (c *chart) encode(a *client.Activity) {
	type line struct {
		Name   string     `json:"name"`
		Colour string     `json:"colour"`
		Dash   []int      `json:"dash,omitempty"`
		Values []*float64 `json:"values"` // null for none
	}
	series := struct {
		Unit  string  `json:"unit"`
		Times []int64 `json:"times"`
		Lines []line  `json:"lines"`
	}{Unit: c.Unit}
	for i := range a.Reads {
		series.Times = append(series.Times, (a.EndMS-int64(len(a.Reads)-1-i)*a.IntervalMS)/1000)
	}
	for i := range c.Lines {
		l := &c.Lines[i]
		x := line{Name: l.Name, Colour: l.Colour, Dash: l.Dash}
		l.Last = "–"
		for _, v := range l.values {
			var scaled *float64
			if v >= 0 {
				scaled = new(float64)
				*scaled = rounded(float64(v) * l.scale)
			}
			x.Values = append(x.Values, scaled)
		}
		if last := x.Values[len(x.Values)-1]; last != nil {
			l.Last = inUnit(*last, c.Unit)
		}
		series.Lines = append(series.Lines, x)
	}
	b, _ := json.Marshal(series) // never fails for these types
	c.Series = string(b)
}

// past is the time that an activity covers.
func past(a *client.Activity) time.Duration {
	return time.Duration(len(a.Reads)) * time.Duration(a.IntervalMS) * time.Millisecond
}
