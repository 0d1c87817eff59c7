package lockclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/namespace"
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

// Hold acquires the lock that makes this process the node. It opens another session if the current one has expired, so a node that
// starts or returns during an outage waits for its end. The error is errOtherInstance or that of ctx.
func (cl *Client) Hold(ctx context.Context) error {
	for {
		var err error
		if cl.Meta.Current().Err() != nil {
			err = cl.Meta.Open(ctx, cl.sessionName())
		}
		if err == nil {
			err = cl.claim(ctx)
		}
		if err == nil || errors.Is(err, errOtherInstance) || ctx.Err() != nil {
			return err
		}
		cl.Log.Warn("server lock not acquired; retrying", "err", err)
		timing.Sleep(ctx, sessionRetry)
	}
}

// claim tries to acquire the lock with the current session. The error names the holder if another process has it.
func (cl *Client) claim(ctx context.Context) error {
	if err := cl.endLastRun(ctx); err != nil {
		return err
	}
	s := cl.Meta.Current()
	if cl.lock.Load() == nil || cl.lockOf != s {
		l, err := cl.acquireServer(ctx, s)
		if err != nil {
			return err
		}
		cl.lock.Store(l)
		cl.lockOf = s
	}
	b, err := json.Marshal(instance{Session: s.ID(), RPC: cl.Self.Address})
	if err != nil {
		return err
	}
	_, err = cl.Catalog.Set(ctx, serverPath(cl.Self.ID()), b, metaapi.AnyGeneration)
	return err
}

// acquireServer waits for the lock of the node's file. A holder of claimTimeout is alive only if the leader has not changed
// meanwhile: a new leader extends the leases of dead sessions.
func (cl *Client) acquireServer(ctx context.Context, s *session.Session) (*session.Lock, error) {
	state, changed := s.Changed()
	limited, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	l, err := s.Acquire(limited, serverPath(cl.Self.ID()), metaapi.Exclusive, session.LockOptions{})
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
		return nil, heldError(cl.instanceOf(cl.Self.ID()), cl.Self.ID(), cl.Self.Address)
	}
	return nil, fmt.Errorf("take the lock of %s: %w", serverPath(cl.Self.ID()), err)
}

// heldError returns why a node does not get the lock of its file. A holder at another address is another process that serves as the node. One
// at the node's own address can be only its previous run, which is over: the lock service has not ended its session yet, for example
// because the leader's disk stalls.
func heldError(holder instance, id, address string) error {
	if holder.RPC == address {
		return fmt.Errorf("the lock of %s is held by the session of its previous run", serverPath(id))
	}
	return fmt.Errorf("%w: node %s runs at %s: are these data folders a copy of its?", errOtherInstance, id, holder.RPC)
}

// endLastRun closes the session of the node's previous run, if this node is the only member of the lock service. No other process
// can open its log then, so the previous run is over and its lease need not be awaited.
func (cl *Client) endLastRun(ctx context.Context) error {
	group := cl.Group()
	if group == nil || !group.OnlyMember() {
		return nil
	}
	last := cl.instanceOf(cl.Self.ID())
	if last.Session == 0 || last.Session == cl.Meta.Current().ID() {
		return nil
	}
	return group.Service().CloseSession(ctx, last.Session)
}

// instanceOf returns the content of a node's file, or the zero value if it cannot be read.
func (cl *Client) instanceOf(id string) (i instance) {
	ctx, cancel := context.WithTimeout(cl.Ctx, claimTimeout)
	defer cancel()
	if f, err := cl.Meta.Get(ctx, serverPath(id)); err == nil {
		_ = json.Unmarshal(f.Data, &i)
	}
	return i
}
