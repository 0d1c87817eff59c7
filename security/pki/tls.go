package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Endpoint creates the TLS configurations of one node or client. Its credential can be replaced at
// any time. New connections then use the new one, also with configurations created earlier. It is
// safe for concurrent use.
type Endpoint struct {
	credential atomic.Pointer[Credential]
	opts       Options

	// mu guards the fields in it and is never held across I/O.
	mu struct {
		sync.Mutex
		conns map[uint64]*Conn // open connections in both directions, by number
		made  uint64           // the number of the last connection
		// perPrincipal is the number of connections of each principal, by name.
		perPrincipal map[string]int
	}
}

// Options configure an Endpoint.
type Options struct {
	// Now is the wall clock for verifying certificates. Nil means time.Now.
	Now func() time.Time
	// Refuse returns an error to reject a peer although its certificate is valid, for example a
	// removed node. It is called in each handshake and must not block. Nil rejects no peer. It does
	// not affect existing connections: see Disconnect.
	Refuse func(Peer) error
	// PrincipalConnsMax bounds the connections of one principal, over all its certificates and
	// tokens. Default 1024. One more is rejected.
	PrincipalConnsMax int
}

// NewEndpoint returns an endpoint with that credential.
func NewEndpoint(c *Credential, o Options) *Endpoint {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.PrincipalConnsMax == 0 {
		o.PrincipalConnsMax = 1024
	}
	e := &Endpoint{opts: o}
	e.mu.conns, e.mu.perPrincipal = map[uint64]*Conn{}, map[string]int{}
	e.credential.Store(c)
	return e
}

// Credential returns the current credential.
func (e *Endpoint) Credential() *Credential { return e.credential.Load() }

// Swap replaces the credential. The new one must be of the same cluster and peer.
func (e *Endpoint) Swap(c *Credential) error {
	old := e.credential.Load()
	if c.peer.Kind != old.peer.Kind || c.peer.Name != old.peer.Name || c.trust.cluster != old.trust.cluster {
		return fmt.Errorf("credential of %s of cluster %s cannot replace that of %s of cluster %s",
			c.peer, c.trust.cluster, old.peer, old.trust.cluster)
	}
	e.credential.Store(c)
	return nil
}

// base returns the common part of all configurations.
func (e *Endpoint) base() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		Time:       e.opts.Now,
		// A resumed session would reuse a certificate that was verified long ago.
		SessionTicketsDisabled: true,
		// Small initial records help only browsers that render partial pages.
		DynamicRecordSizingDisabled: true,
	}
}

// Server returns the configuration of a node's listener. A client without a certificate is
// anonymous; see Identify. A certificate that a client sends must be valid.
func (e *Endpoint) Server() *tls.Config {
	c := e.base()
	c.ClientAuth = tls.RequestClientCert // VerifyConnection verifies it
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return e.own() }
	c.VerifyConnection = func(s tls.ConnectionState) error {
		_, err := e.Identify(s)
		return err
	}
	return c
}

// Identify returns the peer of a connection that was accepted with a Server configuration. Errors:
// *PeerError.
func (e *Endpoint) Identify(s tls.ConnectionState) (Peer, error) {
	if len(s.PeerCertificates) == 0 {
		return Peer{}, nil
	}
	return e.verify(s, asClient)
}

// DialNode returns the configuration of a connection to the node of that id, or to any node of the
// cluster if id is empty. The node's host name is not verified.
func (e *Endpoint) DialNode(id string) *tls.Config {
	c := e.base()
	c.InsecureSkipVerify = true // VerifyConnection verifies the node's identity instead of its host name
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if e.Credential().leaf == nil {
			return &tls.Certificate{}, nil
		}
		return e.own()
	}
	c.VerifyConnection = func(s tls.ConnectionState) error {
		p, err := e.verify(s, asServer)
		if err != nil {
			return err
		}
		return wantNode(p, id)
	}
	return c
}

// wantNode returns an error unless p is the node of that id, or any node if id is empty.
func wantNode(p Peer, id string) error {
	switch {
	case p.Kind != Node:
		return &PeerError{Claims: p, Why: ErrNotNode}
	case id != "" && p.Name != id:
		return &PeerError{Claims: p, Why: ErrOtherNode, Detail: fmt.Errorf("want node %s", id)}
	}
	return nil
}

// RequireNode returns a *PeerError unless p is the node of that id, or any node if id is empty. It
// guards operations reserved for nodes.
func RequireNode(p Peer, id string) error {
	if p.Kind == Anonymous {
		return &PeerError{Why: ErrNoCertificate}
	}
	return wantNode(p, id)
}

func (e *Endpoint) own() (*tls.Certificate, error) {
	c := e.Credential()
	if c.leaf == nil {
		return nil, errors.New("no certificate")
	}
	return &c.chain, nil
}

func (e *Endpoint) verify(s tls.ConnectionState, as side) (Peer, error) {
	if s.Version < tls.VersionTLS13 {
		return Peer{}, &PeerError{Why: ErrUntrusted, Detail: fmt.Errorf("connection uses %s", tls.VersionName(s.Version))}
	}
	p, err := e.Credential().trust.verify(s.PeerCertificates, as, e.opts.Now())
	if err != nil {
		return Peer{}, err
	}
	if err := e.checkRefused(p); err != nil {
		return Peer{}, err
	}
	return p, nil
}

// DialPinned returns the configuration of a host that knows only the fingerprint of the cluster's
// authority. The server must be a node whose certificate that authority signed. onTrust, unless
// nil, is then called with the trust for a credential. A nil now means time.Now.
func DialPinned(f Fingerprint, now func() time.Time, onTrust func(*Trust)) *tls.Config {
	if now == nil {
		now = time.Now
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: now, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, // VerifyConnection verifies instead
		VerifyConnection: func(s tls.ConnectionState) error {
			authority := pinned(s.PeerCertificates, f)
			if authority == nil {
				return &PeerError{Why: ErrUntrusted, Detail: fmt.Errorf("no authority with the fingerprint %s", f)}
			}
			trust, err := NewTrust(authority)
			if err != nil {
				return &PeerError{Why: ErrUntrusted, Detail: err}
			}
			p, err := trust.verify(s.PeerCertificates, asServer, now())
			if err == nil {
				err = wantNode(p, "")
			}
			if err == nil && onTrust != nil {
				onTrust(trust)
			}
			return err
		},
	}
}

func pinned(chain []*x509.Certificate, f Fingerprint) *x509.Certificate {
	for _, c := range chain {
		if FingerprintOf(c) == f {
			return c
		}
	}
	return nil
}
