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

// logSettles is the time after a node's start in which its commit log may have fewer replicas than it
// should. Nodes that were down when the log was created get an extent of it about ten seconds later.
const logSettles = 30 * time.Second

// The states of a cluster; the first word of a status.
const (
	Healthy   = "healthy"
	Degraded  = "degraded"  // the node serves, and something needs repair or attention
	Unhealthy = "unhealthy" // the node does not serve
)

// State returns the state, and the rest of the first line of a status.
func State(s *client.Status, whole *Cluster) (state, sentence string) {
	if !s.Ready {
		return Unhealthy, ": node " + s.Node + " does not serve: " + cmp.Or(s.Reason, "no reason given")
	}
	sentence = fmt.Sprintf(": node %s serves %s in %s", s.Node, text.Plural(s.Tables, "table"), text.Plural(s.Tablets, "tablet"))
	if s.Nodes > 1 {
		alive := max(s.NodesAlive-int64(len(whole.Unreachable)), 1) // at least the node that answered
		sentence += fmt.Sprintf("; %d of %s alive", alive, text.Plural(s.Nodes, "node"))
	}
	faults := faultsOf(s, whole)
	if len(faults) > 0 {
		sentence += "; " + strings.Join(faults, "; ")
	}
	if len(faults) > 0 || s.NodesAlive < s.Nodes || len(whole.Unreachable) > 0 {
		return Degraded, sentence
	}
	return Healthy, sentence
}

// faultsOf lists why a cluster that serves is degraded, besides nodes that are down.
func faultsOf(s *client.Status, whole *Cluster) (faults []string) {
	add := func(is bool, format string, args ...any) {
		if is {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	add(whole.NotServed() > 0, "%s of the cluster not served", text.Plural(whole.NotServed(), "tablet"))
	slow := int64(len(whole.slowLogs()))
	add(slow > 0, "log replicas of %s slow", text.Plural(slow, "node"))
	paused := whole.paused()
	add(paused > 0, "%s suspended again and again", text.Plural(paused, "node"))
	full := whole.fullTables()
	add(full > 0, "%s of bytes exhausted", text.Plural(full, "table quota"))
	add(s.Counting, "under-replicated extents not counted yet")
	add(!s.Counting && s.UnderReplicated > 0, "%s under-replicated", text.Plural(s.UnderReplicated, "extent"))
	add(s.LogReplicas < s.Replicas && s.Uptime > logSettles, "commit log replicated on %d of %s", s.LogReplicas, text.Plural(s.Replicas, "node"))
	failed := int64(0)
	for i := range whole.Nodes {
		failed += int64(len(whole.Nodes[i].FailedDisks))
	}
	add(failed > 0, "%s failed", text.Plural(failed, "data folder"))
	return faults
}

// fullTables returns the number of tables whose quota of bytes is exhausted: their writes are rejected. An exhausted quota of
// a user is no fault of the cluster.
func (x *Cluster) fullTables() (n int64) {
	for _, q := range x.UsedUp {
		if q.Of == api.QuotaOfTable {
			n++
		}
	}
	return n
}
