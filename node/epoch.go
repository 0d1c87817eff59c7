package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/master"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// epochGate refuses the commands of a master whose time is over (I9). An epoch is the
// raft index at which the master lock was taken, so a later master's is higher.
type epochGate struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		epoch  uint64
		master string // the node's id
	}
}

// checker tells whether a sequencer is valid.
type checker interface {
	CheckSequencer(ctx context.Context, q metaapi.Sequencer) error
}

// epochCheckTimeout bounds the question whether a new master is one.
const epochCheckTimeout = 5 * time.Second

// admitCommand lets a call with a command pass, or refuses it: if it does not come from the node that it names as master,
// for sequencers are no secret, and as epochGate.admit does.
func (n *Node) admitCommand(c *rpc.Call, m command) error {
	if who := subjectOf(c); who != nil && who.peer.Name != m.master {
		return api.ToRPC(&api.PermissionError{Method: c.Method(),
			Text: fmt.Sprintf("node %s commands in the name of node %.80q: a master commands in its own", who.peer.Name, m.master)})
	}
	return n.epochs.admit(c.Context(), m, n.meta.client)
}

// admit lets a command pass, or refuses it: for an older epoch than one seen, or for a
// newer one that the lock service does not confirm.
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
		return fmt.Errorf("node %s says that it is master: %w", m.master, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.compareLocked(m.master, epoch); err != nil { // a later one came meanwhile, or another one of the same epoch
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

func stale(node string, epoch uint64, boss string, newest uint64) error {
	return &rpc.Error{
		Code:    api.CodeStaleEpoch,
		Message: fmt.Sprintf("node %s commands by master epoch %d, but node %s has been master since epoch %d", node, epoch, boss, newest),
		Details: map[string]any{"epoch": int64(newest)},
	}
}

// last returns the newest master that this node has heard of.
func (g *epochGate) last() (node string, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.master, g.mu.epoch
}
