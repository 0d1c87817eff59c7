package cluster

import (
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

// unservedShown is the number of unserved tablets that a status lists. --json lists up to 100.
const unservedShown = 5

// unservedHint is the hint for tablets that are not served.
const unservedHint = `start nodes that are down ("stele node list"); find lost or corrupt files by "stele blob fsck"; for a damaged row of METADATA see docs/operating.md; ` +
	`the master's log names the node that failed to load a tablet, and that node's log the cause`

// unservedJSON is the --json form of a tablet that is not served. Unlike in client.UnservedTablet, the
// time is in seconds, and bounds are text and base64.
type unservedJSON struct {
	Table string `json:"table"`
	cli.BoundsJSON
	NodeID string  `json:"node_id"` // the node in METADATA; empty for none
	Server string  `json:"server"`
	SinceS float64 `json:"since_s"`
	Tries  int64   `json:"tries"`
	Error  string  `json:"error"`
}

// addUnserved adds the master's report on unserved tablets.
func (x *clusterStatus) addUnserved(u *client.UnservedTablets) {
	x.Unserved, x.UnservedTablets = &u.Total, []unservedJSON{}
	for _, t := range u.Tablets {
		x.UnservedTablets = append(x.UnservedTablets, unservedJSON{
			Table: t.Table, BoundsJSON: cli.BoundsOf(t.Start, t.End), NodeID: t.Node, Server: t.Server, SinceS: t.Since.Seconds(), Tries: t.Tries, Error: t.Error,
		})
	}
}

// unserved returns the number of unserved tablets; 0 if it is unknown.
func (x *clusterStatus) unserved() int64 {
	if x.Unserved == nil {
		return 0
	}
	return *x.Unserved
}

// unservedLines returns a line for each of the first unserved tablets, with the cause, and one with
// the number of others.
func (x *clusterStatus) unservedLines() (all []string) {
	for i := range x.UnservedTablets[:min(len(x.UnservedTablets), unservedShown)] {
		t := &x.UnservedTablets[i]
		line := fmt.Sprintf("not served: table %s, rows from %s to %s, for %v; ", cli.OrElse(t.Table, "(unknown)"),
			rowText(t.StartBytes, "(first)"), rowText(t.EndBytes, "(last)"), time.Duration(t.SinceS*float64(time.Second)).Round(time.Second))
		if t.Server == "" {
			line += "not assigned in METADATA"
		} else {
			line += fmt.Sprintf("assigned to node %s (server %s) in METADATA", x.nameOf(t.NodeID), t.Server)
		}
		if t.Tries > 0 {
			line += "; " + cli.Plural(t.Tries, "attempt") + " failed, the last"
		}
		all = append(all, line+": "+t.Error)
	}
	if more := x.unserved() - int64(len(all)); more > 0 {
		all = append(all, fmt.Sprintf("not served: %s more", cli.Plural(more, "tablet")))
	}
	return all
}

// rowShown is the maximum number of bytes of a row key in messages.
const rowShown = 80

func rowText(row []byte, none string) string {
	switch {
	case len(row) == 0:
		return none
	case len(row) > rowShown:
		return fmt.Sprintf("%q…", row[:rowShown])
	}
	return fmt.Sprintf("%q", row)
}

// nameOf returns the name of a node, or its id if the node is not listed.
func (x *clusterStatus) nameOf(id string) string {
	for i := range x.Nodes {
		if x.Nodes[i].ID == id {
			return x.Nodes[i].Name
		}
	}
	return id
}
