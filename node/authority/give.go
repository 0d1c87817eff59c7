package authority

import (
	"bytes"
	"context"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

const (
	// MethodKey returns the authority's key of a voter: PEM, or nil if it has none. A parameter is the fingerprint of the wanted key.
	MethodKey = "security.authority"
	// MethodIssuer returns the fingerprint of the authority that a voter signs for: bytes, or nil if it signs for none, or does not vote.
	MethodIssuer = "security.issuer"
)

func (s *Service) votes() bool {
	votes, _ := s.Voter().Votes()
	return votes
}

// nameIssuer serves MethodIssuer.
func (s *Service) nameIssuer(c *rpc.Call) {
	a := s.issuer.Load()
	if a == nil || !s.votes() { // it may be about to delete the key
		c.Reply(nil)
		return
	}
	f := a.Fingerprint()
	c.Reply(func(e *wire.Encoder) { e.Bin(f[:]) })
}

// giveKey serves MethodKey.
func (s *Service) giveKey(c *rpc.Call) {
	var want []byte // the fingerprint of the wanted key; nil for the one in use
	if c.NumParams > 0 {
		want = bytes.Clone(c.Params.Bytes())
	}
	if err := c.Params.Err(); err != nil {
		reply.Fail(c, err)
		return
	}
	key, err := s.keyFor(c.Context(), authz.SubjectOf(c).Peer, want)
	if err != nil || key != nil {
		s.Authz.Audit.Action(authz.SubjectOf(c), MethodKey, "ca.key", err)
	}
	if err != nil {
		s.Log.Warn("authority key not sent", "peer", authz.SubjectOf(c).Peer.String(), "err", err)
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
}

// keyFor returns the authority's key for a node that votes, or that this node, as master, is about to make a voter; nil if this
// node does not have it.
func (s *Service) keyFor(ctx context.Context, to pki.Peer, want []byte) ([]byte, error) {
	if !s.votes() {
		return nil, fmt.Errorf("%w: this node does not vote", api.ErrUnavailable)
	}
	if !s.Voter().VotesToo(to.Name) && !s.promoting.has(to.Name) {
		return nil, &rpc.Error{Code: rpc.CodePermissionDenied, Message: to.String() + " does not vote in the lock service"}
	}
	if err := s.Check(ctx, to.Name); err != nil { // this also verifies that the group is current
		return nil, err
	}
	a := s.issuer.Load()
	if next := s.next.Load(); next != nil && want != nil {
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
	s.Log.Info("authority key sent", "node", to.Name)
	return a.PEM()
}

// askKey calls a node for the authority's key, or the one with a wanted fingerprint. It returns nil if the node does not have it.
func (s *Service) askKey(ctx context.Context, from string, want *pki.Fingerprint) (key []byte, err error) {
	err = s.Peers.Call(ctx, from, MethodKey, func(e *wire.Encoder) {
		if want == nil {
			e.Array(0)
			return
		}
		e.Array(1)
		e.Bin(want[:])
	}, func(d *wire.Decoder) error {
		if !d.IsNil() {
			key = bytes.Clone(d.Bytes())
		}
		return d.Err()
	})
	return key, err
}
