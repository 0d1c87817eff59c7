// Package command has the commands of a master to nodes and their tablet servers: their messages, the service that sends and executes
// them, and the gate that rejects those of former masters (paper §5.2). Commands to tablet servers (request.go) are executed by package
// tabletserver. It starts no goroutine.
//
// # Invariants
//
//	C1. A command of a master is rejected once one with a higher epoch was seen (I9). An epoch is the Raft index at which the master
//	    lock was acquired, so a later master's is higher.
package command

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// Gate rejects the commands of former masters (I9). An epoch is the Raft index at which the master lock was acquired, so a
// later master's is higher.
type Gate struct {
	// Mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		Epoch  uint64
		Master string // the node's id
	}
}

// Checker verifies sequencers.
type Checker interface {
	CheckSequencer(ctx context.Context, q metaapi.Sequencer) error
}

// epochCheckTimeout bounds the verification of a new master's sequencer.
const epochCheckTimeout = 5 * time.Second

// AdmitCall admits a command of the master, or rejects it: if it comes from another node than the one that it names, because
// sequencers are not secret, and as admit does.
func (g *Gate) AdmitCall(c *rpc.Call, m Header, locks Checker) error {
	if caller := authz.SubjectOf(c); caller != nil && caller.Peer.Name != m.Master {
		return api.ToRPC(&api.PermissionError{Method: c.Method(),
			Text: fmt.Sprintf("node %s sent a command of node %.80q: a master sends its own commands", caller.Peer.Name, m.Master)})
	}
	return g.Admit(c.Context(), m, locks)
}

// Admit admits a command, or rejects it: if its epoch is older than one seen, or newer and not confirmed by the lock service.
func (g *Gate) Admit(ctx context.Context, m Header, locks Checker) error {
	epoch := m.Sequencer.LockGeneration
	if m.Sequencer.Path != master.LockPath || m.Sequencer.Mode != metaapi.Exclusive {
		return &rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s is not a lock that makes a master", m.Sequencer)}
	}
	last, err := g.compare(m.Master, epoch)
	if planted.On(planted.FormerMaster) && epoch <= last {
		return nil
	}
	if err != nil || epoch == last {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, epochCheckTimeout)
	defer cancel()
	if err := locks.CheckSequencer(ctx, m.Sequencer); err != nil {
		return fmt.Errorf("verify that node %s is the master: %w", m.Master, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.compareLocked(m.Master, epoch); err != nil { // another command came meanwhile
		return err
	}
	g.mu.Epoch, g.mu.Master = epoch, m.Master
	return nil
}

// compare returns the newest epoch. Errors: those of compareLocked.
func (g *Gate) compare(node string, epoch uint64) (last uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.Epoch, g.compareLocked(node, epoch)
}

// compareLocked rejects an epoch older than the newest, and the newest if another node is its master.
func (g *Gate) compareLocked(node string, epoch uint64) error {
	if epoch < g.mu.Epoch || epoch == g.mu.Epoch && node != g.mu.Master {
		return stale(node, epoch, g.mu.Master, g.mu.Epoch)
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

// Last returns the newest master that this node knows.
func (g *Gate) Last() (node string, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.Master, g.mu.Epoch
}

// Header is a master's command on the wire.
type Header struct {
	Master    string
	Sequencer metaapi.Sequencer
	RaftEpoch uint64
}

// Append appends the header as the only parameters.
func (m Header) Append(e *wire.Encoder) {
	e.Array(3)
	m.AppendValues(e)
}

// AppendValues appends the values, within an array of more.
func (m Header) AppendValues(e *wire.Encoder) {
	e.Str(m.Master)
	e.Str(m.Sequencer.String())
	e.Uint(m.RaftEpoch)
}

// Decode reads the header at the beginning of n parameters.
func (m *Header) Decode(d *wire.Decoder, n int) error {
	if n < 3 {
		return fmt.Errorf("%d parameters, want master, sequencer and raft epoch", n)
	}
	m.Master = d.Str()
	text := d.Str()
	m.RaftEpoch = d.Uint()
	if err := d.Err(); err != nil {
		return err
	}
	var err error
	m.Sequencer, err = metaapi.ParseSequencer(text)
	return err
}
