package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Trust is the set of a cluster's authorities whose signatures are accepted: one, or the old and
// the new one during a change of authority. It is immutable.
type Trust struct {
	cluster     string
	authorities []*x509.Certificate
	pool        *x509.CertPool
}

// authoritiesMax bounds the authorities of one cluster.
const authoritiesMax = 4

// NewTrust returns the trust in authorities, which must be of one cluster.
func NewTrust(authorities ...*x509.Certificate) (*Trust, error) {
	if len(authorities) == 0 || len(authorities) > authoritiesMax {
		return nil, fmt.Errorf("%d authorities: want 1 to %d", len(authorities), authoritiesMax)
	}
	t := &Trust{pool: x509.NewCertPool(), authorities: authorities}
	for _, c := range authorities {
		cluster, err := checkAuthority(c)
		if err != nil {
			return nil, err
		}
		if t.cluster != "" && t.cluster != cluster {
			return nil, fmt.Errorf("authorities of two clusters, %s and %s", t.cluster, cluster)
		}
		t.cluster = cluster
		t.pool.AddCert(c)
	}
	return t, nil
}

// Signed reports whether one of the authorities signed a certificate.
func (t *Trust) Signed(c *x509.Certificate) bool {
	for _, a := range t.authorities {
		if c.CheckSignatureFrom(a) == nil {
			return true
		}
	}
	return false
}

// Cluster returns the cluster's id.
func (t *Trust) Cluster() string { return t.cluster }

// Authorities returns the certificates. The slice must not be modified.
func (t *Trust) Authorities() []*x509.Certificate { return t.authorities }

// PEM returns the authorities' certificates as a file for any TLS library.
func (t *Trust) PEM() []byte {
	var b bytes.Buffer
	for _, c := range t.authorities {
		_ = pem.Encode(&b, &pem.Block{Type: pemCertificate, Bytes: c.Raw}) // a bytes.Buffer never fails
	}
	return b.Bytes()
}

// ParseTrust parses what PEM returns.
func ParseTrust(b []byte) (*Trust, error) {
	blocks, err := readPEM(b)
	if err != nil {
		return nil, err
	}
	if blocks.key != nil {
		return nil, errors.New("private key among the authorities' certificates")
	}
	return NewTrust(blocks.certs...)
}

// side is the role of the peer whose certificate is verified.
type side x509.ExtKeyUsage

const (
	asServer = side(x509.ExtKeyUsageServerAuth)
	asClient = side(x509.ExtKeyUsageClientAuth)
)

// verify verifies a chain, the peer's own certificate first, and returns its subject. Errors:
// *PeerError.
func (t *Trust) verify(chain []*x509.Certificate, s side, now time.Time) (Peer, error) {
	if len(chain) == 0 {
		return Peer{}, &PeerError{Why: ErrNoCertificate}
	}
	leaf := chain[0]
	p, err := peerOf(leaf)
	switch {
	case err != nil:
		return Peer{}, &PeerError{Why: ErrUntrusted, Detail: err}
	case p.Cluster != t.cluster:
		return Peer{}, &PeerError{Claims: p, Why: ErrOtherCluster, Detail: fmt.Errorf("want cluster %s", t.cluster)}
	case now.Before(leaf.NotBefore):
		return Peer{}, &PeerError{Claims: p, Why: ErrNotYetValid, Detail: clockError(now, "from", leaf.NotBefore)}
	case now.After(leaf.NotAfter):
		return Peer{}, &PeerError{Claims: p, Why: ErrExpired, Detail: clockError(now, "until", leaf.NotAfter)}
	case leaf.IsCA:
		return Peer{}, &PeerError{Claims: p, Why: ErrUntrusted, Detail: errors.New("it is an authority's certificate")}
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: t.pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsage(s)}})
	if err != nil {
		return Peer{}, &PeerError{Claims: p, Why: ErrUntrusted, Detail: err}
	}
	return p, nil
}

// clockError reports both times, so that the operator can see which clock is wrong.
func clockError(now time.Time, word string, bound time.Time) error {
	return fmt.Errorf("valid %s %s, but this host's clock is at %s", word, bound.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}
