package authz

import (
	"context"
	"errors"
	"path"

	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// Credential is what a connection authenticated with.
type Credential struct {
	name       string
	generation uint64
	token      string // its id; empty for a certificate
	serial     string // of a certificate; empty for a token
}

// CredentialOf returns the credential of a peer.
func CredentialOf(p pki.Peer) Credential {
	c := Credential{name: p.Name, generation: p.Generation}
	if p.Ends.IsZero() { // as Subject.Identity has it
		c.token = p.Serial
	} else {
		c.serial = p.Serial
	}
	return c
}

// Refuses reports whether a credential is no longer valid.
func (r *Rights) Refuses(ctx context.Context, c Credential) (bool, error) {
	t, err := r.Cache.Check(ctx, c.name, c.generation)
	var unreadable *acl.RecordError
	switch {
	case errors.As(err, &unreadable): // it must not keep other users connected
		return false, nil
	case errors.Is(err, acl.ErrUnknownPrincipal), errors.Is(err, acl.ErrDisabled), errors.Is(err, acl.ErrRevoked):
		return true, nil
	case err != nil:
		return false, err
	case c.token == "":
		revoked, _ := r.Cache.CertificateRevoked(t, c.name, c.serial) // if unknown, the next check finds it
		return revoked, nil
	}
	b, err := r.Files.Get(ctx, path.Join(TokensDir, c.token))
	return err == nil && b == nil, err
}

// PeerOf returns the peer of a connection: anonymous on an open node.
func PeerOf(p *rpc.Peer) pki.Peer {
	if caller := Acting(p.Identity); caller != nil {
		return caller.Identity()
	}
	return pki.Peer{}
}

// strangerBytesMax bounds a request of a client without a valid credential.
const strangerBytesMax = 64 << 10

// RequestBytes returns the function that bounds the requests of a peer, given the node's bound. If it is unknown whether a principal
// is valid, its requests are checked when they are executed.
func (r *Rights) RequestBytes(most int) func(*rpc.Peer) int {
	return func(p *rpc.Peer) int {
		caller := PeerOf(p)
		switch caller.Kind {
		case pki.Anonymous:
			return strangerBytesMax
		case pki.Principal:
			if r.RefusedNow(caller) != nil {
				return strangerBytesMax
			}
		}
		return most
	}
}

// RefusedNow returns an error if it is known, without a wait, that a principal or its certificate is no longer valid. Errors: *api.IdentityError.
func (r *Rights) RefusedNow(p pki.Peer) error {
	if err, known := r.Cache.CheckNow(p.Name, p.Generation); known && err != nil {
		return r.Recode(err)
	}
	if revoked, _ := r.Cache.CertificateRevokedNow(p.Name, p.Serial); revoked {
		return r.Recode(acl.ErrRevoked)
	}
	return nil
}
