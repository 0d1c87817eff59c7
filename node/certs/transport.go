package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
)

// Transport authenticates the node to its peers, and them to it. It is nil on an open node: all methods work on nil and leave
// connections plain. Safe for concurrent use.
type Transport struct {
	Config
	endpoint *pki.Endpoint
	rotator  *pki.Rotator
}

// Config has what a Transport needs.
type Config struct {
	Log *slog.Logger
	// Keys is the node's directory of keys, and Credential the certificate in it.
	Keys       keydir.Dir
	Credential *pki.Credential
	// Dial opens plain connections; nil for the default.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Rejected returns why a node is rejected, or nil.
	Rejected func(id string) error
	// ConnsOfPrincipalMax bounds the connections of one principal.
	ConnsOfPrincipalMax int
	// ForStrangers reports whether a method may be called without a credential.
	ForStrangers func(method string) bool
	// Renew obtains the node's next certificate.
	Renew func(ctx context.Context, request []byte) (*x509.Certificate, *pki.Trust, error)
	// Signs reports whether the node has the authority's key: it signs its own certificate, by its own clock.
	Signs func() bool
}

// Load reads the node's keys from its directory, dir. The error names a certificate that does not match the node and cluster of the data
// directories; a fresh node has no cluster.
func Load(keys keydir.Dir, dir, node, cluster string) (*keydir.Contents, error) {
	c, err := keys.Load()
	if err != nil {
		return nil, fmt.Errorf("read the node's keys: %w", err)
	}
	own := c.Credential.Peer()
	switch {
	case own.Name != node:
		return nil, fmt.Errorf("the certificate in %s belongs to node %s, but the data folders to node %s: configure the folder of keys of this node",
			dir, own.Name, node)
	case cluster != "" && own.Cluster != cluster:
		return nil, fmt.Errorf("the certificate in %s belongs to cluster %s, but the data folders to cluster %s", dir, own.Cluster, cluster)
	}
	return c, nil
}

// New returns the transport of a node with certificates.
func New(cfg Config) *Transport {
	t := &Transport{Config: cfg}
	t.endpoint = pki.NewEndpoint(cfg.Credential, pki.Options{Refuse: t.refuse, PrincipalConnsMax: min(principalConnsMax, cfg.ConnsOfPrincipalMax)})
	t.rotator = pki.NewRotator(pki.RotatorConfig{Endpoint: t.endpoint, File: cfg.Keys.NodeFile(), Files: cfg.Keys.Files(), Renew: cfg.Renew, OwnClock: cfg.Signs, Logger: cfg.Log.With("part", "security")})
	return t
}

// refuse returns why a peer is rejected, or nil.
func (t *Transport) refuse(p pki.Peer) error {
	if p.Kind != pki.Node {
		return nil
	}
	return t.Rejected(p.Name)
}

// Credential returns the node's current credential.
func (t *Transport) Credential() *pki.Credential { return t.endpoint.Credential() }

// Fingerprint returns the fingerprint of the authority that signed this node's certificate.
func (t *Transport) Fingerprint() pki.Fingerprint { return pki.FingerprintOf(t.Credential().Signer()) }

// KeepRenewed renews the node's certificate in time, until ctx ends.
func (t *Transport) KeepRenewed(ctx context.Context) {
	if t != nil {
		t.rotator.Run(ctx)
	}
}

// RenewNow renews the node's certificate.
func (t *Transport) RenewNow(ctx context.Context) error { return t.rotator.Renew(ctx) }

// Retrust makes the node trust these authorities, and no others.
func (t *Transport) Retrust(trust *pki.Trust) error { return t.rotator.Retrust(trust) }

// Cluster returns the id of the cluster that a fresh node founds, or "" for any.
func (t *Transport) Cluster() string {
	if t == nil {
		return ""
	}
	return t.Credential().Peer().Cluster
}

// Founds reports whether a fresh node founds its cluster: only a node with the authority's key does, on which "stele init" was run.
// Other nodes can only join it, and need addresses for that: two groups of nodes with certificates of one cluster must not both found it.
func (t *Transport) Founds(join []string) (bool, error) {
	if t.Signs() {
		return true, nil
	}
	if len(join) == 0 {
		own := t.Credential().Peer()
		return false, fmt.Errorf("node %s has a certificate of cluster %s and no data yet: it can only join that cluster, use --join with nodes of it", own.Name, own.Cluster)
	}
	return false, nil
}

// DialNode connects to a node, or to any node of the cluster if id is empty.
func (t *Transport) DialNode(ctx context.Context, id, addr string) (net.Conn, error) {
	if t == nil {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	return t.connect(ctx, id, addr)
}

// connect connects to that node with TLS, or to any node of the cluster if id is empty.
func (t *Transport) connect(ctx context.Context, id, addr string) (net.Conn, error) {
	if t.Dial == nil {
		return t.endpoint.Dial(ctx, id, addr)
	}
	c, err := t.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return t.endpoint.Over(ctx, id, c)
}

// RequireNode returns an error unless the connection is from that node.
func (t *Transport) RequireNode(c net.Conn, id string) error {
	if t == nil {
		return nil
	}
	secured, ok := c.(*pki.Conn)
	if !ok {
		return errors.New("connection is plain")
	}
	return pki.RequireNode(secured.Peer, id)
}

// clockOff is the difference between two nodes' clocks above which a warning is logged.
const clockOff = 5 * time.Minute

// CheckClock logs a warning if this host's clock is far from a signer's: peers verify certificates by their own clocks.
func CheckClock(log *slog.Logger, signers time.Time) {
	if off := time.Until(signers); off.Abs() > clockOff {
		log.Warn("clock differs from that of the node that signs certificates: correct it, or peers will reject this node's certificate",
			"difference", off.Round(time.Second))
	}
}
