package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// serversDir holds a file for each node; who has its lock is the node, and nobody else
// (I4). A copy of a node's data folders, started beside it, does not get it.
const serversDir = "/servers"

func serverPath(id string) string { return serversDir + "/" + id }

// instance is what the file of a running node says, as JSON.
type instance struct {
	Session metaapi.SessionID `json:"session"` // that has the lock
	RPC     string            `json:"rpc"`
}

// errOtherInstance means that another process is this node.
var errOtherInstance = errors.New("another process serves as this node")

// claimTimeout is how long a node waits for the lock of its own server file: the
// session of its last run may still have it, for a lease.
const claimTimeout = 3*metaapi.LeaseDefault + time.Second

// claim takes the lock that makes this process the node, and returns when it has it. The
// error says who has it if another does.
func (n *Node) claim(ctx context.Context) error {
	if err := n.endLastRun(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	s := n.meta.current()
	_, err := s.Acquire(ctx, serverPath(n.id()), metaapi.Exclusive, session.LockOptions{})
	var held *metaapi.LockedError
	if errors.As(err, &held) {
		other := n.instanceOf(n.id())
		return fmt.Errorf("%w: node %s runs at %s: are these data folders a copy of its?", errOtherInstance, n.id(), other.RPC)
	}
	if err != nil {
		return fmt.Errorf("take the lock of %s: %w", serverPath(n.id()), err)
	}
	b, err := json.Marshal(instance{Session: s.ID(), RPC: n.RPCAddr()})
	if err != nil {
		return err
	}
	_, err = n.catalog.set(ctx, serverPath(n.id()), b, metaapi.AnyGeneration)
	return err
}

// endLastRun ends the session that this node's last run has left, if this node is the
// only one of the lock service: as nobody else can open its log, that run is over, and
// there is no need to wait for its lease.
func (n *Node) endLastRun(ctx context.Context) error {
	group, _ := n.voter.group()
	if group == nil || len(group.Members()) > 1 {
		return nil
	}
	last := n.instanceOf(n.id())
	if last.Session == 0 || last.Session == n.meta.current().ID() {
		return nil
	}
	return group.Service().CloseSession(ctx, last.Session)
}

// instanceOf reads what a node's file says, nothing if it says nothing.
func (n *Node) instanceOf(id string) (i instance) {
	ctx, cancel := context.WithTimeout(n.ctx, claimTimeout)
	defer cancel()
	if f, err := n.meta.Get(ctx, serverPath(id)); err == nil {
		_ = json.Unmarshal(f.Data, &i)
	}
	return i
}
