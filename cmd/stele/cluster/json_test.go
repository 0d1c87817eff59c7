package cluster

import (
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/internal/health"
)

func TestNodesJSON(t *testing.T) {
	clitest.Golden(t, "nodes", func(a *cli.App) error {
		return listNodes(a, []client.NodeInfo{*clitest.Fill(&client.NodeInfo{}), {Name: "empty"}})
	})
}

func TestClientsJSON(t *testing.T) {
	clitest.Golden(t, "clients", func(a *cli.App) error {
		return printClients(a, &health.Clients{All: []client.ClientProcess{*clitest.Fill(&client.ClientProcess{}), {}}})
	})
}

func TestRaftStatusJSON(t *testing.T) {
	s := clitest.Fill(&client.RaftStatus{})
	s.Servers = append(s.Servers, client.RaftServer{LastContactMS: -1})
	for name, s := range map[string]*client.RaftStatus{"raft": s, "raft-empty": {}} {
		clitest.Golden(t, name, func(a *cli.App) error { return printRaftStatus(a, clitest.Received(t, s)) })
	}
}

func TestStatusJSON(t *testing.T) {
	s := clitest.Fill(&client.Status{})
	s.Disks = append(s.Disks, s.Disks[0])
	s.Disks[1].Retired = false
	known := clitest.Fill(&client.Status{})
	known.Counting = false
	for name, s := range map[string]*client.Status{"status": s, "status-counted": known, "status-empty": {}} {
		clitest.Golden(t, name, func(a *cli.App) error { return printStatus(a, clitest.Received(t, s), &health.Cluster{}) })
	}
}

// While nodes count their extents, the number of under-replicated ones is null, not 0.
func TestStatusJSONWhileExtentsAreCounted(t *testing.T) {
	s := &client.Status{Counting: true}
	if j := statusOf(s); j.UnderReplicated != nil {
		t.Errorf("under_replicated is %d while it is counted", *j.UnderReplicated)
	}
	if s.Counting = false; *statusOf(s).UnderReplicated != 0 {
		t.Errorf("under_replicated is %d", *statusOf(s).UnderReplicated)
	}
}
