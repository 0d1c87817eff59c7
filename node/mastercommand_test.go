package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// TestCommandsOfOthers: a node that knows the sequencer of the master commands neither in the master's name nor in its own.
func TestCommandsOfOthers(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 2)
	f.cfgs[1].Join = f.addrs[:1]
	f.start(0)
	f.start(1)
	masterID := -1
	f.await(0, "a master that tells of itself", func(s *client.RaftStatus) bool {
		masterID = -1
		for i, n := range f.nodes {
			if n.IsMaster() && s.Master == n.ID() {
				masterID = i
			}
		}
		return masterID >= 0
	})
	other := 1 - masterID
	status := good(f.client(masterID).Nodes().RaftStatus(within(t, 20*time.Second)))
	q := metaapi.Sequencer{Path: master.LockPath, Mode: metaapi.Exclusive, LockGeneration: status.MasterEpoch}
	hail := func(as, named int) error {
		_, err := f.ask(f.credential(as), f.addrs[masterID], "cluster.hail", func(e *wire.Encoder) {
			e.Array(3)
			e.Str(f.nodes[named].ID())
			e.Str(q.String())
			e.Uint(status.RaftEpoch)
		})
		return api.FromRPC(err)
	}
	held := func(as, named int) error {
		_, err := f.ask(f.credential(as), f.addrs[masterID], "tablet.held", func(e *wire.Encoder) {
			e.Array(4)
			e.Str(f.nodes[named].ID())
			e.Str(q.String())
			e.Uint(status.RaftEpoch)
			e.Str(f.nodes[masterID].ServerName())
		})
		return api.FromRPC(err)
	}
	for what, command := range map[string]func(as, named int) error{"hail": hail, "held": held} {
		if err := command(masterID, masterID); err != nil {
			t.Errorf("%s of the master: %v", what, err)
		}
		if err := command(other, masterID); !errors.Is(err, api.ErrPermission) {
			t.Errorf("%s in the master's name: %v, want that it is refused", what, err)
		}
		if err := command(other, other); err == nil {
			t.Errorf("%s of one that is not the master is taken", what)
		}
	}
}
