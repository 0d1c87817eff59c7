package node

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/folder"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// ErrExpired means that the node's certificate has expired, so other nodes reject it.
var ErrExpired = errors.New("the node's certificate has expired")

// enrol makes a host without keys, or a node whose certificate has expired, a node of the cluster with the token in a file, if there
// is one. The node keeps its id and data.
func (n *Node) enrol(ctx context.Context, dirs *identity.Folders) error {
	if n.cfg.Security == "" {
		return nil
	}
	keys := n.keys()
	have, err := keys.Load()
	switch {
	case errors.Is(err, folder.ErrNotEnrolled) && n.cfg.TokenFile != "":
	case err != nil:
		return fmt.Errorf("read the node's keys: %w", err)
	case have.Authority != nil || time.Now().Before(have.Credential.Ends()):
		return nil // a node with the authority's key renews its own certificate
	case n.cfg.TokenFile == "":
		return fmt.Errorf("%w: it was valid until %s, and this host's clock shows %s: create a token with \"stele token create --node %s\", and pass it with --token-file",
			ErrExpired, have.Credential.Ends().UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339), have.Credential.Peer().Name)
	}
	e, err := n.newEnroller(dirs, keys, have)
	if err != nil {
		return err
	}
	n.enter("a node of the cluster, to join with a token")
	got, err := e.ask(ctx)
	if err != nil {
		return fmt.Errorf("join with a token: %w", err)
	}
	if err := e.keep(got); err != nil {
		return fmt.Errorf("join with a token: write the keys: %w", err)
	}
	n.checkClock(got.now)
	for _, addr := range got.members {
		if !slices.Contains(n.cfg.Join, addr) {
			n.cfg.Join = append(slices.Clip(n.cfg.Join), addr)
		}
	}
	n.log.Info("host joined the cluster", "node", dirs.Node, "keys", n.cfg.Security)
	return nil
}

// enroller is a host that joins with a token.
type enroller struct {
	n       *Node
	token   token.Token
	keys    folder.Folder
	have    *folder.Contents // of a node whose certificate has expired; nil for a new node
	cluster string           // of the data folders, or ""
	key     crypto.Signer
	request joinRequest
	addrs   []string
	logged  map[string]bool
}

// CheckTokenFile returns an error unless the file has a valid join token.
func CheckTokenFile(name string) error {
	_, err := readToken(name)
	return err
}

// readToken reads a join token from a file that only its owner may read.
func readToken(name string) (t token.Token, err error) {
	text, err := secretfile.Read(name)
	if err != nil {
		return t, fmt.Errorf("read the join token: %w", err)
	}
	if t, err = token.Parse(string(text)); err != nil {
		return t, fmt.Errorf("read the join token from %s: %w", name, err)
	}
	if t.Kind() != token.Join {
		return t, fmt.Errorf("the token in %s is for %s, and not to join by: have one made with \"stele token create\"", name, t.Kind())
	}
	return t, nil
}

// newEnroller reads the token, and makes what else is needed to ask, the same each time.
func (n *Node) newEnroller(dirs *identity.Folders, keys folder.Folder, have *folder.Contents) (*enroller, error) {
	e := &enroller{n: n, keys: keys, have: have, cluster: dirs.Cluster, logged: map[string]bool{}}
	var err error
	if e.token, err = readToken(n.cfg.TokenFile); err != nil {
		return nil, err
	}
	if len(n.cfg.Join) == 0 {
		return nil, errors.New("a join token needs a node to join: set one with --join")
	}
	for _, a := range n.cfg.Join {
		addr, err := formation.WithPort(a)
		if err != nil {
			return nil, fmt.Errorf("address to join %q: %w", a, err)
		}
		e.addrs = append(e.addrs, addr)
	}
	if dirs.Fresh() { // the id must be durable before other nodes see it
		if err := dirs.Write(); err != nil {
			return nil, err
		}
	}
	if e.key, err = keys.JoinKey(); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	own := ""
	if addr, err := advertise.Address(n.rpcAddr.String(), n.cfg.Advertise); err == nil {
		own = hostOf(addr)
	}
	e.request = joinRequest{text: e.token.Reveal(), node: dirs.Node, hosts: withLocal(hostsOf(own), n.cfg.Name)}
	e.request.request, err = pki.NewRequest(e.key)
	return e, err
}

const (
	enrolPauseMin = 200 * time.Millisecond
	enrolPauseMax = 5 * time.Second
	// enrolTimeout bounds one attempt at one address.
	enrolTimeout = 15 * time.Second
)

// ask calls the nodes to join in turn until one has enrolled this host. It returns early if all reachable nodes reject it for good.
func (e *enroller) ask(ctx context.Context) (*enrolment, error) {
	pauses := timing.Backoff{Min: enrolPauseMin, Max: enrolPauseMax}
	for ; ; pauses.Sleep(ctx) {
		var final error
		hope := false
		for _, addr := range e.addrs {
			got, err := e.askOne(ctx, addr)
			if err == nil {
				return got, nil
			}
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%w; at %s: %w", ctx.Err(), addr, err)
			}
			err = fmt.Errorf("at %s: %w", addr, err)
			if refusedForGood(err) {
				final = errors.Join(final, err)
				continue
			}
			hope = true
			if text := token.Scrub(err.Error()); !e.logged[text] {
				e.logged[text] = true
				e.n.log.Warn("host not enrolled yet; retrying", "err", text)
			}
		}
		var refused *api.TokenRefusedError
		if errors.As(final, &refused) || final != nil && !hope { // rejected by a node of the cluster, or by all nodes
			return nil, final
		}
	}
}

// refusedForGood reports whether retrying would not help.
func refusedForGood(err error) bool {
	var peer *pki.PeerError
	var answer *rpc.Error
	switch {
	case errors.As(err, &peer):
		return !errors.Is(err, pki.ErrExpired) && !errors.Is(err, pki.ErrNotYetValid) // the node may be renewing its certificate
	case errors.Is(err, api.ErrTokenRefused), errors.Is(err, api.ErrOpenCluster), errors.Is(err, rpc.CodeBadRequest), errors.Is(err, rpc.CodePermissionDenied), errors.Is(err, rpc.CodeUnknownMethod):
		return true
	case errors.As(err, &answer):
		return false
	}
	return errors.Is(err, errOtherCluster)
}

// errOtherCluster means that the token and the host's data belong to different clusters.
var errOtherCluster = errors.New("the token belongs to another cluster")

// askOne calls the node at an address once it has verified that the node belongs to the cluster of the token: no other node gets to
// see the token.
func (e *enroller) askOne(ctx context.Context, addr string) (*enrolment, error) {
	ctx, cancel := context.WithTimeout(ctx, enrolTimeout)
	defer cancel()
	var known *pki.Trust
	pinned := pki.DialPinned(e.token.Authority(), nil, func(t *pki.Trust) { known = t })
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
		d := tls.Dialer{Config: pinned}
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		if id := known.Cluster(); e.cluster != "" && e.cluster != id {
			_ = c.Close()
			return nil, fmt.Errorf("%w: it belongs to %s, but the data folders to %s", errOtherCluster, id, e.cluster)
		}
		return c, nil
	}})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	got := &enrolment{}
	if err := conn.Call(ctx, methodJoinToken, e.request.append, got.decode); err != nil {
		return nil, api.FromRPC(err)
	}
	return got, nil
}

// keep writes the keys that make this host a node, the certificate last.
func (e *enroller) keep(got *enrolment) error {
	leaf, trust, err := got.certificate()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(trust.Authorities(), func(a *x509.Certificate) bool { return pki.FingerprintOf(a) == e.token.Authority() }) {
		return errors.New("the answer lacks the authority that the token names")
	}
	own, err := pki.NewCredential(e.key, leaf, trust)
	if err != nil {
		return err
	}
	if p := own.Peer(); p.Kind != pki.Node || p.Name != e.request.node {
		return fmt.Errorf("the issued certificate is for %s, want node %s", p, e.request.node)
	}
	c := &folder.Contents{Credential: own, GossipKeys: got.gossipKeys}
	if e.have != nil {
		return e.keys.Renew(c)
	}
	return e.keys.Enrol(c)
}
