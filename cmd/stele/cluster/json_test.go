package cluster

import (
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
)

func TestNodesJSON(t *testing.T) {
	clitest.Golden(t, "nodes", func(a *cli.App) error {
		return listNodes(a, []client.NodeInfo{*clitest.Fill(&client.NodeInfo{}), {Name: "empty"}})
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
		clitest.Golden(t, name, func(a *cli.App) error { return printStatus(a, clitest.Received(t, s), &clusterStatus{}) })
	}
}
