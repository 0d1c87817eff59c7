package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
)

// A node's log replicas are slow if they take slowLogLeast or more, and slowLogRatio times as long as those of the median node.
const (
	slowLogLeast = 200 * time.Millisecond
	slowLogRatio = 8
)

// LogP99 returns the 99th percentile of the times of each node's log replicas in µs, by its id: the median of what the nodes saw. A slow node
// sees all others slow, and all see it slow: the median differs.
func LogP99(seen ...[]client.ReplicaTimes) map[string]int64 {
	all := map[string][]int64{}
	for _, times := range seen {
		for i := range times {
			if times[i].P99US >= 0 {
				all[times[i].Node] = append(all[times[i].Node], times[i].P99US)
			}
		}
	}
	p99 := map[string]int64{}
	for node, times := range all {
		p99[node] = median(times)
	}
	return p99
}

// median returns the median of some numbers, of two the lower one.
func median(all []int64) int64 {
	slices.Sort(all)
	return all[(len(all)-1)/2]
}

// addLogTimes adds what the nodes saw of each other's log replicas.
func (x *Cluster) addLogTimes(s *client.StoreStatus) {
	var seen [][]client.ReplicaTimes
	for i := range s.Nodes {
		seen = append(seen, s.Nodes[i].LogTimes)
	}
	p99 := LogP99(seen...)
	for i := range x.Nodes {
		if us, ok := p99[x.Nodes[i].ID]; ok {
			x.Nodes[i].LogP99US = &us
		}
	}
	for i := range s.Nodes {
		for _, t := range s.Nodes[i].LogTimes {
			if at := slices.IndexFunc(x.Nodes, func(n Node) bool { return n.ID == t.Node }); at >= 0 && t.Node != s.Nodes[i].Node {
				x.Nodes[at].LogDropped += t.Dropped
			}
		}
	}
}

// pausesLeast is how many pauses of a process in ten minutes are a problem, and how many replicas on a node that other nodes leave. A restart of
// the node makes some of them leave its replicas as well.
const pausesLeast = 3

// pausesMany pauses of a process in ten minutes degrade the cluster.
const pausesMany = 10

// paused returns the number of nodes whose process does not run again and again.
func (x *Cluster) paused() (n int64) {
	for i := range x.Nodes {
		if x.Nodes[i].State == api.NodeAlive && x.Nodes[i].Pauses >= pausesMany {
			n++
		}
	}
	return n
}

// pauses returns a line for each node whose process did not run now and then, or whose log replicas others have left for being slow: then its disk,
// processor or network pauses.
func (x *Cluster) pauses() (lines []string) {
	for i := range x.Nodes {
		n := &x.Nodes[i]
		if n.State == api.NodeAlive && n.Pauses >= pausesLeast {
			lines = append(lines, fmt.Sprintf("the process of node %s did not run %d times in the last %d minutes, for up to %s: it was suspended, or the machine had no processor or memory for it",
				n.Name, n.Pauses, api.RefusalMinutes, text.Duration(time.Duration(n.PauseMaxMS)*time.Millisecond)))
		} else if n.State == api.NodeAlive && n.LogDropped >= pausesLeast {
			lines = append(lines, fmt.Sprintf("the logs of other nodes left slow replicas on node %s %d times in the last %d minutes: unless it was restarted, its disk, processor or network pauses now and then", n.Name, n.LogDropped, api.RefusalMinutes))
		}
	}
	return lines
}

// slowLogs returns a line for each node whose log replicas are much slower than those of others: writes to all nodes wait for them.
func (x *Cluster) slowLogs() (lines []string) {
	var times []int64
	for i := range x.Nodes {
		if t := x.Nodes[i].LogP99US; t != nil {
			times = append(times, *t)
		}
	}
	if len(times) < 2 {
		return nil
	}
	usual := median(times)
	for i := range x.Nodes {
		n := &x.Nodes[i]
		if t := n.LogP99US; n.State == api.NodeAlive && t != nil && *t >= slowLogLeast.Microseconds() && *t >= slowLogRatio*usual {
			lines = append(lines, fmt.Sprintf("the log replicas of node %s are slow: 99%% of appends within %s, on the median node %s; writes to all nodes may wait for its disk, processor or network", n.Name, text.Millis(float64(*t)/1000), text.Millis(float64(usual)/1000)))
		}
	}
	return lines
}
