package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/internal/timing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// methodOnBehalf forwards a principal's request to the master's node:
// [method, name, generation, token id or "", address, parameters, certificate serial or ""]. Both nodes check the rights.
const methodOnBehalf = "cluster.on_behalf"

var errNotMaster = fmt.Errorf("%w: the node is not the master", api.ErrUnavailable)

func (n *Node) handleOnBehalf() {
	n.rpc.Handle(methodOnBehalf, rpc.Spawned, func(c *rpc.Call) {
		c.Keep() // as the forwarded methods do
		d := &c.Params
		method := d.Str()
		who := &subject{peer: pki.Peer{Kind: pki.Principal, Name: d.Str(), Generation: d.Uint()}, passed: true}
		shownID := d.Str()
		who.from = d.Str()
		behind := *d
		behind.Raw() // the parameters
		who.peer.Serial = behind.Str()
		c.NumParams = d.Array()
		g, h := guards[method], n.passable[method]
		switch {
		case d.Err() != nil:
			c.Fail(api.ToRPC(d.Err()))
			return
		case h == nil || !g.master:
			c.Fail(rpc.Errorf(rpc.CodeUnknownMethod, "%s: %.128q is not forwarded", methodOnBehalf, method))
			return
		case !n.serving.Load():
			c.Fail(n.notServing())
			return
		}
		if shownID != "" {
			ctx, cancel := context.WithTimeout(c.Context(), rightsTimeout)
			defer cancel()
			if err := n.reshow(ctx, who, shownID); err != nil {
				c.Fail(toAPI(err))
				return
			}
		}
		c.SetIdentity(who)
		if err := n.authz.letIn(c, method, &g); err != nil {
			c.Fail(err)
			return
		}
		h(c)
	})
}

// reshow sets the token of a forwarded subject, which another node has verified.
func (n *Node) reshow(ctx context.Context, who *subject, text string) error {
	id, err := token.ParseID(text)
	if err != nil {
		return err
	}
	gone := &api.IdentityError{Reason: api.IdentityRevoked, Text: "token was revoked: have a new one made"}
	b, err := n.authz.rights.files.Get(ctx, tokenPath(id))
	switch {
	case err != nil:
		return n.authz.rights.told(err)
	case b == nil:
		return gone
	}
	r, err := token.DecodeAccess(b)
	if err != nil {
		return err
	}
	if r.Principal != who.peer.Name || r.Generation != who.peer.Generation {
		return gone
	}
	who.shown.Store(&shown{record: r})
	return nil
}

// isMaster reports whether this node is the master.
func (n *Node) isMaster() bool { return n.master.Epoch() != 0 }

// masterTime bounds the wait for a master, whatever the caller's deadline: an election takes a second or two, and callers in plain
// mode need not send a deadline.
const masterTime = 30 * time.Second

// passOn forwards a principal's request to the master's node and returns its answer. If this node becomes the master meanwhile, it
// serves the request itself.
func (n *Node) passOn(c *rpc.Call, method string, who *subject, serve func(*rpc.Call)) {
	c.OnAnswer(nil) // the master's node checks and logs the request
	params := slices.Clone(c.Params.Rest())
	began := time.Now()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if n.isMaster() {
			g := guards[method]
			if err := n.authz.letIn(c, method, &g); err != nil {
				c.Fail(err)
				return
			}
			serve(c)
			return
		}
		var result []byte
		again, err := n.passOnce(c, who, params, &result)
		if err == nil {
			c.Reply(func(e *wire.Encoder) { e.Raw(result) })
			return
		}
		if again {
			timing.Sleep(c.Context(), wait)
		}
		if !again || c.Context().Err() != nil || time.Since(began) > masterTime {
			fail(c, err)
			return
		}
	}
}

// passOnce forwards the request once. It may be repeated if nothing was executed, and there is or will be a master.
func (n *Node) passOnce(c *rpc.Call, who *subject, params []byte, result *[]byte) (again bool, err error) {
	boss, _ := n.epochs.last()
	if boss == "" || boss == n.id() || who.passed {
		return !who.passed, errNotMaster
	}
	name, generation, s := who.principal()
	err = n.peers.call(c.Context(), boss, methodOnBehalf, func(e *wire.Encoder) {
		e.Array(7)
		e.Str(c.Method())
		e.Str(name)
		e.Uint(generation)
		if s != nil {
			e.Str(s.record.ID.String())
		} else {
			e.Str("")
		}
		e.Str(who.from)
		e.Array(c.NumParams)
		e.Raw(params)
		if s == nil {
			e.Str(who.peer.Serial)
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
		return false, told(api.ErrUnsure, fmt.Errorf("node %s did not answer: %w", boss, err))
	}
	return true, fmt.Errorf("%w: the master's node %s cannot be reached: %s", api.ErrUnavailable, boss, err.Error())
}
