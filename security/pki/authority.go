package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"time"
)

const (
	// Backdate is how long before its creation a certificate becomes valid, so that hosts whose
	// clocks are less than a day behind accept it.
	Backdate = 24 * time.Hour
	// NodeLife is the validity of a node's certificate: 30 days. It is renewed after two thirds of
	// that, so a cluster may be without a master for ten days.
	NodeLife = 30 * 24 * time.Hour
	// PrincipalLife is the default validity of a principal's certificate, and PrincipalLifeMax the
	// maximum.
	PrincipalLife    = 365 * 24 * time.Hour
	PrincipalLifeMax = 10 * PrincipalLife
	// authorityLife exceeds the lifetime of the hosts of any cluster.
	authorityLife = 20 * 365 * 24 * time.Hour
	// HostsMax bounds the names and addresses in a node's certificate.
	HostsMax = 16
)

// Fingerprint is the SHA-256 of a certificate.
type Fingerprint [sha256.Size]byte

// String returns 64 hexadecimal digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// FingerprintOf returns the fingerprint of a certificate.
func FingerprintOf(c *x509.Certificate) Fingerprint { return sha256.Sum256(c.Raw) }

// Authority signs the certificates of one cluster. It is safe for concurrent use.
type Authority struct {
	cert    *x509.Certificate
	key     crypto.Signer
	cluster string
}

// NewAuthority creates the authority of a new cluster.
func NewAuthority(cluster string, now time.Time) (*Authority, error) {
	if err := CheckName("id of a cluster", cluster); err != nil {
		return nil, err
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	now = now.UTC()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Stele cluster " + cluster},
		NotBefore: now.Add(-Backdate), NotAfter: now.Add(authorityLife),
		URIs:                  []*url.URL{Peer{Cluster: cluster}.uri()},
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, // may not sign other authorities
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return newAuthority(cert, key)
}

// newAuthority returns the authority with an existing certificate and key.
func newAuthority(cert *x509.Certificate, key crypto.Signer) (*Authority, error) {
	cluster, err := checkAuthority(cert)
	if err != nil {
		return nil, err
	}
	if !keyOf(cert, key) {
		return nil, errors.New("private key does not match the certificate")
	}
	return &Authority{cert: cert, key: key, cluster: cluster}, nil
}

// Cluster returns the id of the cluster.
func (a *Authority) Cluster() string { return a.cluster }

// Certificate returns the authority's own certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Fingerprint returns the fingerprint of the authority's own certificate.
func (a *Authority) Fingerprint() Fingerprint { return FingerprintOf(a.cert) }

// SignNode returns a certificate for the node with that id. Only the public key of the request is
// used. hosts are the names and IP addresses of the node, for clients that verify those. Errors:
// *NameError, *HostError, *RequestError.
func (a *Authority) SignNode(request []byte, id string, hosts []string, now time.Time) (*x509.Certificate, error) {
	if err := CheckName("id of a node", id); err != nil {
		return nil, err
	}
	template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if len(hosts) > HostsMax {
		return nil, fmt.Errorf("node %s has %d names and addresses: a certificate holds at most %d", id, len(hosts), HostsMax)
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if validHost(h) {
			template.DNSNames = append(template.DNSNames, h)
		} else {
			return nil, &HostError{h}
		}
	}
	return a.sign(template, Peer{Kind: Node, Name: id}, request, NodeLife, now)
}

// SignPrincipal returns a certificate for the principal. Only the public key of the request is
// used. A life of zero means PrincipalLife. Errors: *NameError, *RequestError.
func (a *Authority) SignPrincipal(request []byte, name string, generation uint64, life time.Duration, now time.Time) (*x509.Certificate, error) {
	if err := CheckName("name of a principal", name); err != nil {
		return nil, err
	}
	if life == 0 {
		life = PrincipalLife
	}
	if life < time.Minute || life > PrincipalLifeMax {
		return nil, fmt.Errorf("certificate validity of %v: want one minute to ten years", life)
	}
	template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	return a.sign(template, Peer{Kind: Principal, Name: name, Generation: generation}, request, life, now)
}

func (a *Authority) sign(template *x509.Certificate, p Peer, request []byte, life time.Duration, now time.Time) (*x509.Certificate, error) {
	public, err := readRequest(request)
	if err != nil {
		return nil, err
	}
	now = now.UTC()
	p.Cluster = a.cluster
	template.SerialNumber, template.Subject = serial(), pkix.Name{CommonName: p.Name}
	template.NotBefore, template.NotAfter = now.Add(-Backdate), now.Add(life)
	if template.NotBefore.Before(a.cert.NotBefore) { // the cluster was created today, or the clock was set back
		template.NotBefore = a.cert.NotBefore
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	template.URIs = []*url.URL{p.uri()}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", p, err)
	}
	return x509.ParseCertificate(der)
}

// serial returns a random 127-bit serial number; collisions are negligible.
func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[0] = b[0]&0x7f | 0x40
	return new(big.Int).SetBytes(b)
}

// checkAuthority checks an authority's certificate and returns its cluster.
func checkAuthority(c *x509.Certificate) (cluster string, err error) {
	switch {
	case !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0:
		return "", errors.New("not a certificate of an authority")
	case !goodKey(c.PublicKey):
		return "", errors.New("authority has a key of an unsupported type")
	}
	if err := c.CheckSignatureFrom(c); err != nil {
		return "", fmt.Errorf("certificate is not self-signed: %w", err)
	}
	return clusterOf(c)
}

// CheckHost returns a *HostError unless s is a host name or an IP address that SignNode accepts.
func CheckHost(s string) error {
	if net.ParseIP(s) == nil && !validHost(s) {
		return &HostError{s}
	}
	return nil
}

// validHost reports whether s is a valid DNS name. Wildcards are not.
func validHost(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	return len(s) <= 253
}

// NewKey generates an ECDSA key on P-256, which every TLS library supports.
func NewKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	return key, nil
}

// goodKey reports whether certificates are issued for keys of that type.
func goodKey(public any) bool {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		return k.Curve == elliptic.P256() || k.Curve == elliptic.P384()
	case ed25519.PublicKey:
		return true
	}
	return false
}

// keyOf reports whether key is the private key of the certificate.
func keyOf(c *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(c.PublicKey)
}
