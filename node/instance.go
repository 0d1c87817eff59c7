package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/raftmeta"
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

// hold returns when this process has the lock that makes it the node, opening another
// session if the one that there is has expired meanwhile: a node that starts, or comes
// back, in the middle of an outage waits for its end. The error is errOtherInstance or
// ctx's.
func (n *Node) hold(ctx context.Context) error {
	for {
		var err error
		if n.meta.current().Err() != nil {
			err = n.meta.open(ctx, n.sessionName())
		}
		if err == nil {
			err = n.claim(ctx)
		}
		if err == nil || errors.Is(err, errOtherInstance) || ctx.Err() != nil {
			return err
		}
		n.log.Warn("this process has not got the lock that makes it the node; trying goes on", "error", err)
		pause(ctx, sessionRetry)
	}
}

// claim tries to take the lock with the session that there is. The error says who has
// it if another does.
func (n *Node) claim(ctx context.Context) error {
	if err := n.endLastRun(ctx); err != nil {
		return err
	}
	s := n.meta.current()
	if n.lock.Load() == nil || n.lockOf != s {
		l, err := n.acquireServer(ctx, s)
		if err != nil {
			return err
		}
		n.lock.Store(l)
		n.lockOf = s
	}
	b, err := json.Marshal(instance{Session: s.ID(), RPC: n.RPCAddr()})
	if err != nil {
		return err
	}
	_, err = n.catalog.set(ctx, serverPath(n.id()), b, metaapi.AnyGeneration)
	return err
}

// acquireServer waits for the lock of the server file. That somebody holds it for
// claimTimeout tells that he lives only if the leader has been there all the time: a
// new one grants the sessions of the dead another lease.
func (n *Node) acquireServer(ctx context.Context, s *session.Session) (*session.Lock, error) {
	state, changed := s.Changed()
	limited, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	l, err := s.Acquire(limited, serverPath(n.id()), metaapi.Exclusive, session.LockOptions{})
	if err == nil {
		return l, nil
	}
	led := state == session.Valid
	select {
	case <-changed:
		led = false
	default:
	}
	var held *metaapi.LockedError
	if led && errors.As(err, &held) {
		other := n.instanceOf(n.id())
		return nil, fmt.Errorf("%w: node %s runs at %s: are these data folders a copy of its?", errOtherInstance, n.id(), other.RPC)
	}
	return nil, fmt.Errorf("take the lock of %s: %w", serverPath(n.id()), err)
}

// endLastRun ends the session that this node's last run has left, if this node is the
// only one of the lock service: as nobody else can open its log, that run is over, and
// there is no need to wait for its lease.
func (n *Node) endLastRun(ctx context.Context) error {
	group, _ := n.voter.group()
	if group == nil || !isAlone(group.Members(), n.id()) {
		return nil
	}
	last := n.instanceOf(n.id())
	if last.Session == 0 || last.Session == n.meta.current().ID() {
		return nil
	}
	return group.Service().CloseSession(ctx, last.Session)
}

// isAlone says whether a group is this node alone. One without members is another's: it has not added the
// node yet, or has added and removed it just before the node's last run ended, and leads nowhere here.
func isAlone(members []raftmeta.Member, id string) bool {
	return len(members) == 1 && members[0].ID == id
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
