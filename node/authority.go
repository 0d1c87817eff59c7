package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// The authority's key is with the voters of the lock service, of which the master is one, and
// with nobody else: a voter-to-be gets it from the master, one that lacks it from any other,
// and who has no vote any more deletes it.
const (
	// methodAuthority asks a voter for the authority's key: PEM, or nil if it has none.
	methodAuthority = "security.authority"
	// methodIssuer asks a voter for the fingerprint of the authority that it signs for: bytes,
	// or nil if it signs for none, or does not vote.
	methodIssuer = "security.issuer"
)

// promotions are the nodes that this one, as master, is about to give a vote.
type promotions struct {
	mu    sync.Mutex
	count map[string]int
}

func (p *promotions) begin(id string) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == nil {
		p.count = map[string]int{}
	}
	p.count[id]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.count[id]--; p.count[id] == 0 {
			delete(p.count, id)
		}
	}
}

func (p *promotions) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[id] > 0
}

// handleAuthority registers what nodes ask each other about the authority's key.
func (n *Node) handleAuthority() {
	n.handleSecurity(methodIssuer, rpc.Spawned, func(c *rpc.Call) {
		a := n.security.issuer.Load()
		if group, _ := n.voter.group(); a == nil || group == nil { // it may be about to delete it
			c.Reply(nil)
			return
		}
		f := a.Fingerprint()
		c.Reply(func(e *wire.Encoder) { e.Bin(f[:]) })
	})
	n.handleSecurity(methodAuthority, rpc.Spawned, func(c *rpc.Call) {
		var want []byte // the fingerprint of one of two; nodes of earlier versions want that in use
		if c.NumParams > 0 {
			want = bytes.Clone(c.Params.Bytes())
		}
		if err := c.Params.Err(); err != nil {
			fail(c, err)
			return
		}
		key, err := n.giveAuthority(c.Context(), subjectOf(c).peer, want)
		if err != nil || key != nil {
			n.audit.action(subjectOf(c), methodAuthority, "ca.key", err)
		}
		if err != nil {
			n.log.Warn("the authority's key was not given", "to", subjectOf(c).peer.String(), "because", err)
			fail(c, err)
			return
		}
		c.Reply(func(e *wire.Encoder) {
			if key == nil {
				e.Nil()
				return
			}
			e.Bin(key)
		})
	})
}

// giveAuthority returns the authority's key for a node that votes, or that this one, as
// master, is about to give a vote; nil if this one has it not.
func (n *Node) giveAuthority(ctx context.Context, to pki.Peer, want []byte) ([]byte, error) {
	group, _ := n.voter.group()
	if group == nil {
		return nil, fmt.Errorf("%w: this node does not vote", api.ErrUnavailable)
	}
	member := slices.ContainsFunc(group.Members(), func(m raftmeta.Member) bool { return m.ID == to.Name })
	if !member && !n.security.promoting.has(to.Name) {
		return nil, &rpc.Error{Code: rpc.CodePermissionDenied, Message: to.String() + " has no vote in the lock service, and is given none"}
	}
	if err := n.checkNotRemoved(ctx, to.Name); err != nil { // which also tells that the group is not an old one
		return nil, err
	}
	a := n.security.issuer.Load()
	if next := n.security.next.Load(); next != nil && want != nil {
		if f := next.Fingerprint(); bytes.Equal(f[:], want) {
			a = next
		}
	}
	if a == nil {
		return nil, nil
	}
	if f := a.Fingerprint(); want != nil && !bytes.Equal(f[:], want) {
		return nil, nil
	}
	n.log.Info("the authority's key goes to a voter", "node", to.Name)
	return a.PEM()
}

// errNoAuthority means that those who were asked for the authority's key have it not.
var errNoAuthority = errors.New("no other voter has the authority's key: nobody can join and no certificate be renewed until ca.key is put back from a copy")

// takeAuthority makes this node, which votes or is about to, an issuer. The caller holds
// voter.changing. Errors: errNoAuthority, those of who was asked, and of the disk.
func (n *Node) takeAuthority(ctx context.Context, from []string) error {
	if n.security == nil || n.security.issuer.Load() != nil {
		return nil
	}
	var key []byte
	var errs []error
	none := false
	for _, id := range from {
		err := n.peers.call(ctx, id, methodAuthority, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
			if d.IsNil() {
				none = true
			} else {
				key = bytes.Clone(d.Bytes())
			}
			return d.Err()
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("get the authority's key from node %s: %w", id, err))
		}
		if key != nil {
			break
		}
	}
	switch {
	case key == nil && none:
		return errNoAuthority
	case key == nil:
		return errors.Join(errs...)
	}
	a, err := pki.ParseAuthority(key)
	if err != nil {
		return fmt.Errorf("read the authority's key: %w", err)
	}
	if err := n.keys().SetAuthority(a); err != nil {
		return fmt.Errorf("keep the authority's key: %w", err)
	}
	n.security.issuer.Store(a)
	n.log.Info("this node votes, and signs certificates")
	return nil
}

const (
	authorityPause = 30 * time.Second
	authorityRetry = 2 * time.Second
	// authorityTimeout bounds one look: the master answers at once.
	authorityTimeout = 5 * time.Second
)

// keepAuthority sees, until the node closes, that it has the authority's key if it votes, and
// has it not if it does not.
func (n *Node) keepAuthority() {
	if n.security == nil {
		return
	}
	told := ""
	for {
		_, changed := n.voter.group()
		wait := authorityPause
		if err := n.settleAuthority(); err != nil && n.ctx.Err() == nil {
			wait = authorityRetry
			if text := err.Error(); text != told {
				n.log.Warn("the authority's key is not yet where it should be", "error", err)
				told = text
			}
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-n.ctx.Done():
			return
		}
	}
}

func (n *Node) settleAuthority() error {
	ctx, cancel := context.WithTimeout(n.ctx, authorityTimeout)
	defer cancel()
	group, _ := n.voter.group()
	from := n.issuers()
	if len(from) == 0 || (group != nil) == (n.security.issuer.Load() != nil) {
		return nil
	}
	if group == nil {
		return n.dropAuthority(ctx, from[0])
	}
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	if group, _ := n.voter.group(); group == nil {
		return nil
	}
	return n.takeAuthority(ctx, from)
}

// dropAuthority deletes the authority's key on this node, which does not vote, once it is
// sure that another node, the master mostly, has it: nobody could make it anew.
func (n *Node) dropAuthority(ctx context.Context, other string) error {
	var theirs []byte
	err := n.peers.call(ctx, other, methodIssuer, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
		if !d.IsNil() {
			theirs = bytes.Clone(d.Bytes())
		}
		return d.Err()
	})
	if err != nil {
		return err
	}
	own := n.security.issuer.Load().Fingerprint()
	if !bytes.Equal(theirs, own[:]) {
		return fmt.Errorf("node %s has not the authority's key, so this one keeps it though it does not vote", other)
	}
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	if group, _ := n.voter.group(); group != nil {
		return nil // it votes again
	}
	if err := n.keys().DropAuthority(); err != nil {
		return err
	}
	n.security.issuer.Store(nil)
	n.security.next.Store(nil)
	n.log.Info("this node does not vote, and signs no certificates any more: the authority's key is deleted here")
	return nil
}

// methodRenew has a node's certificate renewed: [request, names and addresses], answered with
// an enrolment. Any issuer takes it, for its caller and nobody else.
const methodRenew = "security.renew"

func (n *Node) handleRenew() {
	n.handleSecurity(methodRenew, rpc.Spawned, func(c *rpc.Call) {
		c.SetTimeout(joinTimeout)
		if c.NumParams < 2 {
			c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: %d parameters, want request and names", methodRenew, c.NumParams))
			return
		}
		request, hosts := bytes.Clone(c.Params.Bytes()), decodeTexts(&c.Params, joinHostsMax)
		if err := c.Params.Err(); err != nil {
			c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: %v", methodRenew, err))
			return
		}
		node := subjectOf(c).peer.Name
		got, err := n.renewFor(c.Context(), node, request, hosts)
		if err != nil {
			n.log.Warn("a node's certificate was not renewed", "node", node, "because", err)
			fail(c, err)
			return
		}
		c.Reply(got.append)
	})
}

// renewFor signs another certificate of a node.
func (n *Node) renewFor(ctx context.Context, node string, request []byte, hosts []string) (*enrolment, error) {
	issuer := n.security.signs(rollover.Renew)
	if issuer == nil {
		return nil, fmt.Errorf("%w: this node has not the authority's key", api.ErrUnavailable)
	}
	var gone *removedError
	if err := n.checkNotRemoved(ctx, node); errors.As(err, &gone) {
		return nil, &rpc.Error{Code: rpc.CodePermissionDenied, Message: err.Error()}
	} else if err != nil {
		return nil, err
	}
	now := time.Now()
	leaf, err := issuer.SignNode(request, node, hosts, now)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	n.log.Info("a node's certificate was renewed", "node", node, "serial", leaf.SerialNumber.Text(16), "expires", leaf.NotAfter)
	return &enrolment{leaf: leaf.Raw, trust: n.security.endpoint.Credential().Trust().PEM(), now: now}, nil
}
