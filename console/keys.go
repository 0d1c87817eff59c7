package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
)

const (
	// heatRows is the number of ranges of a map, and heatNames that of the entries of each list.
	heatRows, heatNames = 64, 20
)

var (
	heatPeriods  = []string{"1h", "4h", "12h", "48h", "168h", "336h"}
	heatMeasures = []string{"reads and writes", "reads", "writes", "bytes read", "bytes written"}
)

// keysView is what the page of a table's keys shows.
type keysView struct {
	Table, Prefix, Since, Show string
	Periods, Measures          []string
	Series                     string // JSON for the script that draws the map: see heatSeries
	Hottest                    []hotRange
	Hot                        []api.HotRow
	Large                      []api.LargeRow
	Events                     []api.TabletEvent
	Silent                     []string
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
	Bytes    bool        `json:"bytes"`
	Events   []heatEvent `json:"events"`
}

type heatEvent struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// keysPage shows which keys of a table are read and written.
func keysPage(ctx context.Context, q *query) (*content, error) {
	form := q.r.URL.Query()
	x := &keysView{Table: q.r.PathValue("table"), Prefix: form.Get("prefix"), Since: heatPeriods[0], Show: heatMeasures[0], Periods: heatPeriods, Measures: heatMeasures}
	if slices.Contains(heatPeriods, form.Get("since")) {
		x.Since = form.Get("since")
	}
	if slices.Contains(heatMeasures, form.Get("show")) {
		x.Show = form.Get("show")
	}
	prefix, err := text.Unescape(x.Prefix)
	if err != nil {
		return nil, &pageError{http.StatusBadRequest, "Prefix: " + err.Error()}
	}
	since, _ := time.ParseDuration(x.Since) // one of heatPeriods
	k, err := q.Tables().KeyHeat(ctx, &client.KeyHeatRequest{Table: x.Table, Since: since, Prefix: []byte(prefix), Rows: heatRows})
	if err != nil {
		return nil, err
	}
	x.add(k)
	return &content{Title: "Keys of " + x.Table, Template: "keys.html", Section: "Tables", Data: x, Static: true}, nil
}

func (x *keysView) add(k *client.KeyHeat) {
	for _, h := range k.Hottest(heatNames) {
		r := hotRange{RangeHeat: h}
		common := commonPrefix(h.Start, h.End)
		if r.Common = text.Bytes(common); len(common) > 0 && r.Common != x.Prefix {
			r.Zoom = "?" + url.Values{"prefix": {r.Common}, "since": {x.Since}, "show": {x.Show}}.Encode()
		}
		x.Hottest = append(x.Hottest, r)
	}
	x.Hot, x.Large, x.Silent = k.Hot[:min(len(k.Hot), heatNames)], k.Large[:min(len(k.Large), heatNames)], k.Silent
	s := heatSeries{Start: k.StartMS, Interval: k.IntervalMS, Columns: k.Columns, What: x.Show, Events: []heatEvent{}}
	for i := range k.Ends {
		s.Starts, s.Ends = append(s.Starts, keyText(k.Starts[i])), append(s.Ends, keyText(k.Ends[i]))
	}
	s.Values, s.Bytes = x.values(k)
	for _, e := range k.Events {
		s.Events = append(s.Events, heatEvent{e.AtMS, e.Kind + " on " + e.Node + " " + keyText(e.Row)})
	}
	b, _ := json.Marshal(&s) // never fails for these types
	x.Series = string(b)
	x.Events = slices.Clone(k.Events[max(len(k.Events)-heatNames, 0):])
	slices.Reverse(x.Events)
}

// values returns the values that are shown, and whether they are bytes.
func (x *keysView) values(k *client.KeyHeat) (values []int64, bytes bool) {
	switch slices.Index(heatMeasures, x.Show) {
	case 1:
		return k.Reads, false
	case 2:
		return k.Writes, false
	case 3:
		return k.ReadBytes, true
	case 4:
		return k.WriteBytes, true
	}
	values = slices.Clone(k.Reads)
	for i := range values {
		values[i] += k.Writes[i]
	}
	return values, false
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
