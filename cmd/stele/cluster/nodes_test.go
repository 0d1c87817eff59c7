package cluster

import (
	"strings"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/internal/health"
)

// threeNodes is a healthy cluster.
func threeNodes() []client.NodeInfo {
	return []client.NodeInfo{
		{ID: "n01", Name: "c", State: api.NodeAlive, Voter: true},
		{ID: "n02", Name: "a", State: api.NodeAlive, Voter: true, Leader: true, Master: true},
		{ID: "n03", Name: "b", State: api.NodeAlive, Voter: true},
	}
}

func TestNodesSentence(t *testing.T) {
	for _, test := range []struct {
		change func(nodes []client.NodeInfo)
		want   string
	}{
		{func([]client.NodeInfo) {}, "healthy: 3 of 3 nodes alive, leader a, master a"},
		{func(n []client.NodeInfo) { n[0].State = api.NodeDead }, "degraded: 2 of 3 nodes alive, leader a, master a; c is dead"},
		{func(n []client.NodeInfo) { n[0].State, n[0].Name = api.NodeLeft, "" }, "degraded: 2 of 3 nodes alive, leader a, master a; n01 has left"},
		{func(n []client.NodeInfo) { n[1].Master = false }, "degraded: 3 of 3 nodes alive, leader a; no master is known"},
		{func(n []client.NodeInfo) { n[1].Leader, n[1].Master = false, false }, "unhealthy: 3 of 3 nodes alive; no leader is known"},
	} {
		a, _, _ := clitest.New()
		nodes := threeNodes()
		test.change(nodes)
		if got := nodesSentence(a, nodes); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	a, _, _ := clitest.New()
	many := make([]client.NodeInfo, 10)
	if got := nodesSentence(a, many); strings.Count(got, " is ") > 4 {
		t.Errorf("%q names all that are gone", got)
	}
}

// Without a leader no node is shown as master.
func TestNoMasterWithoutALeader(t *testing.T) {
	for _, test := range []struct {
		s              client.RaftStatus
		leader, master string // nodes' names
	}{
		{client.RaftStatus{Leader: "n03", Master: "n02"}, "b", "a"},
		{client.RaftStatus{Leader: "n03"}, "b", "a"},
		{client.RaftStatus{Leader: "n09", Master: "n02"}, "", "a"}, // a node that is not listed yet
		{client.RaftStatus{Master: "n02"}, "", ""},
		{client.RaftStatus{}, "", ""},
	} {
		nodes := threeNodes()
		nodes[1].Leader = false
		health.ApplyRaftStatus(nodes, &test.s)
		leader, master := "", ""
		for _, n := range nodes {
			if n.Leader {
				leader += n.Name
			}
			if n.Master {
				master += n.Name
			}
		}
		if leader != test.leader || master != test.master {
			t.Errorf("%+v: leader %q, master %q", test.s, leader, master)
		}
	}
}

func TestNodeList(t *testing.T) {
	a, out, errs := clitest.New()
	nodes := threeNodes()
	nodes[0].Draining, nodes[0].Zone, nodes[0].SinceSeconds = true, "east\x1b", 3700
	nodes[2].State, nodes[2].Reason = api.NodeLeft, "sync /d\x1b: input/output error"
	if err := listNodes(a, nodes); err != nil {
		t.Fatal(err)
	}
	a.Out.Flush()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "NAME ") || !strings.HasPrefix(lines[1], "a ") || !strings.HasPrefix(lines[2], "b ") {
		t.Fatalf("listed as\n%s", out)
	}
	if got, want := strings.Join(strings.Fields(lines[3]), " "), `c n01 east\x1b alive,draining voter - - 0 B 1h 1m`; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	if f := strings.Fields(lines[1]); f[4] != "leader,master" {
		t.Errorf("roles of the leader: %q", f[4])
	}
	if !strings.HasPrefix(errs.String(), "degraded: 2 of 3") || !strings.Contains(errs.String(), `node b ended by itself: sync /d\x1b: input/output error`) {
		t.Errorf("summary: %q", errs)
	}
}

func TestStillHolds(t *testing.T) {
	leaderNode := client.NodeInfo{Voter: true, Leader: true, Master: true}
	for _, test := range []struct {
		x       drainState
		unknown error
		want    string
	}{
		{drainState{node: &client.NodeInfo{}}, nil, ""},
		{drainState{node: &client.NodeInfo{}, store: &client.NodeStore{DrainLogs: 4}}, nil, ""},
		{drainState{node: &client.NodeInfo{Voter: true}}, nil, "it still votes in the lock service"},
		{drainState{node: &leaderNode}, nil, "it still is the master and leads the lock service"},
		{drainState{node: &client.NodeInfo{}, tablets: 1}, nil, "it still serves 1 tablet"},
		{drainState{node: &leaderNode, tablets: 1200, store: &client.NodeStore{DrainExtents: 3}}, nil,
			"it still is the master, leads the lock service, serves 1,200 tablets and has 3 extents"},
		{drainState{node: &client.NodeInfo{}, tablets: -1}, client.ErrNotServing, "it still may serve tablets (their placement is unknown: tablet not serving)"},
	} {
		if got := stillHolds(&test.x, test.unknown); got != test.want {
			t.Errorf("%+v: %q, want %q", test.x, got, test.want)
		}
	}
}

func TestRaftSentence(t *testing.T) {
	five := func(down ...int) *client.RaftStatus {
		s := &client.RaftStatus{Leader: "n0", Master: "n0", MasterName: "zero", Servers: make([]client.RaftServer, 6)}
		for i := range s.Servers {
			s.Servers[i] = client.RaftServer{ID: "n" + string(rune('0'+i)), Voter: i < 5, Alive: true}
		}
		for _, i := range down {
			s.Servers[i].Alive = false
		}
		return s
	}
	noLeader, noMaster, one := five(), five(), five()
	noLeader.Leader = ""
	noMaster.Master = ""
	one.Servers = one.Servers[:1]
	for _, test := range []struct {
		s    *client.RaftStatus
		want string
	}{
		{five(), "healthy: 5 of 5 voters alive, leader n0, master zero; 2 may fail"},
		{five(3, 4), "degraded: 3 of 5 voters alive, leader n0, master zero; down: n3, n4"},
		{five(5), "healthy: 5 of 5 voters alive, leader n0, master zero; 2 may fail"},
		{noLeader, "unhealthy: no leader is known; a majority of the voters must be up"},
		{noMaster, "degraded: 5 of 5 voters alive, leader n0; no master is known"},
		{one, "healthy: 1 of 1 voter alive, leader n0, master zero; none may fail"},
	} {
		a, _, _ := clitest.New()
		if got := raftSentence(a, test.s); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
