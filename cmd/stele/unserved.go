package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
)

// unservedShown is how many tablets that are not served a status names. --json has up to 100.
const unservedShown = 5

// unservedHint says what to do about tablets that are not served.
const unservedHint = `start nodes that are away ("stele node list"); see files that are lost or damaged with "stele blob fsck"; docs/operating.md says what to do about a damaged row of METADATA; ` +
	`the log of the master says which node tried, and that node's why it could not`

// unservedJSON is a tablet that is not served, as --json prints it.
type unservedJSON struct {
	Table string `json:"table"`
	boundsJSON
	NodeID string  `json:"node_id"` // of the node that METADATA names; empty: none
	Server string  `json:"server"`
	SinceS float64 `json:"since_s"`
	Tries  int64   `json:"tries"`
	Error  string  `json:"error"`
}

// addUnserved adds what the master knows of tablets that are not served.
func (x *clusterJSON) addUnserved(u *client.UnservedTablets) {
	x.Unserved, x.UnservedTablets = &u.Total, []unservedJSON{}
	for _, t := range u.Tablets {
		x.UnservedTablets = append(x.UnservedTablets, unservedJSON{
			Table: t.Table, boundsJSON: boundsOf(t.Start, t.End), NodeID: t.Node, Server: t.Server, SinceS: t.Since.Seconds(), Tries: t.Tries, Error: t.Error,
		})
	}
}

// unserved is how many tablets are known not to be served.
func (x *clusterJSON) unserved() int64 {
	if x.Unserved == nil {
		return 0
	}
	return *x.Unserved
}

// unservedLines name tablets that are not served, each with what keeps it from that.
func (x *clusterJSON) unservedLines() (all []string) {
	for i := range x.UnservedTablets[:min(len(x.UnservedTablets), unservedShown)] {
		t := &x.UnservedTablets[i]
		line := fmt.Sprintf("not served: table %s, rows from %s to %s, for %v; ", orElse(t.Table, "(unknown)"),
			rowText(t.StartBytes, "(first)"), rowText(t.EndBytes, "(last)"), time.Duration(t.SinceS*float64(time.Second)).Round(time.Second))
		if t.Server == "" {
			line += "METADATA gives it to no server"
		} else {
			line += fmt.Sprintf("METADATA gives it to node %s (server %s)", x.nameOf(t.NodeID), t.Server)
		}
		if t.Tries > 0 {
			line += "; " + plural(t.Tries, "try") + " failed, the last"
		}
		all = append(all, line+": "+t.Error)
	}
	if more := x.unserved() - int64(len(all)); more > 0 {
		all = append(all, fmt.Sprintf("not served: %s more", plural(more, "tablet")))
	}
	return all
}

// rowShown bounds what is shown of a row's key, in bytes.
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

// servedSoon is how long a table may take to be made before it is asked whether all of it is served.
const servedSoon = 5 * time.Second

// tellUnserved says if not all of a table that was just made is served: the table is there all the same.
func (a *app) tellUnserved(ctx context.Context, c *client.Client, name string) {
	u, err := c.UnservedTablets(ctx)
	if err != nil {
		a.talk("table %s exists; whether all of it is served yet is not known: %v", name, err)
		return
	}
	if text := ofItUnserved(u, name); text != "" {
		a.talk("table %s exists, and %s: \"stele status\" shows why", name, text)
	}
}

// ofItUnserved says if not all of a table is served, as far as that is told: the master tells of the first tablets only.
func ofItUnserved(u *client.UnservedTablets, name string) string {
	cluster := plural(u.Total, "tablet") + " of the cluster not served"
	if slices.ContainsFunc(u.Tablets, func(t client.UnservedTablet) bool { return t.Table == name }) {
		return "not all of it is served yet (" + cluster + ")"
	}
	if u.Total > int64(len(u.Tablets)) {
		return "whether all of it is served yet is not known (" + cluster + ")"
	}
	return ""
}

// nameOf is what people call a node.
func (x *clusterJSON) nameOf(id string) string {
	for i := range x.Nodes {
		if x.Nodes[i].ID == id {
			return x.Nodes[i].Name
		}
	}
	return id
}
