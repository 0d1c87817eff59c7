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
)

const (
	pemKey         = "PRIVATE KEY" // PKCS #8
	pemCertificate = "CERTIFICATE"
)

// Credential is what one end of a connection brings: whom it trusts, and unless it is
// anonymous its key and certificate. It does not change.
type Credential struct {
	trust *Trust
	key   crypto.Signer
	leaf  *x509.Certificate
	peer  Peer
	chain tls.Certificate
}

// NewCredential returns the credential of a key and its certificate, which one of the
// authorities must have signed. It may have expired: that is for the others to judge.
func NewCredential(key crypto.Signer, leaf *x509.Certificate, trust *Trust) (*Credential, error) {
	p, err := peerOf(leaf)
	if err != nil {
		return nil, err
	}
	if p.Cluster != trust.cluster {
		return nil, fmt.Errorf("certificate is of cluster %s, and the authority of cluster %s", p.Cluster, trust.cluster)
	}
	if !keyOf(leaf, key) {
		return nil, errors.New("key and certificate do not belong together")
	}
	for _, authority := range trust.authorities {
		if leaf.CheckSignatureFrom(authority) != nil {
			continue
		}
		c := &Credential{trust: trust, key: key, leaf: leaf, peer: p}
		// The authority's certificate goes along: a host that joins knows but its fingerprint.
		c.chain = tls.Certificate{Certificate: [][]byte{leaf.Raw, authority.Raw}, PrivateKey: key, Leaf: leaf}
		return c, nil
	}
	return nil, errors.New("none of the authorities has signed the certificate")
}

// AnonymousCredential returns the credential of a client without a certificate.
func AnonymousCredential(trust *Trust) *Credential { return &Credential{trust: trust} }

// Peer returns whose credential it is.
func (c *Credential) Peer() Peer { return c.peer }

// Signer returns the certificate of the authority that has signed the credential's; nil if it has none.
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

// Leaf returns the certificate; nil if there is none.
func (c *Credential) Leaf() *x509.Certificate { return c.leaf }

// Trust returns whom the credential trusts.
func (c *Credential) Trust() *Trust { return c.trust }

// Begins is the start of the certificate's life, Backdate before it was made.
func (c *Credential) Begins() time.Time { return c.leaf.NotBefore }

// Ends is the end of the certificate's life.
func (c *Credential) Ends() time.Time { return c.leaf.NotAfter }

// Hosts returns the names and addresses that the certificate is for beside who it names.
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

// String tells whose the credential is, and nothing of the key.
func (c *Credential) String() string { return "credential of " + c.peer.String() }

// LogValue is String, for logs.
func (c *Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// PEM returns key, certificate and authorities as one file. It is a secret.
func (c *Credential) PEM() ([]byte, error) {
	b, err := keyPEM(c.key)
	if err != nil {
		return nil, err
	}
	own := pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: c.leaf.Raw})
	return append(append(b, own...), c.trust.PEM()...), nil
}

// ParseCredential reads what PEM returns: one private key, its certificate, and then
// those of the authorities. No error holds anything of the key.
func ParseCredential(b []byte) (*Credential, error) {
	blocks, err := readPEM(b)
	switch {
	case err != nil:
		return nil, err
	case blocks.key == nil:
		return nil, errors.New("there is no private key")
	case len(blocks.certs) < 2:
		return nil, errors.New("want the key's certificate, and after it the authority's")
	}
	trust, err := NewTrust(blocks.certs[1:]...)
	if err != nil {
		return nil, err
	}
	return NewCredential(blocks.key, blocks.certs[0], trust)
}

// WriteCredential keeps the credential in a file of its owner's alone. The old one, if
// there is any, is replaced as a whole.
func WriteCredential(file string, c *Credential) error {
	b, err := c.PEM()
	if err != nil {
		return err
	}
	return secretfile.Write(file, b)
}

// ReadCredential reads what WriteCredential has written. Errors: *secretfile.ExposedError
// for a file that others can read, *FileError for what it holds, those of package os.
func ReadCredential(file string) (*Credential, error) {
	b, err := secretfile.Read(file)
	if err != nil {
		return nil, err
	}
	c, err := ParseCredential(b)
	if err != nil {
		return nil, &FileError{file, "no credential can be made of it", err}
	}
	return c, nil
}

// PEM returns the authority's key and certificate as one file. It is a secret.
func (a *Authority) PEM() ([]byte, error) {
	b, err := keyPEM(a.key)
	if err != nil {
		return nil, err
	}
	return append(b, pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: a.cert.Raw})...), nil
}

// ParseAuthority reads what PEM returns. No error holds anything of the key.
func ParseAuthority(b []byte) (*Authority, error) {
	blocks, err := readPEM(b)
	if err == nil && (blocks.key == nil || len(blocks.certs) != 1) {
		err = errors.New("want a private key and one certificate")
	}
	if err != nil {
		return nil, err
	}
	return newAuthority(blocks.certs[0], blocks.key)
}

// WriteAuthority keeps the authority's key in a file of its owner's alone.
func WriteAuthority(file string, a *Authority) error { return WriteSealedAuthority(file, a, "") }

// ReadAuthority reads what WriteAuthority has written. Errors: as ReadCredential.
func ReadAuthority(file string) (*Authority, error) {
	a, _, err := ReadSealedAuthority(file, "")
	return a, err
}

// WriteKey keeps a key that has no certificate yet in a file of its owner's alone.
func WriteKey(file string, key crypto.Signer) error {
	b, err := keyPEM(key)
	if err != nil {
		return err
	}
	return secretfile.Write(file, b)
}

// ReadKey reads what WriteKey has written. Errors: as ReadCredential.
func ReadKey(file string) (crypto.Signer, error) {
	b, err := secretfile.Read(file)
	if err != nil {
		return nil, err
	}
	blocks, err := readPEM(b)
	if err == nil && (blocks.key == nil || len(blocks.certs) > 0) {
		err = errors.New("want a private key, and nothing else")
	}
	if err != nil {
		return nil, &FileError{file, "it is not a key", err}
	}
	return blocks.key, nil
}

// ReadTrust reads a file with the authorities' certificates, which is no secret.
func ReadTrust(file string) (*Trust, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := ParseTrust(b)
	if err != nil {
		return nil, &FileError{file, "it holds no authority of a cluster", err}
	}
	return t, nil
}

func keyPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// pemBlocks is what a PEM file holds.
type pemBlocks struct {
	key   crypto.Signer // nil if there is none
	certs []*x509.Certificate
}

// pemBlocksMax: a key, its certificate, and all authorities.
const pemBlocksMax = 2 + authoritiesMax

// readPEM reads keys and certificates. Errors name the block, counted from 1, and hold
// nothing of it.
func readPEM(b []byte) (pemBlocks, error) {
	var all pemBlocks
	for n := 1; ; n++ {
		block, rest := pem.Decode(b)
		if block == nil {
			if len(bytes.TrimSpace(b)) > 0 {
				return all, fmt.Errorf("after %d blocks comes what is no PEM block", n-1)
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
				return all, fmt.Errorf("PEM block %d is no private key of ECDSA or Ed25519", n)
			}
			all.key = signer
		default:
			return all, fmt.Errorf("PEM block %d is of type %q, or a second key", n, block.Type)
		}
	}
}
