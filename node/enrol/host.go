package enrol

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// ErrExpired means that the node's certificate has expired, so other nodes reject it.
var ErrExpired = errors.New("the node's certificate has expired")

// HostConfig has what a host needs to join with a token.
type HostConfig struct {
	Log *slog.Logger
	// Keys is the node's directory of keys, and Dir its name.
	Keys keydir.Dir
	Dir  string
	// TokenFile has the join token; empty if there is none. It is on the file system of Keys.
	TokenFile string
	Nodes     []string // addresses of nodes to join
	// Dial opens a plain connection to an address.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Name is the name of the node, and Host the name or address at which others reach it, or "": both are in its certificate.
	Name, Host string
	// Waiting is called before the host asks other nodes, which may take long.
	Waiting func()
}

// Host makes a host without keys, or a node whose certificate has expired, a node of the cluster with the token in a file, if there
// is one. The node keeps its id and data. It returns addresses of members of the cluster; none if the host has valid keys already.
func Host(ctx context.Context, cfg HostConfig, dirs *identity.Folders) (members []string, err error) {
	have, err := cfg.Keys.Load()
	switch {
	case errors.Is(err, keydir.ErrNotEnrolled) && cfg.TokenFile != "":
	case err != nil:
		return nil, fmt.Errorf("read the node's keys: %w", err)
	case have.Authority != nil || time.Now().Before(have.Credential.Ends()):
		return nil, nil // a node with the authority's key renews its own certificate
	case cfg.TokenFile == "":
		return nil, fmt.Errorf("%w: it was valid until %s, and this host's clock shows %s: create a token with \"stele token create --node %s\", and pass it with --token-file",
			ErrExpired, have.Credential.Ends().UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339), have.Credential.Peer().Name)
	}
	h, err := newHost(cfg, dirs, have)
	if err != nil {
		return nil, err
	}
	cfg.Waiting()
	got, err := h.ask(ctx)
	if err != nil {
		return nil, fmt.Errorf("join with a token: %w", err)
	}
	if err := h.keep(got); err != nil {
		return nil, fmt.Errorf("join with a token: write the keys: %w", err)
	}
	certs.CheckClock(cfg.Log, got.Now)
	cfg.Log.Info("host joined the cluster", "node", dirs.Node, "keys", cfg.Dir)
	return got.Members, nil
}

// host is a host that joins with a token.
type host struct {
	HostConfig
	token   token.Token
	have    *keydir.Contents // of a node whose certificate has expired; nil for a new node
	cluster string           // of the data folders, or ""
	key     crypto.Signer
	request joinRequest
	addrs   []string
	logged  map[string]bool
}

// CheckTokenFile returns an error unless the file has a valid join token.
func CheckTokenFile(name string) error {
	_, err := readToken(secretfile.On(vfs.OS()), name)
	return err
}

// readToken reads a join token from a file that only its owner may read.
func readToken(files secretfile.Files, name string) (t token.Token, err error) {
	text, err := files.Read(name)
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

// newHost reads the token, and makes what else is needed to ask, the same each time.
func newHost(cfg HostConfig, dirs *identity.Folders, have *keydir.Contents) (*host, error) {
	h := &host{HostConfig: cfg, have: have, cluster: dirs.Cluster, logged: map[string]bool{}}
	var err error
	if h.token, err = readToken(cfg.Keys.Secrets(), cfg.TokenFile); err != nil {
		return nil, err
	}
	if len(cfg.Nodes) == 0 {
		return nil, errors.New("a join token needs a node to join: set one with --join")
	}
	for _, a := range cfg.Nodes {
		addr, err := formation.WithPort(a)
		if err != nil {
			return nil, fmt.Errorf("address to join %q: %w", a, err)
		}
		h.addrs = append(h.addrs, addr)
	}
	if dirs.Fresh() { // the id must be durable before other nodes see it
		if err := dirs.Write(); err != nil {
			return nil, err
		}
	}
	if h.key, err = cfg.Keys.JoinKey(); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	h.request = joinRequest{text: h.token.Reveal(), node: dirs.Node, hosts: certs.WithLocal(certs.HostsOf(cfg.Host), cfg.Name)}
	h.request.request, err = pki.NewRequest(h.key)
	return h, err
}

const (
	askPauseMin = 200 * time.Millisecond
	askPauseMax = 5 * time.Second
	// askTimeout bounds one attempt at one address.
	askTimeout = 15 * time.Second
)

// ask calls the nodes to join in turn until one has enrolled this host. It returns early if all reachable nodes reject it for good.
func (h *host) ask(ctx context.Context) (*certs.Issued, error) {
	pauses := timing.Backoff{Min: askPauseMin, Max: askPauseMax}
	for ; ; pauses.Sleep(ctx) {
		var final error
		hope := false
		for _, addr := range h.addrs {
			got, err := h.askOne(ctx, addr)
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
			if text := token.Scrub(err.Error()); !h.logged[text] {
				h.logged[text] = true
				h.Log.Warn("host not enrolled yet; retrying", "err", text)
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
func (h *host) askOne(ctx context.Context, addr string) (*certs.Issued, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var known *pki.Trust
	pinned := pki.DialPinned(h.token.Authority(), nil, func(t *pki.Trust) { known = t })
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
		plain, err := h.Dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		c := tls.Client(plain, pinned)
		if err := c.HandshakeContext(ctx); err != nil {
			_ = plain.Close()
			return nil, err
		}
		if id := known.Cluster(); h.cluster != "" && h.cluster != id {
			_ = c.Close()
			return nil, fmt.Errorf("%w: it belongs to %s, but the data folders to %s", errOtherCluster, id, h.cluster)
		}
		return c, nil
	}})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	got := &certs.Issued{}
	if err := conn.Call(ctx, MethodJoin, h.request.append, got.Decode); err != nil {
		return nil, api.FromRPC(err)
	}
	return got, nil
}

// keep writes the keys that make this host a node, the certificate last.
func (h *host) keep(got *certs.Issued) error {
	leaf, trust, err := got.Certificate()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(trust.Authorities(), func(a *x509.Certificate) bool { return pki.FingerprintOf(a) == h.token.Authority() }) {
		return errors.New("the answer lacks the authority that the token names")
	}
	own, err := pki.NewCredential(h.key, leaf, trust)
	if err != nil {
		return err
	}
	if p := own.Peer(); p.Kind != pki.Node || p.Name != h.request.node {
		return fmt.Errorf("the issued certificate is for %s, want node %s", p, h.request.node)
	}
	c := &keydir.Contents{Credential: own, GossipKeys: got.GossipKeys}
	if h.have != nil {
		return h.Keys.Renew(c)
	}
	return h.Keys.Enrol(c)
}
