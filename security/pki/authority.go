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
	// Backdate is how long before its making a certificate begins to be valid, so that
	// hosts whose clocks are less than a day behind take it.
	Backdate = 24 * time.Hour
	// NodeLife is how long a node's certificate is valid: 30 days. It is renewed when
	// two thirds are over, so a cluster may be without a master for ten.
	NodeLife = 30 * 24 * time.Hour
	// PrincipalLife is how long a principal's is, unless it is asked for otherwise, and
	// PrincipalLifeMax how long it may be.
	PrincipalLife    = 365 * 24 * time.Hour
	PrincipalLifeMax = 10 * PrincipalLife
	// authorityLife: longer than the hosts of any cluster live.
	authorityLife = 20 * 365 * 24 * time.Hour
	// HostsMax bounds the names and addresses in a node's certificate.
	HostsMax = 16
)

// Fingerprint is the SHA-256 of a certificate.
type Fingerprint [sha256.Size]byte

// String returns 64 hexadecimal digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// FingerprintOf returns the certificate's.
func FingerprintOf(c *x509.Certificate) Fingerprint { return sha256.Sum256(c.Raw) }

// Authority signs the certificates of one cluster. It is safe for concurrent use.
type Authority struct {
	cert    *x509.Certificate
	key     crypto.Signer
	cluster string
}

// NewAuthority makes the authority of a new cluster.
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
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, // it signs no other authority
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

// newAuthority makes one of what a file holds.
func newAuthority(cert *x509.Certificate, key crypto.Signer) (*Authority, error) {
	cluster, err := checkAuthority(cert)
	if err != nil {
		return nil, err
	}
	if !keyOf(cert, key) {
		return nil, errors.New("key and certificate do not belong together")
	}
	return &Authority{cert: cert, key: key, cluster: cluster}, nil
}

// Cluster returns the id of the cluster.
func (a *Authority) Cluster() string { return a.cluster }

// Certificate returns the authority's own.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Fingerprint returns that of the authority's own certificate.
func (a *Authority) Fingerprint() Fingerprint { return FingerprintOf(a.cert) }

// SignNode makes the certificate of the node with that id, for the key of the request,
// of which nothing else counts. Hosts are the names and IP addresses at which clients
// that check such may reach it. Errors: *NameError, *HostError, *RequestError.
func (a *Authority) SignNode(request []byte, id string, hosts []string, now time.Time) (*x509.Certificate, error) {
	if err := CheckName("id of a node", id); err != nil {
		return nil, err
	}
	template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if len(hosts) > HostsMax {
		return nil, fmt.Errorf("node %s has %d names and addresses, at most %d fit in a certificate", id, len(hosts), HostsMax)
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

// SignPrincipal makes a certificate of the principal, for the key of the request, of
// which nothing else counts. Life is PrincipalLife if zero. Errors: *NameError,
// *RequestError.
func (a *Authority) SignPrincipal(request []byte, name string, generation uint64, life time.Duration, now time.Time) (*x509.Certificate, error) {
	if err := CheckName("name of a principal", name); err != nil {
		return nil, err
	}
	if life == 0 {
		life = PrincipalLife
	}
	if life < time.Minute || life > PrincipalLifeMax {
		return nil, fmt.Errorf("certificate for %v: want one minute to ten years", life)
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
	if template.NotBefore.Before(a.cert.NotBefore) { // of a cluster that was made today, or a clock that went back
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

// serial returns a random number of 127 bits, so that no two certificates share one.
func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[0] = b[0]&0x7f | 0x40
	return new(big.Int).SetBytes(b)
}

// checkAuthority tells which cluster's authority a certificate is of.
func checkAuthority(c *x509.Certificate) (cluster string, err error) {
	switch {
	case !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0:
		return "", errors.New("certificate is not that of an authority")
	case !goodKey(c.PublicKey):
		return "", errors.New("authority has a key of a kind that is not used here")
	}
	if err := c.CheckSignatureFrom(c); err != nil {
		return "", fmt.Errorf("certificate has not signed itself: %w", err)
	}
	return clusterOf(c)
}

// CheckHost returns a *HostError for what SignNode takes for no name or address of a host.
func CheckHost(s string) error {
	if net.ParseIP(s) == nil && !validHost(s) {
		return &HostError{s}
	}
	return nil
}

// validHost tells whether s can be a DNS name. A wildcard is none.
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

// NewKey makes a key: ECDSA on P-256, which every TLS library speaks.
func NewKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// goodKey tells whether certificates are made for keys of that kind.
func goodKey(public any) bool {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		return k.Curve == elliptic.P256() || k.Curve == elliptic.P384()
	case ed25519.PublicKey:
		return true
	}
	return false
}

// keyOf tells whether key is that of the certificate.
func keyOf(c *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(c.PublicKey)
}
