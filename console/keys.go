package console

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

const (
	// heatRows is the number of ranges of a map, and heatNames that of the entries of each list.
	heatRows, heatNames = 64, 20
)

var heatPeriods = []string{"1h", "4h", "12h", "48h", "168h", "336h"}

// keysView is what the page of a table's keys shows.
type keysView struct {
	Table    string
	Form     keysForm
	Show     *health.HeatMeasure
	Periods  []string
	Measures []health.HeatMeasure
	Series   string // JSON for the script that draws the map: see heatSeries
	Hottest  []hotRange
	Hot      []api.HotRow
	Large    []api.LargeRow
	Events   []api.TabletEvent
	Silent   []string
}

// hotRange is one of the busiest ranges.
type hotRange struct {
	api.RangeHeat
	Common string // the prefix of all its rows
	Zoom   string // address of the page for that prefix; empty: it would be the same page
}

// heatSeries is what the script that draws the map gets. Rows are texts.
type heatSeries struct {
	Start    int64       `json:"start"` // in ms since 1970
	Interval int64       `json:"interval"`
	Columns  int         `json:"columns"`
	Starts   []string    `json:"starts"`
	Ends     []string    `json:"ends"`
	Values   []int64     `json:"values"`
	What     string      `json:"what"`
	Unit     string      `json:"unit"`
	Events   []heatEvent `json:"events"`
}

type heatEvent struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// keysPage shows which keys of a table are read and written.
func keysPage(ctx context.Context, q *query) (*content, error) {
	x := &keysView{Table: q.r.PathValue("table"), Form: keysFormOf(q.r.URL.Query()), Periods: heatPeriods, Measures: health.HeatMeasures}
	x.Show = &x.Measures[max(0, slices.IndexFunc(x.Measures, func(m health.HeatMeasure) bool { return m.Name == x.Form.Show }))]
	req, err := x.Form.request(time.Now())
	if err != nil {
		return nil, &pageError{http.StatusBadRequest, err.Error()}
	}
	req.Table, req.Rows = x.Table, heatRows
	k, err := q.Tables().KeyHeat(ctx, req)
	if err != nil {
		return nil, err
	}
	x.add(k)
	return &content{Title: "Keys of " + x.Table, Template: "keys.html", Section: "Tables", Data: x, Static: true}, nil
}

func (x *keysView) add(k *client.KeyHeat) {
	for _, h := range k.Ranges(heatNames, x.Show.Of) {
		r := hotRange{RangeHeat: h}
		common := commonPrefix(h.Start, h.End)
		if r.Common = text.Bytes(common); len(common) > 0 && r.Common != x.Form.Prefix {
			r.Zoom = x.Form.with("prefix", r.Common)
		}
		x.Hottest = append(x.Hottest, r)
	}
	x.Hot, x.Large, x.Silent = k.Hot[:min(len(k.Hot), heatNames)], k.Large[:min(len(k.Large), heatNames)], k.Silent
	values, _ := x.Show.Cells(k, k.Columns)
	s := heatSeries{
		Start: k.StartMS, Interval: k.IntervalMS, Columns: k.Columns, Values: values, What: x.Show.What, Unit: x.Show.Unit, Events: []heatEvent{},
	}
	for i := range k.Ends {
		s.Starts, s.Ends = append(s.Starts, text.Bytes(k.Starts[i])), append(s.Ends, text.Bytes(k.Ends[i]))
	}
	for _, e := range k.Events {
		s.Events = append(s.Events, heatEvent{e.AtMS, e.Kind + " on " + e.Node + " " + keyText(e.Row)})
	}
	b, _ := json.Marshal(&s) // never fails for these types
	x.Series = string(b)
	x.Events = slices.Clone(k.Events[max(len(k.Events)-heatNames, 0):])
	slices.Reverse(x.Events)
}

// commonPrefix returns the prefix that two rows share, without a part of a character at its end.
func commonPrefix(a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(b) && utf8.Valid(b) && !utf8.RuneStart(b[n]) {
		n--
	}
	return b[:n]
}
