package health

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
)

// unservedShown is the number of unserved tablets that Problems describes.
const unservedShown = 5

// Problems returns a line for each problem of tablets, nodes, quotas and disks, and for each unknown.
func (x *Cluster) Problems() (all []string) {
	all = x.unservedLines()
	if x.Unassigned != nil && *x.Unassigned > x.NotServed() {
		all = append(all, fmt.Sprintf("%s of %s unassigned: the master is assigning them", text.Count(*x.Unassigned), text.Plural(*x.Tablets, "tablet")))
	}
	all = append(append(all, x.downLines()...), x.failedDisks()...)
	if x.Recovering != nil && *x.Recovering > 0 {
		all = append(all, fmt.Sprintf("%s recovering from the commit logs of %s", text.Plural(*x.Recovering, "tablet"), strings.Join(x.serverNames(), ", ")))
	}
	for _, n := range x.Unreachable {
		all = append(all, fmt.Sprintf("node %s does not answer; membership has listed it as alive for %s, and takes some seconds to detect a failure",
			n.Name, text.Uptime(time.Duration(n.AliveForS*float64(time.Second)))))
	}
	all = append(append(all, x.slowLogs()...), x.pauses()...)
	for _, q := range x.UsedUp {
		all = append(all, fmt.Sprintf("the quota of %s %s is exhausted: %s of %s; only deletions are accepted", q.Of, q.Name, text.Size(q.Used), text.Size(q.Limit)))
	}
	for i := range x.Schedules {
		all = append(all, x.Schedules[i].problem())
	}
	for i := range x.Replications {
		all = append(all, x.Replications[i].problem())
	}
	if p := x.Space.problem(); p != "" {
		all = append(all, p)
	}
	for _, u := range x.Unknown {
		all = append(all, "unknown: "+u)
	}
	return all
}

// downLines returns lines for the nodes that are down, and for the tablets that are on them.
func (x *Cluster) downLines() (all []string) {
	for i := range x.Nodes {
		if p := x.Nodes[i].Problem(); p != "" {
			all = append(all, p)
		}
		if n := &x.Nodes[i]; n.State != api.NodeAlive && n.Tablets != nil && *n.Tablets > 0 {
			all = append(all, fmt.Sprintf("%s on node %s, which is %s: the master reassigns them when the node's lease has expired", text.Plural(*n.Tablets, "tablet"), n.Name, n.State))
		}
	}
	return all
}

// addUnserved adds the master's report on unserved tablets.
func (x *Cluster) addUnserved(u *client.UnservedTablets) {
	x.Unserved, x.UnservedTablets = &u.Total, u.Tablets
}

// NotServed returns the number of unserved tablets; 0 if it is unknown.
func (x *Cluster) NotServed() int64 {
	if x.Unserved == nil {
		return 0
	}
	return *x.Unserved
}

// unservedLines returns a line for each of the first unserved tablets, with the cause, and one with
// the number of others.
func (x *Cluster) unservedLines() (all []string) {
	for i := range x.UnservedTablets[:min(len(x.UnservedTablets), unservedShown)] {
		t := &x.UnservedTablets[i]
		line := fmt.Sprintf("not served: table %s, rows from %s to %s, for %s; ", cmp.Or(t.Table, "(unknown)"),
			rowText(t.Start, "(first)"), rowText(t.End, "(last)"), text.Uptime(t.Since))
		if t.Server == "" {
			line += "not assigned in METADATA"
		} else {
			line += fmt.Sprintf("assigned to node %s (server %s) in METADATA", x.nameOf(t.Node), t.Server)
		}
		if t.Tries > 0 {
			line += "; " + text.Plural(t.Tries, "attempt") + " failed, the last"
		}
		all = append(all, line+": "+t.Error)
	}
	if more := x.NotServed() - int64(len(all)); more > 0 {
		all = append(all, fmt.Sprintf("not served: %s more", text.Plural(more, "tablet")))
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

// serverNames returns the dead servers whose commit logs tablets wait for, by the names of their nodes.
func (x *Cluster) serverNames() (names []string) {
	for _, server := range x.Recoveries {
		node, start, _ := strings.Cut(server, ".")
		name := server
		if known := x.nameOf(node); known != node {
			name = "node " + known + " (start " + start + ")"
		}
		names = append(names, name)
	}
	return names
}

// nameOf returns the name of a node, or its id if the node is not listed.
func (x *Cluster) nameOf(id string) string {
	for i := range x.Nodes {
		if x.Nodes[i].ID == id {
			return x.Nodes[i].Name
		}
	}
	return id
}
