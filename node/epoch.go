package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// epochGate rejects the commands of former masters (I9). An epoch is the Raft index at which the master lock was acquired, so a
// later master's is higher.
type epochGate struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		epoch  uint64
		master string // the node's id
	}
}

// checker verifies sequencers.
type checker interface {
	CheckSequencer(ctx context.Context, q metaapi.Sequencer) error
}

// epochCheckTimeout bounds the verification of a new master's sequencer.
const epochCheckTimeout = 5 * time.Second

// admitCommand admits a command of the master, or rejects it: if it comes from another node than the one that it names, because
// sequencers are not secret, and as epochGate.admit does.
func (n *Node) admitCommand(c *rpc.Call, m command) error {
	if caller := authz.SubjectOf(c); caller != nil && caller.Peer.Name != m.master {
		return api.ToRPC(&api.PermissionError{Method: c.Method(),
			Text: fmt.Sprintf("node %s sent a command of node %.80q: a master sends its own commands", caller.Peer.Name, m.master)})
	}
	return n.epochs.admit(c.Context(), m, n.meta.Client)
}

// admit admits a command, or rejects it: if its epoch is older than one seen, or newer and not confirmed by the lock service.
func (g *epochGate) admit(ctx context.Context, m command, locks checker) error {
	epoch := m.sequencer.LockGeneration
	if m.sequencer.Path != master.LockPath || m.sequencer.Mode != metaapi.Exclusive {
		return &rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s is not a lock that makes a master", m.sequencer)}
	}
	last, err := g.compare(m.master, epoch)
	if err != nil || epoch == last {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, epochCheckTimeout)
	defer cancel()
	if err := locks.CheckSequencer(ctx, m.sequencer); err != nil {
		return fmt.Errorf("verify that node %s is the master: %w", m.master, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.compareLocked(m.master, epoch); err != nil { // another command came meanwhile
		return err
	}
	g.mu.epoch, g.mu.master = epoch, m.master
	return nil
}

// compare returns the newest epoch. Errors: those of compareLocked.
func (g *epochGate) compare(node string, epoch uint64) (last uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.epoch, g.compareLocked(node, epoch)
}

// compareLocked rejects an epoch older than the newest, and the newest if another node is its master.
func (g *epochGate) compareLocked(node string, epoch uint64) error {
	if epoch < g.mu.epoch || epoch == g.mu.epoch && node != g.mu.master {
		return stale(node, epoch, g.mu.master, g.mu.epoch)
	}
	return nil
}

func stale(node string, epoch uint64, masterID string, newest uint64) error {
	return &rpc.Error{
		Code:    api.CodeStaleEpoch,
		Message: fmt.Sprintf("node %s has master epoch %d, but node %s has been master since epoch %d", node, epoch, masterID, newest),
		Details: map[string]any{"epoch": int64(newest)},
	}
}

// last returns the newest master that this node knows.
func (g *epochGate) last() (node string, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.master, g.mu.epoch
}
