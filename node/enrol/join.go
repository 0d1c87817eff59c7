package enrol

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/hostgate"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// joinTimeout bounds the serving of MethodJoin.
const joinTimeout = 10 * time.Second

// joinLimits bounds join requests, on the node that receives them and on the master's node. Both count by the address of the joining
// host. Each request costs a signature check and a read at the leader of the lock service.
var joinLimits = hostgate.Limits{
	RequestsMax: 16, RequestsOfHost: 4, RefusalsMax: 10, Refusal: isJoinRefusal,
	TooManyRefusals: "too many join requests were rejected", TooManyRequests: "too many hosts are joining at once",
}

// isJoinRefusal reports whether a request counts against its host. It does not if there is no master. It does if the master's node
// rejects it unread, so that a node forwards no flood; a host that waits between its requests stays far below the limit.
func isJoinRefusal(err error) bool {
	err = api.FromRPC(err)
	return !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, rpc.ErrConnLost)
}

// joinOrigin returns the address of the joining host. Only nodes forward requests of others, and are trusted to name the address.
func joinOrigin(c *rpc.Call, claimed string) string {
	if authz.SubjectOf(c).Peer.Kind == pki.Node {
		if _, err := netip.ParseAddrPort(claimed); err == nil {
			return claimed
		}
	}
	return c.Peer().Addr.String()
}

// join serves MethodJoin.
func (s *Service) join(c *rpc.Call) {
	var r joinRequest
	if err := r.decode(&c.Params, c.NumParams); err != nil {
		c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: %v", MethodJoin, err))
		return
	}
	r.from = joinOrigin(c, r.from)
	c.SetTimeout(joinTimeout)
	leave, err := s.joins.Enter(advertise.Host(r.from))
	if err != nil {
		reply.Fail(c, err)
		return
	}
	got := &certs.Issued{}
	if s.IsMaster() {
		got, err = s.enrol(c.Context(), &r)
		s.Authz.Audit.Join(authz.SubjectOf(c), MethodJoin, authz.HostJoin{Node: r.node, Token: r.text, From: r.from}, err)
	} else {
		err = s.forward(c, &r, got)
	}
	leave(err)
	if answer := (*rpc.Error)(nil); err != nil && !errors.As(err, &answer) && errors.Is(err, rpc.ErrConnLost) {
		err = fmt.Errorf("%w: %w", api.ErrUnavailable, err) // the host may retry
	}
	if err != nil {
		s.Refused.WarnError(s.Log, "join request rejected", errors.New(token.Scrub(err.Error())), "peer", advertise.Host(r.from))
		reply.Fail(c, err)
		return
	}
	c.Reply(got.Append)
}

// forward forwards a request to the master's node, which alone writes security data to the lock service. A forwarded request is not
// forwarded again.
func (s *Service) forward(c *rpc.Call, r *joinRequest, got *certs.Issued) error {
	masterID, _ := s.Epochs.Last()
	if masterID == "" || masterID == s.ID() || authz.SubjectOf(c).Peer.Kind == pki.Node {
		return changes.ErrNotMaster
	}
	err := s.Peers.Call(c.Context(), masterID, MethodJoin, r.append, got.Decode)
	var lost *rpc.ConnLostError
	var answer *rpc.Error
	if err == nil || errors.As(err, &answer) || errors.As(err, &lost) && lost.Sent {
		return err
	}
	return fmt.Errorf("%w: call the master's node: %w", api.ErrUnavailable, err)
}

// enrol enrols a host on the master's node: it consumes the token, durably, before anything is signed.
func (s *Service) enrol(ctx context.Context, r *joinRequest) (*certs.Issued, error) {
	issuer := s.Signer()
	if issuer == nil {
		return nil, fmt.Errorf("%w: the master's node does not have the authority's key, ca.key", api.ErrUnavailable)
	}
	t, err := token.Parse(r.text)
	if err != nil {
		return nil, refusedToken(t.ID(), err)
	}
	key, err := r.check()
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	gossipKeys := s.GossipKeys() // read before the check for removal: a removed node gets no key that is made later
	if err := s.spend(ctx, t, token.Use{Node: r.node, Key: key}); err != nil {
		return nil, err
	}
	now := time.Now()
	leaf, err := issuer.SignNode(r.request, r.node, r.hosts, now)
	if err != nil {
		return nil, err
	}
	s.Log.Info("host enrolled", "node", r.node, "host", r.from, "token", t.ID().String(), "serial", leaf.SerialNumber.Text(16), "expires", leaf.NotAfter)
	return &certs.Issued{Leaf: leaf.Raw, Trust: s.Transport().Credential().Trust().PEM(), GossipKeys: gossipKeys, Members: s.members(), Now: now}, nil
}

// spend consumes a token for a node, one at a time: checks made before a token is written must still hold when it is. Errors:
// *api.TokenRefusedError, those of the lock service.
func (s *Service) spend(ctx context.Context, t token.Token, use token.Use) error {
	select {
	case s.spending <- struct{}{}:
		defer func() { <-s.spending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		if again, err := s.spendNow(ctx, t, use); err != nil || !again {
			return err
		}
	}
}

// spendNow reads the token and writes that it is consumed. It returns again if the record may have changed meanwhile.
func (s *Service) spendNow(ctx context.Context, t token.Token, use token.Use) (again bool, err error) {
	kept, err := s.joinToken(ctx, t.ID())
	if err != nil {
		return false, err
	}
	next, err := kept.Spend(t, use.Node, use.Key, time.Now())
	if err != nil {
		return false, refusedToken(t.ID(), err)
	}
	if err := s.checkMayJoin(ctx, kept.JoinRecord, use); err != nil {
		return false, err
	}
	if next == kept.JoinRecord {
		return false, nil // repeated: its answer was lost
	}
	o, err := s.Changes.MasterOption(ctx)
	if err != nil {
		return false, err
	}
	_, err = s.Meta.SetGuarded(ctx, pathOf(t.ID()), next.Encode(), kept.gen, o)
	switch {
	case err == nil:
		return false, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case !errors.Is(err, metaapi.ErrGeneration) && !errors.Is(err, metaapi.ErrOutcomeUnknown):
		return false, changes.NotMasterNow(err)
	}
	return true, nil
}

// checkMayJoin rejects the id of another node. A host chooses its own id, so with any token it could otherwise become any node.
func (s *Service) checkMayJoin(ctx context.Context, t *token.JoinRecord, use token.Use) error {
	refused := func(reason, format string, args ...any) error {
		return &api.TokenRefusedError{Reason: reason, ID: t.ID.String(), Text: fmt.Sprintf(format, args...)}
	}
	if err := s.Check(ctx, use.Node); errors.Is(err, removal.ErrRemoved) {
		return refused(api.TokenRemoved, "%v", err)
	} else if err != nil {
		return err
	}
	if t.Node != "" {
		return nil // Spend has checked that it is this node
	}
	taken := func() error {
		return refused(api.TokenTaken, "node %s exists: if this is its host and its certificate has expired, use a token created with --node", use.Node)
	}
	if _, err := s.Meta.Get(ctx, namespace.NodePath(use.Node)); err == nil && !slices.Contains(t.Spent, use) {
		return taken()
	} else if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return err
	}
	others, err := s.spentWithAnotherKey(ctx, use)
	if err == nil && others {
		err = taken()
	}
	return err
}

// spentWithAnotherKey reports whether a token was consumed for the same node, but for another key.
func (s *Service) spentWithAnotherKey(ctx context.Context, use token.Use) (bool, error) {
	all, err := s.joinTokens(ctx)
	return slices.ContainsFunc(all, func(t joinToken) bool {
		return slices.ContainsFunc(t.Spent, func(u token.Use) bool { return u.Node == use.Node && u.Key != use.Key })
	}), err
}
