package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// MethodOnBehalf forwards a principal's request to the master's node:
// [method, name, generation, token id or "", address, parameters, certificate serial or ""]. Both nodes check the rights.
const MethodOnBehalf = "cluster.on_behalf"

// forwarded is what precedes the parameters of a forwarded request.
type forwarded struct {
	method  string
	caller  *authz.Subject
	tokenID string // of the caller, or ""
}

// decodeForwarded decodes a forwarded request up to its parameters, whose number it sets.
func decodeForwarded(c *rpc.Call) (f forwarded) {
	p := &c.Params
	f.method = p.Str()
	f.caller = &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: p.Str(), Generation: p.Uint()}, Forwarded: true}
	f.tokenID = p.Str()
	f.caller.From = p.Str()
	behind := *p
	behind.Raw() // the parameters
	f.caller.Peer.Serial = behind.Str()
	c.NumParams = p.Array()
	return f
}

// appendForwarded appends a request to be forwarded. In an open cluster there is no caller.
func appendForwarded(e *wire.Encoder, c *rpc.Call, caller *authz.Subject, params []byte) {
	if caller == nil {
		caller = &authz.Subject{}
	}
	name, generation, t := caller.Principal()
	tokenID, serial := "", caller.Peer.Serial
	if t != nil {
		tokenID, serial = t.Record.ID.String(), ""
	}
	e.Array(7)
	e.Str(c.Method())
	e.Str(name)
	e.Uint(generation)
	e.Str(tokenID)
	e.Str(caller.From)
	e.Array(c.NumParams)
	e.Raw(params)
	e.Str(serial)
}

// onBehalf serves a request that another node has forwarded.
func (d *Dispatcher) onBehalf(c *rpc.Call) {
	c.Retain() // as the forwarded methods do
	f := decodeForwarded(c)
	if err := c.Params.Err(); err != nil {
		c.Fail(api.ToRPC(err))
		return
	}
	g, h := d.Authz.Guards[f.method], d.forwardable[f.method]
	if h == nil || !g.Master {
		c.Fail(rpc.Errorf(rpc.CodeUnknownMethod, "%s: %.128q is not forwarded", MethodOnBehalf, f.method))
		return
	}
	if err := d.Serving(); err != nil {
		c.Fail(err)
		return
	}
	if d.Authz.Open {
		d.onBehalfOpen(c, h)
		return
	}
	if f.tokenID != "" {
		ctx, cancel := context.WithTimeout(c.Context(), authz.RightsTimeout)
		defer cancel()
		if err := d.Authz.Rights.RestoreToken(ctx, f.caller, f.tokenID); err != nil {
			c.Fail(reply.ToAPI(err))
			return
		}
	}
	c.SetIdentity(f.caller)
	if err := d.Authz.AdmitCall(c, f.method, &g); err != nil {
		c.Fail(err)
		return
	}
	h(c)
}

// onBehalfOpen is onBehalf in an open cluster, in which no request has a caller.
func (d *Dispatcher) onBehalfOpen(c *rpc.Call, serve func(*rpc.Call)) {
	if d.MasterEpoch() == 0 { // it would be forwarded again
		reply.Fail(c, changes.ErrNotMaster)
		return
	}
	serve(c)
}

// masterTime bounds the wait for a master, whatever the caller's deadline: an election takes a second or two, and callers in plain
// mode need not send a deadline.
const masterTime = 30 * time.Second

// forward forwards a principal's request to the master's node and returns its answer. If this node becomes the master meanwhile, it
// serves the request itself.
func (d *Dispatcher) forward(c *rpc.Call, method string, guard *authz.Guard, caller *authz.Subject, serve func(*rpc.Call)) {
	c.OnAnswer(nil) // the master's node checks and logs the request
	params := slices.Clone(c.Params.Rest())
	began := time.Now()
	pauses := timing.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for {
		if d.MasterEpoch() != 0 {
			d.serveAdmitted(c, method, guard, serve)
			return
		}
		var result []byte
		again, err := d.forwardOnce(c, caller, params, &result)
		if err == nil {
			c.Reply(func(e *wire.Encoder) { e.Raw(result) })
			return
		}
		if again {
			pauses.Sleep(c.Context())
		}
		if !again || c.Context().Err() != nil || time.Since(began) > masterTime {
			reply.Fail(c, err)
			return
		}
	}
}

// serveAdmitted serves a request on this node if its caller has the right to it.
func (d *Dispatcher) serveAdmitted(c *rpc.Call, method string, guard *authz.Guard, serve func(*rpc.Call)) {
	if !d.Authz.Open {
		if err := d.Authz.AdmitCall(c, method, guard); err != nil {
			c.Fail(err)
			return
		}
	}
	serve(c)
}

// forwardOnce forwards the request once. It may be repeated if nothing was executed, and there is or will be a master.
func (d *Dispatcher) forwardOnce(c *rpc.Call, caller *authz.Subject, params []byte, result *[]byte) (again bool, err error) {
	masterID, _ := d.LastMaster()
	if hops := caller != nil && caller.Forwarded; masterID == "" || masterID == d.ID() || hops {
		return !hops, changes.ErrNotMaster
	}
	err = d.Peers.Call(c.Context(), masterID, MethodOnBehalf, func(e *wire.Encoder) { appendForwarded(e, c, caller, params) }, func(answer *wire.Decoder) error {
		*result = slices.Clone(answer.Raw())
		return answer.Err()
	})
	var answer *rpc.Error
	var lost *rpc.ConnLostError
	switch {
	case err == nil:
		return false, nil
	case errors.As(err, &answer):
		return answer.Code == rpc.CodeUnavailable, err
	case errors.As(err, &lost) && lost.Sent, c.Context().Err() != nil:
		return false, reply.Recode(api.ErrOutcomeUnknown, fmt.Errorf("node %s did not answer: %w", masterID, err))
	}
	return true, fmt.Errorf("%w: the master's node %s cannot be reached: %s", api.ErrUnavailable, masterID, err.Error())
}
