package console

import (
	"context"
	"errors"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

// overview is what the first page shows.
type overview struct {
	State, Sentence string
	Problems        []string
	Hidden          []string // what the user may not see
	Hint            string   // what to do about tablets that are not served
	Alive, Nodes    int
	Tables          string
	Tablets         string
	Unserved        int64
	Under, LogUnder string
	Disk            bar
	Forecast        string // when the disks are full
	DiskKnown       bool
	Table           nodeTable
	Charts          []chart
	Past            string   // the time that the charts cover
	Gaps            []string // parts of it that they lack
}

// unservedHint is what to do about tablets that are not served.
const unservedHint = "Start nodes that are down. Find lost or corrupt files by “stele blob fsck”. The master's log names the node that failed to load a tablet, and that node's log the cause."

// overviewPage shows the sentence of stele status, what is wrong, and the sums of the nodes.
func overviewPage(ctx context.Context, q *query) (*content, error) {
	s, err := q.Status(ctx)
	if err != nil {
		return nil, err
	}
	whole := health.Of(ctx, q.Client)
	nodes, err := q.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	x := &overview{Tablets: orUnknown(whole.Tablets), Under: orUnknown(whole.Under), LogUnder: moreThanNone(whole.LogUnder), Unserved: whole.NotServed(), Nodes: len(nodes), Tables: "?"}
	x.State, x.Sentence = health.State(s, whole)
	x.Problems, x.Hidden = whole.Problems(), whole.Hidden
	if x.Unserved > 0 {
		x.Hint = unservedHint
	}
	for i := range nodes {
		if nodes[i].State == api.NodeAlive {
			x.Alive++
		}
	}
	if s := whole.Space; s != nil {
		x.Disk, x.DiskKnown, x.Forecast = usedBar(s.Total-s.Free, s.Total), true, s.Forecast()
	}
	if schemas, err := q.Tables().List(ctx); err == nil && len(whole.Hidden) == 0 {
		n := int64(len(schemas))
		x.Tables = orUnknown(&n)
	} else if err != nil && !errors.Is(err, client.ErrPermission) {
		x.Problems = append(x.Problems, "unknown: list of tables: "+err.Error())
	}
	activity := activityOf(ctx, q.Client, nodes)
	x.Table = nodeTableOf(whole, nodes, activity)
	sum := sumOf(activity)
	x.Charts, x.Past = chartsOf(sum), text.Uptime(past(sum))
	x.Gaps = gapsOf(nodes, activity)
	return &content{Title: "Overview", Template: "overview.html", Section: "Overview", Data: x}, nil
}
