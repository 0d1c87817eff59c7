package node

import (
	"fmt"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
)

// epochGate refuses the commands of a master whose time is over (I9). An epoch is the
// raft index at which the master lock was taken, so a later master's is higher.
type epochGate struct {
	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		epoch  uint64
		master string // the node's id
	}
}

// admit takes note of a master and its epoch, or refuses it for an older one.
func (g *epochGate) admit(master string, epoch uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if epoch < g.mu.epoch {
		return &rpc.Error{
			Code: api.CodeStaleEpoch,
			Message: fmt.Sprintf("node %s commands by master epoch %d, but node %s has been master since epoch %d",
				master, epoch, g.mu.master, g.mu.epoch),
			Details: map[string]any{"epoch": int64(g.mu.epoch)},
		}
	}
	g.mu.epoch, g.mu.master = epoch, master
	return nil
}

// last returns the newest master that this node has heard of.
func (g *epochGate) last() (master string, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.master, g.mu.epoch
}
