package report

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/steledb/stele/internal/bench"
)

// RunsMax is the maximum number of reports in a chart, limited by the number of colors.
const RunsMax = 4

// ErrNothing means that the reports have no results to draw.
var ErrNothing = errors.New("no results")

// Plot writes a chart of reports side by side, as SVG: the rate, latency and processor time of each
// workload. The others are compared with the first. Errors: ErrNothing, and one for too many
// reports.
func Plot(w io.Writer, reports ...*Report) error {
	if len(reports) > RunsMax {
		return fmt.Errorf("%d reports: a chart holds at most %d", len(reports), RunsMax)
	}
	p := newPlot(reports)
	if len(p.Panels) == 0 {
		return ErrNothing
	}
	return plotTemplate.Execute(w, p)
}

//go:embed plot.svg.tmpl
var plotText string

var plotTemplate = template.Must(template.New("plot").Parse(plotText))

// Dimensions in pixels. Text has a size of 12 pixels; its letters are assumed to be letterWidth
// wide.
const (
	plotWidth   = 960
	margin      = 24
	barHeight   = 14
	barGap      = 2
	groupGap    = 12
	panelGap    = 34
	headHeight  = 24 // of a panel: its title
	axisHeight  = 22
	legendLine  = 18
	letterWidth = 6.9
	figureWidth = 190 // for the text after the longest bar
)

// A plot is the data of the SVG template. Positions are of the upper left corner.
type plot struct {
	Width, Height int
	Margin        int
	Title         string
	Legend        []legend
	Panels        []panel
	Notes         []note
}

type legend struct {
	Y, TextY, TextX int
	Color           int
	Text            string
}

type note struct {
	Y    int
	Text string
}

// A panel is a bar chart of one unit.
type panel struct {
	TitleY int
	Title  string
	Ticks  []tick
	Top    int // start of the grid lines; Bottom is their end
	Bottom int
	AxisY  int
	Groups []group
}

type tick struct {
	X    int
	Text string
}

// A group is the bars of one label.
type group struct {
	Label  string
	LabelX int
	LabelY int
	Bars   []bar
}

// A bar is one figure. Faint is its lighter continuation, such as p99 after p50.
type bar struct {
	X, Y, Width, Height int
	FaintX, FaintWidth  int
	Color               int
	Text                string
	TextX, TextY        int
	Tip                 string
}

// A figure is the data of a bar: value, and more for its continuation. Percentages are of compared.
type figure struct {
	value, more float64
	compared    float64
	text        string
}

// A series is the figures of a report by label.
type series map[string]figure

// A chart is the definition of a panel.
type chart struct {
	title string
	per   string // the base of percentages, if there are several reports
	tick  func(float64) string
	of    func(v *Result, add func(kind string, f figure))
}

// charts are the panels from top to bottom.
var charts = []chart{
	{"Rows or operations per second (longer is better)", "", tickCount, func(v *Result, add func(string, figure)) {
		add("", figure{value: v.OpsPerS, compared: v.OpsPerS, text: grouped(v.OpsPerS) + "/s" + badPlain(v.Bad)})
	}},
	{"Latency of a call: p50, and faint up to p99 (shorter is better)", "percent are of p50", latencyTick, func(v *Result, add func(string, figure)) {
		one := func(kind string, l Latency) {
			add(kind, figure{value: l.P50, more: l.P99 - l.P50, compared: l.P50, text: latencies(l)})
		}
		switch {
		case v.Workload == bench.Scan: // of a thousand rows, so not comparable
		case len(v.Kinds) > 1:
			for _, k := range v.Kinds {
				one(k.Name, k.Latency)
			}
		default:
			one("", v.Latency)
		}
	}},
	{"Processor time of a row or operation: nodes, and faint the client (shorter is better)", "percent are of both", latencyTick, func(v *Result, add func(string, figure)) {
		if v.Nodes != nil {
			add("", figure{value: v.Nodes.CPU, more: v.Client.CPU, compared: v.Nodes.CPU + v.Client.CPU, text: fmt.Sprintf("%.1f + %.1f µs", v.Nodes.CPU, v.Client.CPU)})
		}
	}},
}

func badPlain(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d BAD", n)
}

func newPlot(reports []*Report) *plot {
	p := &plot{Width: plotWidth, Margin: margin, Title: "stele bench"}
	y := margin + 20
	for i, r := range reports {
		p.Legend = append(p.Legend, legend{Y: y + 4, TextY: y + 14, TextX: margin + 20, Color: i, Text: r.legend()})
		y += legendLine
	}
	y += panelGap / 2
	for i := range charts {
		y = p.addPanel(&charts[i], reports, y)
	}
	for _, text := range noteTexts(reports) {
		p.Notes = append(p.Notes, note{y, text})
		y += legendLine
	}
	p.Height = y + margin/2
	return p
}

// legend describes a report in one line.
func (r *Report) legend() string {
	parts := []string{r.Name()}
	if n := r.Cluster.Nodes; n > 1 {
		parts = append(parts, fmt.Sprintf("%d nodes", n))
	}
	if len(r.Runs) > 0 {
		var same []setting
		for _, s := range runSettings {
			if !slices.ContainsFunc(r.varying(), func(v setting) bool { return v.name == s.name }) {
				same = append(same, s)
			}
		}
		if text := r.Runs[0].label(same); text != "" {
			parts = append(parts, text)
		}
	}
	if r.Settings.Batch > 1 {
		parts = append(parts, fmt.Sprintf("%d rows a call", r.Settings.Batch))
	}
	return strings.Join(parts, " · ")
}

// noteTexts describes the machines of the reports, without duplicates.
func noteTexts(reports []*Report) (texts []string) {
	for _, r := range reports {
		m := &r.Machine
		text := fmt.Sprintf("%d processors", m.CPUs)
		if m.CPU != "" {
			text += " (" + m.CPU + ")"
		}
		if m.MemoryBytes > 0 {
			text += fmt.Sprintf(", %.0f GiB", float64(m.MemoryBytes)/(1<<30))
		}
		text = strings.TrimSpace(fmt.Sprintf("%s, %s %s", text, m.OS, m.Kernel))
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

// labelled collects the figures of reports and their labels in the order of workloads. Labels
// include the settings that vary in any of the reports.
func labelled(c *chart, reports []*Report) (labels []string, all []series) {
	var vary []setting
	for _, s := range runSettings {
		if slices.ContainsFunc(reports, func(r *Report) bool {
			return slices.ContainsFunc(r.varying(), func(v setting) bool { return v.name == s.name })
		}) {
			vary = append(vary, s)
		}
	}
	for range reports {
		all = append(all, series{})
	}
	for _, w := range bench.Workloads() {
		for at, r := range reports {
			for i := range r.Runs {
				run := &r.Runs[i]
				for j := range run.Results {
					if run.Results[j].Workload != w {
						continue
					}
					c.of(&run.Results[j], func(kind string, f figure) {
						label := strings.TrimSuffix(strings.TrimSpace(string(w)+" "+kind)+", "+run.label(vary), ", ")
						if !slices.Contains(labels, label) {
							labels = append(labels, label)
						}
						all[at][label] = f
					})
				}
			}
		}
	}
	return labels, all
}

// addPanel draws a chart at y and returns the y of the next one.
func (p *plot) addPanel(c *chart, reports []*Report, y int) int {
	labels, all := labelled(c, reports)
	if len(labels) == 0 {
		return y
	}
	most, widest := 0.0, 0
	for _, label := range labels {
		widest = max(widest, len([]rune(label)))
		for _, s := range all {
			most = max(most, s[label].value+s[label].more)
		}
	}
	left := margin + int(float64(widest)*letterWidth) + 10
	barSpace := float64(plotWidth - margin - figureWidth - left)
	step := tickStep(most)
	scale := barSpace / math.Max(most, step)
	g := panel{Title: c.title, TitleY: y + 14, Top: y + headHeight}
	if len(reports) > 1 && c.per != "" {
		g.Title += "; " + c.per
	}
	y += headHeight + groupGap/2
	for _, label := range labels {
		var one group
		one, y = drawGroup(label, all, left, y, scale)
		g.Groups = append(g.Groups, one)
	}
	g.Bottom = y - groupGap/2
	g.AxisY = g.Bottom + 14
	for v := 0.0; v <= math.Max(most, step)*1.0001; v += step {
		g.Ticks = append(g.Ticks, tick{left + int(v*scale), c.tick(v)})
	}
	p.Panels = append(p.Panels, g)
	return g.Bottom + axisHeight + panelGap
}

// drawGroup draws the bars of a label at y and returns the y of the next group.
func drawGroup(label string, all []series, left, y int, scale float64) (group, int) {
	g := group{Label: label, LabelX: left - 8}
	top := y
	for i, s := range all {
		f, ok := s[label]
		if !ok {
			continue
		}
		b := bar{X: left, Y: y, Height: barHeight, Color: i, Text: f.text, TextY: y + 11}
		b.Width = max(1, int(f.value*scale))
		b.FaintX, b.FaintWidth = left+b.Width, int(f.more*scale)
		b.TextX = b.FaintX + b.FaintWidth + 6
		if first, ok := all[0][label]; ok && i > 0 && first.compared > 0 {
			b.Text += fmt.Sprintf(" (%+.0f%%)", 100*(f.compared/first.compared-1))
		}
		b.Tip = label + ": " + b.Text
		g.Bars = append(g.Bars, b)
		y += barHeight + barGap
	}
	g.LabelY = (top+y-barGap)/2 + 4
	return g, y + groupGap
}

// tickStep returns a round step that divides most into about four.
func tickStep(most float64) float64 {
	if most <= 0 {
		return 1
	}
	step := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, times := range []float64{1, 2, 5, 10} {
		if most/(step*times) <= 5 {
			return step * times
		}
	}
	return step * 10
}

func tickCount(v float64) string {
	if v >= 1 && v == math.Trunc(v) {
		return short(int64(v))
	}
	return fmt.Sprint(math.Round(v*1000) / 1000)
}

func latencyTick(us float64) string {
	unit, of := "µs", 1.0
	if us >= 1e6 {
		unit, of = "s", 1e6
	} else if us >= 1e3 {
		unit, of = "ms", 1e3
	}
	return fmt.Sprintf("%v %s", math.Round(us/of*1000)/1000, unit)
}
