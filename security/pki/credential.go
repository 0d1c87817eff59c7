package pki

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/vfs"
)

const (
	pemKey         = "PRIVATE KEY" // PKCS #8
	pemCertificate = "CERTIFICATE"
)

// Credential is one end's side of authentication: the authorities it trusts and, unless it is
// anonymous, its key and certificate. It is immutable.
type Credential struct {
	trust *Trust
	key   crypto.Signer
	leaf  *x509.Certificate
	peer  Peer
	chain tls.Certificate
}

// NewCredential returns the credential of a key and its certificate, which one of the authorities
// must have signed. It does not check the validity period, which is up to the peer.
func NewCredential(key crypto.Signer, leaf *x509.Certificate, trust *Trust) (*Credential, error) {
	p, err := peerOf(leaf)
	if err != nil {
		return nil, err
	}
	if p.Cluster != trust.cluster {
		return nil, fmt.Errorf("certificate of cluster %s, but authority of cluster %s", p.Cluster, trust.cluster)
	}
	if !keyOf(leaf, key) {
		return nil, errors.New("private key does not match the certificate")
	}
	for _, authority := range trust.authorities {
		if leaf.CheckSignatureFrom(authority) != nil {
			continue
		}
		c := &Credential{trust: trust, key: key, leaf: leaf, peer: p}
		// The authority's certificate is included because a joining host knows only its
		// fingerprint.
		c.chain = tls.Certificate{Certificate: [][]byte{leaf.Raw, authority.Raw}, PrivateKey: key, Leaf: leaf}
		return c, nil
	}
	return nil, errors.New("certificate is not signed by any of the authorities")
}

// AnonymousCredential returns the credential of a client without a certificate.
func AnonymousCredential(trust *Trust) *Credential { return &Credential{trust: trust} }

// Peer returns the subject of the certificate.
func (c *Credential) Peer() Peer { return c.peer }

// Signer returns the certificate of the authority that signed the credential's certificate; nil for
// an anonymous credential.
func (c *Credential) Signer() *x509.Certificate {
	if c.leaf == nil {
		return nil
	}
	for _, a := range c.trust.authorities {
		if c.leaf.CheckSignatureFrom(a) == nil {
			return a
		}
	}
	return nil
}

// Leaf returns the certificate, or nil for an anonymous credential.
func (c *Credential) Leaf() *x509.Certificate { return c.leaf }

// Trust returns the trusted authorities.
func (c *Credential) Trust() *Trust { return c.trust }

// Begins returns the start of the certificate's validity, Backdate before its creation.
func (c *Credential) Begins() time.Time { return c.leaf.NotBefore }

// Ends returns the expiry of the certificate.
func (c *Credential) Ends() time.Time { return c.leaf.NotAfter }

// Hosts returns the host names and addresses in the certificate.
func (c *Credential) Hosts() []string {
	if c.leaf == nil {
		return nil
	}
	hosts := slices.Clone(c.leaf.DNSNames)
	for _, ip := range c.leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// String returns the subject. It includes nothing of the key.
func (c *Credential) String() string { return "credential of " + c.peer.String() }

// LogValue implements slog.LogValuer with String.
func (c *Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// PEM returns key, certificate and authorities as one file, which is secret.
func (c *Credential) PEM() ([]byte, error) {
	b, err := keyPEM(c.key)
	if err != nil {
		return nil, err
	}
	own := pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: c.leaf.Raw})
	return append(append(b, own...), c.trust.PEM()...), nil
}

// ParseCredential parses what PEM returns: one private key, its certificate, and the certificates
// of the authorities. No error contains any part of the key.
func ParseCredential(b []byte) (*Credential, error) {
	blocks, err := readPEM(b)
	switch {
	case err != nil:
		return nil, err
	case blocks.key == nil:
		return nil, errors.New("no private key")
	case len(blocks.certs) < 2:
		return nil, errors.New("expected the key's certificate followed by that of the authority")
	}
	trust, err := NewTrust(blocks.certs[1:]...)
	if err != nil {
		return nil, err
	}
	return NewCredential(blocks.key, blocks.certs[0], trust)
}

// Files are the files of a file system that hold keys and certificates.
type Files struct{ secrets secretfile.Files }

// On returns the files of a file system.
func On(fsys vfs.FS) Files { return Files{secretfile.On(fsys)} }

// WriteCredential writes a file of the operating system, as Files.WriteCredential.
func WriteCredential(file string, c *Credential) error { return On(vfs.OS()).WriteCredential(file, c) }

// ReadCredential reads a file of the operating system, as Files.ReadCredential.
func ReadCredential(file string) (*Credential, error) { return On(vfs.OS()).ReadCredential(file) }

// WriteCredential writes the credential to a file accessible only to its owner. It replaces an
// existing file atomically.
func (f Files) WriteCredential(file string, c *Credential) error {
	b, err := c.PEM()
	if err != nil {
		return err
	}
	return f.secrets.Write(file, b)
}

// ReadCredential reads what WriteCredential wrote. Errors: *secretfile.ExposedError for a file that
// others can read, *FileError for invalid content, those of the file system.
func (f Files) ReadCredential(file string) (*Credential, error) {
	b, err := f.secrets.Read(file)
	if err != nil {
		return nil, err
	}
	c, err := ParseCredential(b)
	if err != nil {
		return nil, &FileError{file, "not a credential", err}
	}
	return c, nil
}

// PEM returns the authority's key and certificate as one file, which is secret.
func (a *Authority) PEM() ([]byte, error) {
	b, err := keyPEM(a.key)
	if err != nil {
		return nil, err
	}
	return append(b, pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: a.cert.Raw})...), nil
}

// ParseAuthority parses what PEM returns. No error contains any part of the key.
func ParseAuthority(b []byte) (*Authority, error) {
	blocks, err := readPEM(b)
	if err == nil && (blocks.key == nil || len(blocks.certs) != 1) {
		err = errors.New("expected a private key and one certificate")
	}
	if err != nil {
		return nil, err
	}
	return newAuthority(blocks.certs[0], blocks.key)
}

// WriteAuthority writes the authority to a file accessible only to its owner.
func WriteAuthority(file string, a *Authority) error {
	return On(vfs.OS()).WriteSealedAuthority(file, a, "")
}

// ReadAuthority reads what WriteAuthority wrote. Errors: those of ReadCredential.
func ReadAuthority(file string) (*Authority, error) {
	a, _, err := On(vfs.OS()).ReadSealedAuthority(file, "")
	return a, err
}

// WriteKey writes a key without a certificate to a file accessible only to its owner.
func (f Files) WriteKey(file string, key crypto.Signer) error {
	b, err := keyPEM(key)
	if err != nil {
		return err
	}
	return f.secrets.Write(file, b)
}

// ReadKey reads what WriteKey wrote. Errors: those of ReadCredential.
func (f Files) ReadKey(file string) (crypto.Signer, error) {
	b, err := f.secrets.Read(file)
	if err != nil {
		return nil, err
	}
	blocks, err := readPEM(b)
	if err == nil && (blocks.key == nil || len(blocks.certs) > 0) {
		err = errors.New("expected a private key and nothing else")
	}
	if err != nil {
		return nil, &FileError{file, "not a key", err}
	}
	return blocks.key, nil
}

// ReadTrust reads a file with the authorities' certificates, which is not secret.
func ReadTrust(file string) (*Trust, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := ParseTrust(b)
	if err != nil {
		return nil, &FileError{file, "not a file of a cluster's authorities", err}
	}
	return t, nil
}

func keyPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// pemBlocks is the content of a PEM file.
type pemBlocks struct {
	key   crypto.Signer // may be nil
	certs []*x509.Certificate
}

// pemBlocksMax allows a key, its certificate, and all authorities.
const pemBlocksMax = 2 + authoritiesMax

// readPEM reads keys and certificates. Errors contain the number of the block, from 1, and nothing
// of its content.
func readPEM(b []byte) (pemBlocks, error) {
	var all pemBlocks
	for n := 1; ; n++ {
		block, rest := pem.Decode(b)
		if block == nil {
			if len(bytes.TrimSpace(b)) > 0 {
				return all, fmt.Errorf("data after PEM block %d is not a PEM block", n-1)
			}
			return all, nil
		}
		b = rest
		switch {
		case n > pemBlocksMax:
			return all, fmt.Errorf("more than %d PEM blocks", pemBlocksMax)
		case block.Type == pemCertificate:
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return all, fmt.Errorf("PEM block %d: %w", n, err)
			}
			all.certs = append(all.certs, c)
		case block.Type == pemKey && all.key == nil:
			k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			signer, ok := k.(crypto.Signer)
			if err != nil || !ok || !goodKey(signer.Public()) {
				return all, fmt.Errorf("PEM block %d is not an ECDSA or Ed25519 private key", n)
			}
			all.key = signer
		default:
			return all, fmt.Errorf("PEM block %d has type %q or is a second key", n, block.Type)
		}
	}
}
