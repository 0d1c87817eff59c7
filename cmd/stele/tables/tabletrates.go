package tables

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
)

// ratesSince is the period of the rates of tablets: the last whole minute and the present one.
const ratesSince = time.Minute

// addRates sets the rates of the tablets that are among the busiest, and of those that have none. Others, and all if the nodes do not answer within
// describeTimeout, stay unknown.
func (l *tabletList) addRates(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	hot, err := l.c.Tables().Hot(ctx, &client.HotTabletsRequest{Since: ratesSince, Most: api.HotTabletsMax})
	if err != nil || hot.Seconds() <= 0 {
		return
	}
	for i := range l.tablets {
		l.tablets[i].rate(hot)
	}
}

// rate sets the rates of a tablet if they are known.
func (t *placedTablet) rate(hot *client.HotTabletList) {
	at := slices.IndexFunc(hot.Tablets, func(h client.HotTablet) bool {
		return h.TableID == t.TableID && string(h.Start) == string(t.StartBytes) && string(h.End) == string(t.EndBytes)
	})
	var reads, writes float64
	switch {
	case at >= 0:
		reads, writes = float64(hot.Tablets[at].Reads)/hot.Seconds(), float64(hot.Tablets[at].Writes)/hot.Seconds()
	case !hot.HasAll(t.TableID):
		return
	}
	t.Reads, t.Writes = &reads, &writes
}

// rateText returns a rate for a grid: - if it is unknown, and one decimal below 10.
func rateText(r *float64) cli.Number {
	switch {
	case r == nil:
		return "-"
	case *r > 0 && *r < 10:
		return cli.Number(strconv.FormatFloat(*r, 'f', 1, 64))
	}
	return cli.Count(int64(*r + 0.5))
}
