package health

import (
	"strings"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// seenBy returns a node's times of the log replicas on nodes a, b and c, in ms.
func seenBy(node string, ms ...int64) client.NodeStore {
	s := client.NodeStore{Node: node, Known: true}
	for i, n := range ms {
		s.LogTimes = append(s.LogTimes, client.ReplicaTimes{Node: string(rune('a' + i)), Appends: 1, P99US: 1000 * n})
	}
	return s
}

// The node whose disk or processor is slow is named, not those that wait for it.
func TestSlowLogs(t *testing.T) {
	for name, test := range map[string]struct {
		stores []client.NodeStore
		want   string // nodes
	}{
		"a slow disk":               {[]client.NodeStore{seenBy("a", 1, 2, 4000), seenBy("b", 1, 1, 4000), seenBy("c", 1, 1, 4000)}, "c"},
		"a node that is slow":       {[]client.NodeStore{seenBy("a", 900, 900, 900), seenBy("b", 900, 1, 1), seenBy("c", 900, 1, 1)}, "a"},
		"none":                      {[]client.NodeStore{seenBy("a", 1, 2, 4), seenBy("b", 1, 1, 60), seenBy("c", 1, 1, 4)}, ""},
		"all disks":                 {[]client.NodeStore{seenBy("a", 900, 900, 900), seenBy("b", 900, 900, 900)}, ""},
		"one node":                  {[]client.NodeStore{seenBy("a", 9000)}, ""},
		"a disk seen by one node":   {[]client.NodeStore{seenBy("a", 1, 1, 5000), seenBy("b"), seenBy("c")}, "c"},
		"one that is only twice so": {[]client.NodeStore{seenBy("a", 300, 300, 600)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := &Cluster{}
			for _, id := range []string{"a", "b", "c"} {
				x.Nodes = append(x.Nodes, Node{ID: id, Name: id, State: api.NodeAlive})
			}
			x.addStore(&client.StoreStatus{Nodes: test.stores})
			got := ""
			for _, line := range x.slowLogs() {
				got += strings.Fields(strings.TrimPrefix(line, "the log replicas of node "))[0]
			}
			if got != test.want {
				t.Errorf("slow: %q, want %q", got, test.want)
			}
			if state, _ := State(&client.Status{Ready: true, Nodes: 3, NodesAlive: 3}, x); (state == Degraded) != (test.want != "") {
				t.Errorf("the cluster is %s", state)
			}
		})
	}
}

// A node that pauses now and then is named, though the logs leave its replicas so soon that its times are short; its own logs do not count.
func TestPauses(t *testing.T) {
	x := &Cluster{Nodes: []Node{{ID: "a", Name: "n1", State: api.NodeAlive}, {ID: "b", Name: "n2", State: api.NodeAlive}}}
	left := func(node, of string, n int64) client.NodeStore {
		return client.NodeStore{Node: node, Known: true, LogTimes: []client.ReplicaTimes{{Node: of, MeanUS: -1, P99US: -1, Dropped: n}}}
	}
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{left("a", "a", 9), left("a", "b", 1), left("c", "b", 2)}})
	got := x.Problems()
	if len(got) != 1 || !strings.HasPrefix(got[0], "the logs of other nodes left slow replicas on node n2 3 times in the last 10 minutes") || x.Nodes[1].LogP99US != nil {
		t.Errorf("%q", got)
	}
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{{Node: "a", Known: true, Pauses: 2, PauseMaxMS: 900}, {Node: "b", Known: true, Pauses: 4, PauseMaxMS: 1200}}})
	got = x.Problems() // the cause replaces what the others see
	if len(got) != 1 || !strings.HasPrefix(got[0], "the process of node n2 did not run 4 times in the last 10 minutes, for up to 1.2 s: it was suspended") {
		t.Errorf("%q", got)
	}
	for n, want := range map[int64]string{pausesMany - 1: Healthy, pausesMany: Degraded} {
		x.Nodes[1].Pauses = n
		if state, line := State(&client.Status{Ready: true, Nodes: 2, NodesAlive: 2}, x); state != want || strings.Contains(line, "1 node suspended again and again") != (want == Degraded) {
			t.Errorf("%d pauses: %s%s", n, state, line)
		}
	}
}
