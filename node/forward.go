package node

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
	"github.com/steledb/stele/security/token"
)

// methodOnBehalf forwards a principal's request to the master's node:
// [method, name, generation, token id or "", address, parameters, certificate serial or ""]. Both nodes check the rights.
const methodOnBehalf = "cluster.on_behalf"

func (n *Node) handleOnBehalf() {
	n.rpc.Handle(methodOnBehalf, rpc.Spawned, func(c *rpc.Call) {
		c.Retain() // as the forwarded methods do
		d := &c.Params
		method := d.Str()
		caller := &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: d.Str(), Generation: d.Uint()}, Forwarded: true}
		shownID := d.Str()
		caller.From = d.Str()
		behind := *d
		behind.Raw() // the parameters
		caller.Peer.Serial = behind.Str()
		c.NumParams = d.Array()
		g, h := guards[method], n.forwardable[method]
		switch {
		case d.Err() != nil:
			c.Fail(api.ToRPC(d.Err()))
			return
		case h == nil || !g.Master:
			c.Fail(rpc.Errorf(rpc.CodeUnknownMethod, "%s: %.128q is not forwarded", methodOnBehalf, method))
			return
		case !n.serving.Load():
			c.Fail(n.notServing())
			return
		}
		if shownID != "" {
			ctx, cancel := context.WithTimeout(c.Context(), authz.RightsTimeout)
			defer cancel()
			if err := n.restoreToken(ctx, caller, shownID); err != nil {
				c.Fail(reply.ToAPI(err))
				return
			}
		}
		c.SetIdentity(caller)
		if err := n.authz.AdmitCall(c, method, &g); err != nil {
			c.Fail(err)
			return
		}
		h(c)
	})
}

// restoreToken sets the token of a forwarded subject, which another node has verified.
func (n *Node) restoreToken(ctx context.Context, caller *authz.Subject, text string) error {
	id, err := token.ParseID(text)
	if err != nil {
		return err
	}
	gone := &api.IdentityError{Reason: api.IdentityRevoked, Text: "token was revoked: have a new one made"}
	b, err := n.authz.Rights.Files.Get(ctx, authz.TokenPath(id))
	switch {
	case err != nil:
		return n.authz.Rights.Recode(err)
	case b == nil:
		return gone
	}
	r, err := token.DecodeAccess(b)
	if err != nil {
		return err
	}
	if r.Principal != caller.Peer.Name || r.Generation != caller.Peer.Generation {
		return gone
	}
	caller.CredentialToken.Store(&authz.CredentialToken{Record: r})
	return nil
}

// isMaster reports whether this node is the master.
func (n *Node) isMaster() bool { return n.master.Epoch() != 0 }

// masterTime bounds the wait for a master, whatever the caller's deadline: an election takes a second or two, and callers in plain
// mode need not send a deadline.
const masterTime = 30 * time.Second

// forward forwards a principal's request to the master's node and returns its answer. If this node becomes the master meanwhile, it
// serves the request itself.
func (n *Node) forward(c *rpc.Call, method string, caller *authz.Subject, serve func(*rpc.Call)) {
	c.OnAnswer(nil) // the master's node checks and logs the request
	params := slices.Clone(c.Params.Rest())
	began := time.Now()
	pauses := timing.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for {
		if n.isMaster() {
			g := guards[method]
			if err := n.authz.AdmitCall(c, method, &g); err != nil {
				c.Fail(err)
				return
			}
			serve(c)
			return
		}
		var result []byte
		again, err := n.forwardOnce(c, caller, params, &result)
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

// forwardOnce forwards the request once. It may be repeated if nothing was executed, and there is or will be a master.
func (n *Node) forwardOnce(c *rpc.Call, caller *authz.Subject, params []byte, result *[]byte) (again bool, err error) {
	masterID, _ := n.epochs.Last()
	if masterID == "" || masterID == n.id() || caller.Forwarded {
		return !caller.Forwarded, changes.ErrNotMaster
	}
	name, generation, s := caller.Principal()
	err = n.peers.Call(c.Context(), masterID, methodOnBehalf, func(e *wire.Encoder) {
		e.Array(7)
		e.Str(c.Method())
		e.Str(name)
		e.Uint(generation)
		if s != nil {
			e.Str(s.Record.ID.String())
		} else {
			e.Str("")
		}
		e.Str(caller.From)
		e.Array(c.NumParams)
		e.Raw(params)
		if s == nil {
			e.Str(caller.Peer.Serial)
		} else {
			e.Str("")
		}
	}, func(d *wire.Decoder) error {
		*result = slices.Clone(d.Raw())
		return d.Err()
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
