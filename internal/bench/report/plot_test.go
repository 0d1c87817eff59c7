package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A drawn is an element of a chart.
type drawn struct {
	name, class, text   string
	x, y, width, height float64
}

// draw plots reports and returns the elements of the chart, which must be well-formed XML.
func draw(t *testing.T, reports ...*Report) (all []drawn, text string) {
	t.Helper()
	var b bytes.Buffer
	if err := Plot(&b, reports...); err != nil {
		t.Fatal(err)
	}
	text = b.String()
	d := xml.NewDecoder(&b)
	for {
		token, err := d.Token()
		if err == io.EOF {
			return all, text
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := drawn{name: token.Name.Local}
			for _, a := range token.Attr {
				v, _ := strconv.ParseFloat(a.Value, 64)
				switch a.Name.Local {
				case "class":
					e.class = a.Value
				case "x":
					e.x = v
				case "y":
					e.y = v
				case "width":
					e.width = v
				case "height":
					e.height = v
				}
			}
			all = append(all, e)
		case xml.CharData:
			if len(all) > 0 {
				all[len(all)-1].text += strings.TrimSpace(string(token))
			}
		}
	}
}

func texts(all []drawn) (found []string) {
	for _, e := range all {
		if e.name == "text" {
			found = append(found, e.text)
		}
	}
	return found
}

// TestPlot: bars have the right lengths and labels, lie within the chart and do not overlap; runs
// are distinguished and compared.
func TestPlot(t *testing.T) {
	before, after := example(), example()
	before.Runs, after.Runs = before.Runs[:1], after.Runs[1:] // the second takes twice as long
	after.Program.Version = "v1.3"
	all, _ := draw(t, before, after)
	width, height := all[0].width, all[0].height
	var bars []drawn
	for _, e := range all[2:] { // except the chart and its background
		if e.name == "rect" && (e.x < 0 || e.y < 0 || e.x+e.width > width || e.y+e.height > height) {
			t.Errorf("outside of the picture: %+v", e)
		}
		if e.name == "rect" && e.height == barHeight {
			bars = append(bars, e)
		}
	}
	for i, b := range bars {
		for _, c := range bars[:i] {
			if b.x < c.x+c.width && c.x < b.x+b.width && b.y < c.y+c.height && c.y < b.y+b.height {
				t.Errorf("%+v lies on %+v", b, c)
			}
		}
	}
	// Of three workloads, two reports.
	for i := 0; i < 6; i += 2 {
		if bars[i].class != "c0" || bars[i+1].class != "c1" || math.Abs(bars[i].width/bars[i+1].width-2) > 0.02 {
			t.Errorf("operations a second of workload %d: %+v, %+v", i/2, bars[i], bars[i+1])
		}
	}
	found := texts(all)
	for _, want := range []string{
		"v1.2.3 2026-11-21 15:00 · 200k rows, 1 tablet, 64 clients", "v1.3 2026-11-21 15:00 · 1M rows, 1 tablet, 64 clients",
		"random-read", "scan", "ycsb-a", "ycsb-a read", "ycsb-a update", "100,000/s", "50,000/s (-50%)", "100,000/s, 1 BAD",
		"500 µs / 2.00 ms", "1.00 ms / 4.00 ms (+100%)", "20.0 + 20.0 µs", "40.0 + 40.0 µs (+100%)",
		"2 processors (A Processor), 8 GiB, linux 6.1",
	} {
		if !slices.Contains(found, want) {
			t.Errorf("no %q among %q", want, found)
		}
	}
}

// TestPlotOfSeveralRuns: labels include the settings that vary between the runs of a report.
func TestPlotOfSeveralRuns(t *testing.T) {
	all, text := draw(t, example())
	for _, want := range []string{"random-read, 200k rows", "random-read, 1M rows", "ycsb-a update, 1M rows", "v1.2.3 2026-11-21 15:00 · 1 tablet, 64 clients"} {
		if !slices.Contains(texts(all), want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(text, "%)") {
		t.Error("one report is compared")
	}
}

// TestPlotEscapes: text of a report is escaped.
func TestPlotEscapes(t *testing.T) {
	r := example()
	r.Program.Version, r.Machine.CPU = `</text><script>x</script>`, `"&<![CDATA[`
	all, text := draw(t, r)
	if strings.Contains(text, "<script") || !slices.Contains(texts(all), `2 processors ("&<![CDATA[), 8 GiB, linux 6.1`) {
		t.Errorf("texts %q", texts(all))
	}
}

func TestPlotRefuses(t *testing.T) {
	if err := Plot(io.Discard, &Report{}); !errors.Is(err, ErrNothing) {
		t.Errorf("nothing: %v", err)
	}
	if err := Plot(io.Discard, make([]*Report, RunsMax+1)...); err == nil {
		t.Error("too many reports were accepted")
	}
}

// TestPlotWithoutFigures: results of zero can be drawn.
func TestPlotWithoutFigures(t *testing.T) {
	draw(t, &Report{Runs: []Run{{Results: []Result{{Workload: "scan"}, {Workload: "ycsb-c"}}}}})
}

func TestTickStep(t *testing.T) {
	for _, most := range []float64{0, 0.003, 1, 3, 4.1, 99, 100, 101, 617_226, 1e9} {
		step := tickStep(most)
		if n := most / step; most > 0 && (n < 1.9 || n > 5) {
			t.Errorf("up to %v in steps of %v", most, step)
		}
	}
}
