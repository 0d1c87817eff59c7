package keyheat

import (
	"bytes"
	"sort"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/tablet"
)

// samplesMax is the number of samples of a node's rows.
const samplesMax = 256

// period is intervals of some minutes, from one minute since 1970 and below another.
type period struct{ from, to, interval int64 }

// periodOf returns the period of a request. Its intervals are the shortest that its layer has throughout.
func periodOf(r *api.KeyHeatRequest, now time.Time) period {
	until, since := now, r.Since
	if r.UntilMS > 0 && r.UntilMS < now.UnixMilli() {
		until = time.UnixMilli(r.UntilMS)
	}
	if since == 0 {
		since = time.Hour
	}
	from := until.Add(-since)
	p := period{interval: 60}
	switch ago := now.Sub(from); {
	case ago <= 4*time.Hour:
		p.interval = 1
	case ago <= 48*time.Hour:
		p.interval = 15
	}
	p.to = (minuteOf(until)/p.interval + 1) * p.interval
	p.from = minuteOf(from) / p.interval * p.interval
	return p
}

// columns returns the number of intervals.
func (p period) columns() int { return int((p.to - p.from) / p.interval) }

// layer returns the number of the layer with these intervals.
func (p period) layer() int {
	switch p.interval {
	case 1:
		return 0
	case 15:
		return 1
	}
	return 2
}

// append encodes the period as three values.
func (p period) append(e *wire.Encoder) {
	e.Int(p.from)
	e.Int(p.to)
	e.Int(p.interval)
}

// check checks the period of another node's request.
func (p period) check() error {
	valid := p.interval == 1 || p.interval == 15 || p.interval == 60
	if !valid || p.from < 0 || p.from%p.interval != 0 || p.to <= p.from || p.to-p.from > api.KeyHeatColumnsMax*p.interval {
		return rpc.Errorf(rpc.CodeBadRequest, "period from %d to %d by %d", p.from, p.to, p.interval)
	}
	return nil
}

// part is what a node has of a table in a period.
type part struct {
	node    string
	columns map[int64]*column
	samples []tablet.RowSample
}

// add adds what a column has of a table, and the starts of the node.
func (p *part) add(c *column, id uint64, of period) {
	if c.minute < of.from || c.minute >= of.to {
		return
	}
	at := c.minute - c.minute%of.interval
	only := &column{minute: at}
	for _, t := range c.tables {
		if t.table == id || t.table == 0 {
			only.tables = append(only.tables, t)
		}
	}
	if len(only.tables) == 0 {
		return
	}
	if p.columns[at] == nil {
		p.columns[at] = &column{minute: at}
	}
	p.columns[at].merge(only)
}

// append encodes the part: [node, columns, [[row, bytes]…]].
func (p *part) append(e *wire.Encoder, f form) {
	e.Array(3)
	e.Str(p.node)
	e.Array(len(p.columns))
	for _, c := range p.columns {
		c.append(e, f)
	}
	e.Array(len(p.samples))
	for _, s := range p.samples {
		e.Array(2)
		e.Bin(s.Row)
		e.Int(s.Bytes)
	}
}

func (p *part) decode(d *wire.Decoder) error {
	*p = part{columns: map[int64]*column{}}
	tuple(d, 3, func(int) int {
		p.node = d.Str()
		for range d.ArrayMax(api.KeyHeatColumnsMax) {
			c := &column{}
			if c.decode(d) != nil { // d keeps the error
				return 0
			}
			p.columns[c.minute] = c
		}
		for range d.Array() {
			tuple(d, 2, func(int) int {
				p.samples = append(p.samples, tablet.RowSample{Row: bytes.Clone(d.Bytes()), Bytes: d.Int()})
				return 0
			})
		}
		return 0
	})
	return d.Err()
}

// changeOf returns what happened to a table's tablets, which were before, so that l is served: split, merge, load, or nothing. Of a split only the
// lower tablets are named. Those before are in the order of their rows.
func changeOf(before []tablet.Loaded, l *tablet.Loaded) string {
	kind := "load"
	first := sort.Search(len(before), func(i int) bool { return len(before[i].End) == 0 || bytes.Compare(before[i].End, l.Start) > 0 })
	for i := first; i < len(before); i++ {
		o := &before[i]
		if bytes.Equal(o.Start, l.Start) && bytes.Equal(o.End, l.End) {
			return ""
		}
		if len(l.End) > 0 && bytes.Compare(l.End, o.Start) <= 0 {
			break
		}
		inside := bytes.Compare(l.Start, o.Start) >= 0 && (len(o.End) == 0 || len(l.End) > 0 && bytes.Compare(l.End, o.End) <= 0)
		switch {
		case !inside:
			kind = "merge"
		case bytes.Equal(l.End, o.End):
			return ""
		default:
			kind = "split"
		}
	}
	return kind
}
