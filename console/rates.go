package console

import (
	"context"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
)

// rates are the operations a second on rows of the busiest tablets in the last minutes. A nil *rates is unknown.
type rates struct {
	list    *client.HotTabletList
	seconds float64
	tablets map[tabletKey]*client.HotTablet
	tables  map[string]*rate
}

// tabletKey identifies a tablet by its table's name and its last row.
type tabletKey struct{ table, end string }

// rate is what a table or a tablet does.
type rate struct {
	reads, writes int64
	known         bool // otherwise there is more
}

// ratesSince is the length of the period, which begins with a minute: the last whole one and the present one.
const ratesSince = time.Minute

// ratesOf returns the rates of the tables that the user may read; nil if there is no answer.
func ratesOf(ctx context.Context, c *client.Client) *rates {
	l, err := c.Tables().Hot(ctx, &client.HotTabletsRequest{Since: ratesSince, Most: api.HotTabletsMax})
	if err != nil || l.EndMS <= l.StartMS {
		return nil
	}
	return newRates(l)
}

func newRates(l *client.HotTabletList) *rates {
	x := &rates{list: l, seconds: l.Seconds(), tablets: map[tabletKey]*client.HotTablet{}, tables: map[string]*rate{}}
	for i := range l.Tablets {
		t := &l.Tablets[i]
		x.tablets[tabletKey{t.Table, string(t.End)}] = t
		sum := x.tables[t.Table]
		if sum == nil {
			sum = &rate{known: l.HasAll(t.TableID)}
			x.tables[t.Table] = sum
		}
		sum.reads, sum.writes = sum.reads+t.Reads, sum.writes+t.Writes
	}
	return x
}

// rateTexts are rates for a page.
type rateTexts struct{ Reads, Writes string }

// ofTable returns the rates of the table with a name and an id.
func (x *rates) ofTable(name string, id uint64) rateTexts {
	switch {
	case x == nil:
		return rateTexts{"?", "?"}
	case x.tables[name] != nil:
		return x.texts(*x.tables[name])
	}
	return x.texts(rate{known: x.list.HasAll(id)})
}

// ofTablet returns the rates of a tablet of the table with a name and an id.
func (x *rates) ofTablet(table string, id uint64, end []byte) rateTexts {
	if x == nil {
		return rateTexts{"?", "?"}
	}
	if t := x.tablets[tabletKey{table, string(end)}]; t != nil {
		return x.texts(rate{t.Reads, t.Writes, true})
	}
	return x.texts(rate{known: x.list.HasAll(id)})
}

// texts returns what a page shows: a number that is not known exactly is less than the truth, or nothing.
func (x *rates) texts(r rate) rateTexts {
	show := func(n int64) string {
		t := text.Count(int64(float64(n)/x.seconds + 0.5))
		switch {
		case r.known:
			return t
		case n == 0:
			return "–"
		}
		return "≥ " + t
	}
	return rateTexts{show(r.reads), show(r.writes)}
}

// hotRow is a busy tablet of a node.
type hotRow struct {
	*client.HotTablet
	Rates rateTexts
}

// hotRowsMax is the number of busy tablets of a node's page.
const hotRowsMax = 10

// onNode returns the busiest tablets that a node serves.
func (x *rates) onNode(name string) (rows []hotRow) {
	if x == nil {
		return nil
	}
	for i := range x.list.Tablets {
		t := &x.list.Tablets[i]
		if t.Node == name && len(rows) < hotRowsMax {
			rows = append(rows, hotRow{t, x.texts(rate{t.Reads, t.Writes, true})})
		}
	}
	return rows
}
