package certs

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
)

// Issued makes a host a node: [certificate, authorities, gossip keys, addresses of members, the signer's time in milliseconds]. A
// renewal has no keys and members.
type Issued struct {
	Leaf       []byte // DER
	Trust      []byte // PEM
	GossipKeys [][]byte
	Members    []string
	Now        time.Time
}

// Append encodes the value.
func (r *Issued) Append(e *wire.Encoder) {
	e.Array(5)
	e.Bin(r.Leaf)
	e.Bin(r.Trust)
	e.Array(len(r.GossipKeys))
	for _, k := range r.GossipKeys {
		e.Bin(k)
	}
	AppendNames(e, r.Members)
	e.Uint(uint64(r.Now.UnixMilli()))
}

// Bounds of what was issued.
const (
	issuedKeysMax = 4
	// MembersMax is the number of addresses of members in an Issued.
	MembersMax = 16
)

// Decode decodes a value.
func (r *Issued) Decode(d *wire.Decoder) error {
	if n := d.Array(); d.Err() == nil && n < 5 {
		return fmt.Errorf("enrolment of %d values, want 5", n)
	}
	*r = Issued{Leaf: slices.Clone(d.Bytes()), Trust: slices.Clone(d.Bytes())}
	for range d.ArrayMax(issuedKeysMax) {
		r.GossipKeys = append(r.GossipKeys, slices.Clone(d.Bytes()))
	}
	r.Members = DecodeNames(d, MembersMax)
	r.Now = time.UnixMilli(int64(d.Uint()))
	return d.Err()
}

// Certificate returns the certificate and the trusted authorities.
func (r *Issued) Certificate() (*x509.Certificate, *pki.Trust, error) {
	leaf, err := x509.ParseCertificate(r.Leaf)
	if err != nil {
		return nil, nil, fmt.Errorf("read the issued certificate: %w", err)
	}
	trust, err := pki.ParseTrust(r.Trust)
	return leaf, trust, err
}

// AppendNames encodes the names and addresses of a host.
func AppendNames(e *wire.Encoder, all []string) {
	e.Array(len(all))
	for _, s := range all {
		e.Str(s)
	}
}

// DecodeNames decodes up to that many names and addresses.
func DecodeNames(d *wire.Decoder, most int) (all []string) {
	for range d.ArrayMax(most) {
		all = append(all, d.Str())
	}
	return all
}
