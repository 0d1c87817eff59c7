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
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// The authority's key is on the voters of the lock service, one of which is the master, and on no other node. A new voter gets it from
// the master, a voter that lacks it from any other voter, and a node that stops voting deletes it.
const (
	// methodAuthority returns the authority's key of a voter: PEM, or nil if it has none.
	methodAuthority = "security.authority"
	// methodIssuer returns the fingerprint of the authority that a voter signs for: bytes, or nil if it signs for none, or does not vote.
	methodIssuer = "security.issuer"
)

// promotions are the nodes that this node, as master, is about to make voters.
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

// handleAuthority registers the methods between nodes about the authority's key.
func (n *Node) handleAuthority() {
	n.handleSecurity(methodIssuer, rpc.Spawned, func(c *rpc.Call) {
		a := n.security.issuer.Load()
		if group, _ := n.voter.group(); a == nil || group == nil { // it may be about to delete the key
			c.Reply(nil)
			return
		}
		f := a.Fingerprint()
		c.Reply(func(e *wire.Encoder) { e.Bin(f[:]) })
	})
	n.handleSecurity(methodAuthority, rpc.Spawned, func(c *rpc.Call) {
		var want []byte // the fingerprint of the wanted key; nil for the one in use
		if c.NumParams > 0 {
			want = bytes.Clone(c.Params.Bytes())
		}
		if err := c.Params.Err(); err != nil {
			reply.Fail(c, err)
			return
		}
		key, err := n.giveAuthority(c.Context(), authz.SubjectOf(c).Peer, want)
		if err != nil || key != nil {
			n.authz.Audit.Action(authz.SubjectOf(c), methodAuthority, "ca.key", err)
		}
		if err != nil {
			n.log.Warn("authority key not sent", "peer", authz.SubjectOf(c).Peer.String(), "err", err)
			reply.Fail(c, err)
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

// giveAuthority returns the authority's key for a node that votes, or that this node, as master, is about to make a voter; nil if this
// node does not have it.
func (n *Node) giveAuthority(ctx context.Context, to pki.Peer, want []byte) ([]byte, error) {
	group, _ := n.voter.group()
	if group == nil {
		return nil, fmt.Errorf("%w: this node does not vote", api.ErrUnavailable)
	}
	member := slices.ContainsFunc(group.Members(), func(m raftmeta.Member) bool { return m.ID == to.Name })
	if !member && !n.security.promoting.has(to.Name) {
		return nil, &rpc.Error{Code: rpc.CodePermissionDenied, Message: to.String() + " does not vote in the lock service"}
	}
	if err := n.removed.Check(ctx, to.Name); err != nil { // this also verifies that the group is current
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
	n.log.Info("authority key sent", "node", to.Name)
	return a.PEM()
}

// errNoAuthority means that the nodes that were called do not have the authority's key.
var errNoAuthority = errors.New("no other voter has the authority's key: no host can join and no certificate can be renewed until ca.key is restored from a copy")

// takeAuthority fetches the authority's key for this node, which votes or is about to. The caller holds voter.changing. Errors:
// errNoAuthority, those of the called nodes, and of the disk.
func (n *Node) takeAuthority(ctx context.Context, from []string) error {
	if n.security == nil || n.security.issuer.Load() != nil {
		return nil
	}
	var key []byte
	var errs []error
	none := false
	for _, id := range from {
		err := n.peers.Call(ctx, id, methodAuthority, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
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
		return fmt.Errorf("write the authority's key: %w", err)
	}
	n.security.issuer.Store(a)
	n.log.Info("authority key received: node signs certificates")
	return nil
}

const (
	authorityPause = 30 * time.Second
	authorityRetry = 2 * time.Second
	// authorityTimeout bounds one check: the master answers at once.
	authorityTimeout = 5 * time.Second
)

// keepAuthority fetches the authority's key while the node votes, and deletes it while it does not, until the node closes.
func (n *Node) keepAuthority() {
	if n.security == nil {
		return
	}
	logged := ""
	for {
		_, changed := n.voter.group()
		wait := authorityPause
		if err := n.settleAuthority(); err != nil && n.ctx.Err() == nil {
			wait = authorityRetry
			if text := err.Error(); text != logged {
				n.log.Warn("authority key not settled; retrying", "err", err)
				logged = text
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

// dropAuthority deletes the authority's key on this node, which does not vote, once it is certain that another node, usually the
// master, has it: the key cannot be recreated.
func (n *Node) dropAuthority(ctx context.Context, other string) error {
	var theirs []byte
	err := n.peers.Call(ctx, other, methodIssuer, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
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
		return fmt.Errorf("node %s does not have the authority's key, so this node keeps it although it does not vote", other)
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
	n.log.Info("authority key deleted: node does not vote")
	return nil
}

// methodRenew renews a node's certificate: [request, names and addresses], answered with an enrolment. Any node with the authority's
// key accepts it, for the caller only.
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
		node := authz.SubjectOf(c).Peer.Name
		got, err := n.renewFor(c.Context(), node, request, hosts)
		if err != nil {
			n.log.Warn("node certificate not renewed", "node", node, "err", err)
			reply.Fail(c, err)
			return
		}
		c.Reply(got.append)
	})
}

// renewFor signs another certificate of a node.
func (n *Node) renewFor(ctx context.Context, node string, request []byte, hosts []string) (*enrolment, error) {
	issuer := n.security.signs(rollover.Renew)
	if issuer == nil {
		return nil, fmt.Errorf("%w: this node does not have the authority's key", api.ErrUnavailable)
	}
	if err := n.removed.Check(ctx, node); errors.Is(err, removal.ErrRemoved) {
		return nil, &rpc.Error{Code: rpc.CodePermissionDenied, Message: err.Error()}
	} else if err != nil {
		return nil, err
	}
	now := time.Now()
	leaf, err := issuer.SignNode(request, node, hosts, now)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	n.log.Info("node certificate renewed", "node", node, "serial", leaf.SerialNumber.Text(16), "expires", leaf.NotAfter)
	return &enrolment{leaf: leaf.Raw, trust: n.security.endpoint.Credential().Trust().PEM(), now: now}, nil
}
