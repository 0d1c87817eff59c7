package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

func serverPath(id string) string { return namespace.ServersDir + "/" + id }

// instance is the content of the file of a running node, as JSON.
type instance struct {
	Session metaapi.SessionID `json:"session"` // holds the lock
	RPC     string            `json:"rpc"`
}

// errOtherInstance means that another process runs as this node.
var errOtherInstance = errors.New("another process serves as this node")

// claimTimeout is how long a node waits for the lock of its own file: the session of its previous run may hold it for a lease.
const claimTimeout = 3*metaapi.LeaseDefault + time.Second

// hold acquires the lock that makes this process the node. It opens another session if the current one has expired, so a node that
// starts or returns during an outage waits for its end. The error is errOtherInstance or that of ctx.
func (n *Node) hold(ctx context.Context) error {
	for {
		var err error
		if n.meta.Current().Err() != nil {
			err = n.meta.Open(ctx, n.sessionName())
		}
		if err == nil {
			err = n.claim(ctx)
		}
		if err == nil || errors.Is(err, errOtherInstance) || ctx.Err() != nil {
			return err
		}
		n.log.Warn("server lock not acquired; retrying", "err", err)
		timing.Sleep(ctx, sessionRetry)
	}
}

// claim tries to acquire the lock with the current session. The error names the holder if another process has it.
func (n *Node) claim(ctx context.Context) error {
	if err := n.endLastRun(ctx); err != nil {
		return err
	}
	s := n.meta.Current()
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
	_, err = n.catalog.Set(ctx, serverPath(n.id()), b, metaapi.AnyGeneration)
	return err
}

// acquireServer waits for the lock of the node's file. A holder of claimTimeout is alive only if the leader has not changed
// meanwhile: a new leader extends the leases of dead sessions.
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

// endLastRun closes the session of the node's previous run, if this node is the only member of the lock service. No other process
// can open its log then, so the previous run is over and its lease need not be awaited.
func (n *Node) endLastRun(ctx context.Context) error {
	group, _ := n.voter.Group()
	if group == nil || !isOnlyMember(group.Members(), n.id()) {
		return nil
	}
	last := n.instanceOf(n.id())
	if last.Session == 0 || last.Session == n.meta.Current().ID() {
		return nil
	}
	return group.Service().CloseSession(ctx, last.Session)
}

// isOnlyMember reports whether this node is the group's only member. A group without members belongs to others: it has not added the
// node yet, or has removed it just before the node's previous run ended.
func isOnlyMember(members []raftmeta.Member, id string) bool {
	return len(members) == 1 && members[0].ID == id
}

// instanceOf returns the content of a node's file, or the zero value if it cannot be read.
func (n *Node) instanceOf(id string) (i instance) {
	ctx, cancel := context.WithTimeout(n.ctx, claimTimeout)
	defer cancel()
	if f, err := n.meta.Get(ctx, serverPath(id)); err == nil {
		_ = json.Unmarshal(f.Data, &i)
	}
	return i
}
