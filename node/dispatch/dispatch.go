package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
)

// Config is what the package needs.
type Config struct {
	ID          func() string // of the node
	Authz       *authz.Authorizer
	Peers       *peers.Set
	Serving     func() error  // returns nil while the node serves data
	CheckLeader func() error  // returns an error while the lock service has no leader
	MasterEpoch func() uint64 // 0 unless the node is the master
	LastMaster  func() (node string, epoch uint64)
}

// Dispatcher registers the methods of services at a node's port, and takes calls to them once the node serves data. It implements
// method.Registrar.
type Dispatcher struct {
	Config
	server *rpc.Server
	// forwardable has the handlers of methods that other nodes may forward.
	forwardable map[string]func(*rpc.Call)
}

// New creates a dispatcher for a port.
func New(cfg Config, server *rpc.Server) *Dispatcher {
	d := &Dispatcher{cfg, server, map[string]func(*rpc.Call){}}
	d.Early().Handle(MethodOnBehalf, rpc.Spawned, authz.Guard{}, d.onBehalf)
	return d
}

// Handle implements method.Registrar.
func (d *Dispatcher) Handle(method string, mode rpc.Mode, guard authz.Guard, h func(*rpc.Call)) {
	serve := func(c *rpc.Call) {
		if err := d.Serving(); err != nil {
			c.Fail(err)
			return
		}
		if guard.Leader != authz.LeaderUnused {
			if err := d.CheckLeader(); err != nil {
				c.Fail(err)
				return
			}
		}
		if guard.Master && (guard.Knows || !d.Authz.Open) && d.MasterEpoch() == 0 {
			if caller := authz.SubjectOf(c); d.Authz.Open || caller.Restricted() {
				d.forward(c, method, &guard, caller, h)
			} else {
				reply.Fail(c, changes.ErrNotMaster)
			}
			return
		}
		h(c)
	}
	d.forwardable[method] = serve
	d.register(method, mode, guard, serve)
}

func (d *Dispatcher) register(method string, mode rpc.Mode, guard authz.Guard, h func(*rpc.Call)) {
	d.Authz.Guard(guard, method)
	d.server.Handle(method, mode, h)
}

// HandleNames implements method.Registrar.
func (d *Dispatcher) HandleNames(method string, names int, guard authz.Guard, h method.NamesHandler) {
	d.Handle(method, rpc.Spawned, guard, d.names(method, names, guard, h))
}

// Early returns the registrar of methods that do not wait until the node serves data, and are not forwarded.
func (d *Dispatcher) Early() method.Registrar { return early{d} }

type early struct{ d *Dispatcher }

// Handle implements method.Registrar.
func (r early) Handle(method string, mode rpc.Mode, guard authz.Guard, h func(*rpc.Call)) {
	r.d.register(method, mode, guard, h)
}

// HandleNames implements method.Registrar.
func (r early) HandleNames(method string, names int, guard authz.Guard, h method.NamesHandler) {
	r.Handle(method, rpc.Spawned, guard, r.d.names(method, names, guard, h))
}

// Secured returns the registrar of methods that need certificates: on an open node they fail with api.ErrOpenCluster.
func (d *Dispatcher) Secured() method.Registrar { return secured{d} }

type secured struct{ d *Dispatcher }

// Handle implements method.Registrar.
func (r secured) Handle(method string, mode rpc.Mode, guard authz.Guard, h func(*rpc.Call)) {
	if r.d.Authz.Open {
		h = func(c *rpc.Call) { reply.Fail(c, api.ErrOpenCluster) }
	}
	r.d.Handle(method, mode, guard, h)
}

// HandleNames implements method.Registrar.
func (r secured) HandleNames(method string, names int, guard authz.Guard, h method.NamesHandler) {
	r.Handle(method, rpc.Spawned, guard, r.d.names(method, names, guard, h))
}

// names returns the handler of a method whose parameters are so many names.
func (d *Dispatcher) names(method string, names int, guard authz.Guard, h method.NamesHandler) func(*rpc.Call) {
	return func(c *rpc.Call) {
		c.Retain() // a change may outlive the call
		var r api.NamesRequest
		if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, method, names), &r.Options) {
			return
		}
		var result reply.Result
		by := authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: method}
		if names > 0 {
			by.Name = r.Names[0]
		}
		ctx := authz.WithRequest(authz.WithSubject(c.Context(), by.Caller), by)
		do := func(ctx context.Context) (err error) {
			result, err = h(ctx, &r)
			return err
		}
		var err error
		if guard.Leader == authz.LeaderThroughout {
			err = d.whileLeader(ctx, do)
		} else {
			err = do(ctx)
		}
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(result)
	}
}

// leaderPeriod is the interval at which waiting calls check for a leader.
const leaderPeriod = 200 * time.Millisecond

// whileLeader calls do, which needs the lock service and changes nothing, and cancels it with the error of CheckLeader if the leader is
// lost.
func (d *Dispatcher) whileLeader(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() { // ends with ctx, which this waits for
		defer close(ended)
		t := time.NewTicker(leaderPeriod)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if err := d.CheckLeader(); err != nil {
					cancel(err)
				}
			}
		}
	}()
	err := do(ctx)
	cause := context.Cause(ctx)
	cancel(nil)
	<-ended
	var noLeader *rpc.Error
	if err != nil && errors.As(cause, &noLeader) {
		return noLeader
	}
	return err
}
