package node

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/hostgate"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
	"github.com/steledb/stele/security/token"
)

const (
	// methodJoinToken enrols a host as a node, or a node whose certificate has expired: a joinRequest, answered with an enrolment. Any
	// node accepts it and forwards it to the master's node.
	methodJoinToken = "security.join"

	joinHostsMax = pki.HostsMax // names and addresses in a certificate
	joinTimeout  = 10 * time.Second
)

// joinRequest is the request of a host to join: [token, certificate request, node id, its names and addresses, address].
type joinRequest struct {
	text    string // of the token
	request []byte
	node    string
	hosts   []string
	// from is the address of the host, set by the node that received the request: see joinOrigin.
	from string
}

func (r *joinRequest) append(e *wire.Encoder) {
	e.Array(5)
	e.Str(r.text)
	e.Bin(r.request)
	e.Str(r.node)
	appendTexts(e, r.hosts)
	e.Str(r.from)
}

func (r *joinRequest) decode(d *wire.Decoder, n int) error {
	if n < 4 {
		return fmt.Errorf("%d parameters, want token, request, node and names", n)
	}
	*r = joinRequest{text: d.Str(), request: slices.Clone(d.Bytes()), node: d.Str(), hosts: decodeTexts(d, joinHostsMax)}
	if n > 4 {
		r.from = d.Str()
	}
	return d.Err()
}

func appendTexts(e *wire.Encoder, all []string) {
	e.Array(len(all))
	for _, s := range all {
		e.Str(s)
	}
}

func decodeTexts(d *wire.Decoder, most int) (all []string) {
	for range d.ArrayMax(most) {
		all = append(all, d.Str())
	}
	return all
}

// enrolment makes a host a node: [certificate, authorities, gossip keys, addresses of members, the signer's time in milliseconds]. A
// renewal has no keys and members.
type enrolment struct {
	leaf       []byte // DER
	trust      []byte // PEM
	gossipKeys [][]byte
	members    []string
	now        time.Time
}

func (r *enrolment) append(e *wire.Encoder) {
	e.Array(5)
	e.Bin(r.leaf)
	e.Bin(r.trust)
	e.Array(len(r.gossipKeys))
	for _, k := range r.gossipKeys {
		e.Bin(k)
	}
	appendTexts(e, r.members)
	e.Uint(uint64(r.now.UnixMilli()))
}

// Bounds of an enrolment that is read.
const (
	enrolmentKeysMax    = 4
	enrolmentMembersMax = 16
)

func (r *enrolment) decode(d *wire.Decoder) error {
	if n := d.Array(); d.Err() == nil && n < 5 {
		return fmt.Errorf("enrolment of %d values, want 5", n)
	}
	*r = enrolment{leaf: slices.Clone(d.Bytes()), trust: slices.Clone(d.Bytes())}
	for range d.ArrayMax(enrolmentKeysMax) {
		r.gossipKeys = append(r.gossipKeys, slices.Clone(d.Bytes()))
	}
	r.members = decodeTexts(d, enrolmentMembersMax)
	r.now = time.UnixMilli(int64(d.Uint()))
	return d.Err()
}

// certificate returns the certificate and the trusted authorities.
func (r *enrolment) certificate() (*x509.Certificate, *pki.Trust, error) {
	leaf, err := x509.ParseCertificate(r.leaf)
	if err != nil {
		return nil, nil, fmt.Errorf("read the issued certificate: %w", err)
	}
	trust, err := pki.ParseTrust(r.trust)
	return leaf, trust, err
}

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

// handleJoinHost registers the method by which hosts join.
func (n *Node) handleJoinHost() {
	n.handleSecurity(methodJoinToken, rpc.Spawned, func(c *rpc.Call) {
		var r joinRequest
		if err := r.decode(&c.Params, c.NumParams); err != nil {
			c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: %v", methodJoinToken, err))
			return
		}
		r.from = joinOrigin(c, r.from)
		c.SetTimeout(joinTimeout)
		leave, err := n.security.joins.Enter(hostOf(r.from))
		if err != nil {
			reply.Fail(c, err)
			return
		}
		got := &enrolment{}
		if n.isMaster() {
			got, err = n.joinHost(c.Context(), &r)
			n.authz.Audit.Join(authz.SubjectOf(c), methodJoinToken, authz.HostJoin{Node: r.node, Token: r.text, From: r.from}, err)
		} else {
			err = n.passJoin(c, &r, got)
		}
		leave(err)
		if answer := (*rpc.Error)(nil); err != nil && !errors.As(err, &answer) && errors.Is(err, rpc.ErrConnLost) {
			err = fmt.Errorf("%w: %w", api.ErrUnavailable, err) // the host may retry
		}
		if err != nil {
			n.refused.WarnError(n.log, "join request rejected", errors.New(token.Scrub(err.Error())), "peer", hostOf(r.from))
			reply.Fail(c, err)
			return
		}
		c.Reply(got.append)
	})
}

// passJoin forwards a request to the master's node, which alone writes security data to the lock service. A forwarded request is not
// forwarded again.
func (n *Node) passJoin(c *rpc.Call, r *joinRequest, got *enrolment) error {
	masterID, _ := n.epochs.Last()
	if masterID == "" || masterID == n.id() || authz.SubjectOf(c).Peer.Kind == pki.Node {
		return changes.ErrNotMaster
	}
	err := n.peers.Call(c.Context(), masterID, methodJoinToken, r.append, got.decode)
	var lost *rpc.ConnLostError
	var answer *rpc.Error
	if err == nil || errors.As(err, &answer) || errors.As(err, &lost) && lost.Sent {
		return err
	}
	return fmt.Errorf("%w: call the master's node: %w", api.ErrUnavailable, err)
}

// joinHost enrols a host on the master's node: it consumes the token, durably, before anything is signed.
func (n *Node) joinHost(ctx context.Context, r *joinRequest) (*enrolment, error) {
	issuer := n.security.signs(rollover.Renew)
	if issuer == nil {
		return nil, fmt.Errorf("%w: the master's node does not have the authority's key, ca.key", api.ErrUnavailable)
	}
	t, err := token.Parse(r.text)
	if err != nil {
		return nil, refusedToken(t.ID(), err)
	}
	key, err := pki.KeyHash(r.request)
	if err == nil {
		err = pki.CheckName("id of a node", r.node)
	}
	for _, h := range r.hosts {
		err = errors.Join(err, pki.CheckHost(h))
	}
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	gossipKeys := n.gossipKeys() // read before the check for removal: a removed node gets no key that is made later
	if err := n.spend(ctx, t, token.Use{Node: r.node, Key: key}); err != nil {
		return nil, err
	}
	now := time.Now()
	leaf, err := issuer.SignNode(r.request, r.node, r.hosts, now)
	if err != nil {
		return nil, err
	}
	n.log.Info("host enrolled", "node", r.node, "host", r.from, "token", t.ID().String(), "serial", leaf.SerialNumber.Text(16), "expires", leaf.NotAfter)
	return &enrolment{leaf: leaf.Raw, trust: n.security.endpoint.Credential().Trust().PEM(), gossipKeys: gossipKeys, members: n.memberAddresses(), now: now}, nil
}

// memberAddresses returns the addresses of some nodes.
func (n *Node) memberAddresses() []string {
	all := append([]string{n.RPCAddr()}, n.members.Addresses()...)
	return all[:min(len(all), enrolmentMembersMax)]
}

// spend consumes a token for a node, one at a time: checks made before a token is written must still hold when it is. Errors:
// *api.TokenRefusedError, those of the lock service.
func (n *Node) spend(ctx context.Context, t token.Token, use token.Use) error {
	select {
	case n.security.spending <- struct{}{}:
		defer func() { <-n.security.spending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		kept, err := n.joinToken(ctx, t.ID())
		if err != nil {
			return err
		}
		next, err := kept.Spend(t, use.Node, use.Key, time.Now())
		if err != nil {
			return refusedToken(t.ID(), err)
		}
		if err := n.checkMayJoin(ctx, kept.JoinRecord, use); err != nil {
			return err
		}
		if next == kept.JoinRecord {
			return nil // repeated: its answer was lost
		}
		o, err := n.changes.MasterOption(ctx)
		if err != nil {
			return err
		}
		_, err = n.meta.SetGuarded(ctx, joinTokenPath(t.ID()), next.Encode(), kept.gen, o)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, metaapi.ErrGeneration) && !errors.Is(err, metaapi.ErrOutcomeUnknown):
			return changes.NotMasterNow(err)
		}
	}
}

// checkMayJoin rejects the id of another node. A host chooses its own id, so with any token it could otherwise become any node.
func (n *Node) checkMayJoin(ctx context.Context, t *token.JoinRecord, use token.Use) error {
	refused := func(reason, format string, args ...any) error {
		return &api.TokenRefusedError{Reason: reason, ID: t.ID.String(), Text: fmt.Sprintf(format, args...)}
	}
	if err := n.removed.Check(ctx, use.Node); errors.Is(err, removal.ErrRemoved) {
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
	if _, err := n.meta.Get(ctx, namespace.NodePath(use.Node)); err == nil && !slices.Contains(t.Spent, use) {
		return taken()
	} else if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return err
	}
	all, err := n.joinTokens(ctx)
	if err != nil {
		return err
	}
	for _, other := range all {
		if slices.ContainsFunc(other.Spent, func(u token.Use) bool { return u.Node == use.Node && u.Key != use.Key }) {
			return taken()
		}
	}
	return nil
}

// hostsOf returns the names and addresses that can be in a certificate of this host.
func hostsOf(names ...string) (hosts []string) {
	for _, h := range names {
		ip := net.ParseIP(h)
		if h == "" || pki.CheckHost(h) != nil || ip != nil && ip.IsUnspecified() || slices.Contains(hosts, h) {
			continue
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// withLocal adds the names by which clients on this host reach it, as far as the certificate has space.
func withLocal(hosts []string, name string) []string {
	all := slices.Clone(hosts)
	host, _ := os.Hostname()
	for _, h := range hostsOf("localhost", "127.0.0.1", "::1", name, host) {
		if len(all) < pki.HostsMax && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}
