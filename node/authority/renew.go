package authority

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// MethodRenew renews a node's certificate: [request, names and addresses], answered with a certs.Issued. Any node with the authority's
// key accepts it, for the caller only.
const MethodRenew = "security.renew"

// renewTimeout bounds the serving of MethodRenew.
const renewTimeout = 10 * time.Second

// renew serves MethodRenew.
func (s *Service) renew(c *rpc.Call) {
	c.SetTimeout(renewTimeout)
	if c.NumParams < 2 {
		c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: %d parameters, want request and names", MethodRenew, c.NumParams))
		return
	}
	request, hosts := bytes.Clone(c.Params.Bytes()), certs.DecodeNames(&c.Params, pki.HostsMax)
	if err := c.Params.Err(); err != nil {
		c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: %v", MethodRenew, err))
		return
	}
	node := authz.SubjectOf(c).Peer.Name
	got, err := s.renewFor(c.Context(), node, request, hosts)
	if err != nil {
		s.Log.Warn("node certificate not renewed", "node", node, "err", err)
		reply.Fail(c, err)
		return
	}
	c.Reply(got.Append)
}

// renewFor signs another certificate of a node.
func (s *Service) renewFor(ctx context.Context, node string, request []byte, hosts []string) (*certs.Issued, error) {
	issuer := s.NodeSigner()
	if issuer == nil {
		return nil, fmt.Errorf("%w: this node does not have the authority's key", api.ErrUnavailable)
	}
	if err := s.Check(ctx, node); errors.Is(err, removal.ErrRemoved) {
		return nil, &rpc.Error{Code: rpc.CodePermissionDenied, Message: err.Error()}
	} else if err != nil {
		return nil, err
	}
	now := time.Now()
	leaf, err := issuer.SignNode(request, node, hosts, now)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	s.Log.Info("node certificate renewed", "node", node, "serial", leaf.SerialNumber.Text(16), "expires", leaf.NotAfter)
	return &certs.Issued{Leaf: leaf.Raw, Trust: s.Transport().Credential().Trust().PEM(), Now: now}, nil
}

// issuersWait is how long a renewal waits until gossip knows nodes that sign: the node may have just started.
const issuersWait = 20 * time.Second

// RenewOwn obtains this node's next certificate. A node with the authority's key signs it itself; any other node asks the master, or
// another voter.
func (s *Service) RenewOwn(ctx context.Context, request []byte) (*x509.Certificate, *pki.Trust, error) {
	own := s.Transport().Credential()
	hosts := certs.WithLocal(own.Hosts(), s.Name) // the certificate may lack them
	if issuer := s.NodeSigner(); issuer != nil {
		leaf, err := issuer.SignNode(request, own.Peer().Name, hosts, time.Now())
		return leaf, own.Trust(), err
	}
	ids := s.Issuers()
	for wait := time.Now(); len(ids) == 0 && time.Since(wait) < issuersWait && ctx.Err() == nil; ids = s.Issuers() {
		timing.Sleep(ctx, 200*time.Millisecond)
	}
	var errs []error
	for _, id := range ids {
		got, err := s.askRenewal(ctx, id, request, hosts)
		if err != nil {
			errs = append(errs, fmt.Errorf("ask node %s to sign: %w", id, err))
			continue
		}
		certs.CheckClock(s.Log, got.Now)
		leaf, trust, err := got.Certificate()
		if err == nil && own.Trust().Signed(leaf) { // the lock service decides which authorities are trusted
			trust = own.Trust()
		}
		return leaf, trust, err
	}
	return nil, nil, cmp.Or(errors.Join(errs...), errors.New("no node that signs certificates is known"))
}

// askRenewal calls a node for another certificate of this node.
func (s *Service) askRenewal(ctx context.Context, id string, request []byte, hosts []string) (*certs.Issued, error) {
	got := &certs.Issued{}
	return got, s.Peers.Call(ctx, id, MethodRenew, func(e *wire.Encoder) {
		e.Array(2)
		e.Bin(request)
		certs.AppendNames(e, hosts)
	}, got.Decode)
}
