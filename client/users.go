package client

import (
	"context"
	"crypto/x509"
	"fmt"
	"math"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// Types of the results about users.
type (
	// UserInfo is a principal of the cluster.
	UserInfo = api.UserInfo
	// UserToken is an access token of a principal.
	UserToken = api.UserToken
)

// Users administers the principals of a cluster and their credentials: certificates and access
// tokens. Their rights are Grants.
type Users struct{ calls *caller }

// Users returns the administration of principals.
func (c *Client) Users() Users { return Users{&c.calls} }

// Add creates a credential for a principal. It creates the principal if necessary, without rights
// except those of Everyone. The private key is generated here and not sent. The credential is valid
// for ttl, or for a year if that is zero. isNew reports whether the principal was created. Errors:
// ErrPermission, *AmbiguousError, those of package pki and of Tables.List.
func (u Users) Add(ctx context.Context, name string, ttl time.Duration) (_ *pki.Credential, isNew bool, err error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, false, err
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return nil, false, err
	}
	made, err := u.add(ctx, api.AddUserRequest{Name: name, TTL: ttl, Request: request})
	if err != nil {
		return nil, false, err
	}
	leaf, err := x509.ParseCertificate(made.Certificate)
	if err != nil {
		return nil, false, fmt.Errorf("read the certificate that was made: %w", err)
	}
	trust, err := pki.ParseTrust(made.Authority)
	if err != nil {
		return nil, false, err
	}
	credential, err := pki.NewCredential(key, leaf, trust)
	return credential, made.New, err
}

// NoEnd is the TTL of a token that is valid until it is revoked.
const NoEnd time.Duration = math.MaxInt64

// AddToken creates an access token for a principal, as Add creates a credential. It is valid for
// ttl; zero means 90 days. The comment is stored with it. Errors: those of Add.
func (u Users) AddToken(ctx context.Context, name string, ttl time.Duration, comment string) (_ token.Token, isNew bool, err error) {
	r := api.AddUserRequest{Name: name, TTL: ttl, Comment: comment}
	if ttl == NoEnd {
		r.TTL, r.NoEnd = 0, true
	}
	made, err := u.add(ctx, r)
	if err != nil {
		return token.Token{}, false, err
	}
	t, err := token.Parse(made.Token)
	return t, made.New, err
}

func (u Users) add(ctx context.Context, req api.AddUserRequest) (*api.AddedUser, error) {
	made := &api.AddedUser{}
	return made, u.calls.do(ctx, &call{method: api.MethodAddUser, change: true, encode: req.Append, decode: made.Decode})
}

// List returns the principals of the cluster, sorted by name. Errors: ErrPermission, and those of
// Tables.List.
func (u Users) List(ctx context.Context) ([]UserInfo, error) {
	var all api.Users
	err := u.calls.query(ctx, api.MethodListUsers, nil, all.Decode)
	return all.Users, err
}

// Revoke revokes all credentials of a principal. When it returns, no server answers requests with
// them. The principal's grants remain. Errors: ErrNoUser, ErrLastAdmin, ErrPermission,
// *AmbiguousError, and those of Tables.List.
func (u Users) Revoke(ctx context.Context, name string) error {
	return u.revoke(ctx, api.RevokeUserRequest{Name: name})
}

// RevokeToken revokes one access token of a principal, given by its id. Errors: ErrTokenRefused if
// the principal has no token with that id, and those of Revoke.
func (u Users) RevokeToken(ctx context.Context, name, id string) error {
	if id == "" { // an empty id on the wire means all credentials
		return &TokenRefusedError{Reason: TokenMalformed, Text: "token id is empty"}
	}
	return u.revoke(ctx, api.RevokeUserRequest{Name: name, Token: id})
}

// RevokeCertificate revokes one certificate of a principal, given by its serial number in
// hexadecimal, as returned by Client.Whoami. A client cannot revoke the certificate of its own
// connection. Errors: those of Revoke.
func (u Users) RevokeCertificate(ctx context.Context, name, serial string) error {
	if err := acl.CheckSerial(serial); err != nil { // an empty one on the wire means all credentials
		return fmt.Errorf("revoke a certificate: %w", err)
	}
	return u.revoke(ctx, api.RevokeUserRequest{Name: name, Certificate: serial})
}

func (u Users) revoke(ctx context.Context, req api.RevokeUserRequest) error {
	return u.calls.do(ctx, &call{method: api.MethodRevokeUser, change: true, encode: req.Append})
}

// Remove removes a principal with its credentials and grants. Errors: ErrLastAdmin, and those of
// Revoke.
func (u Users) Remove(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return u.calls.do(ctx, &call{method: api.MethodRemoveUser, change: true, encode: req.Append})
}

// Disable rejects all credentials of a principal until Enable; its credentials and grants remain.
// When it returns, no server answers requests of the principal. Errors: ErrLastAdmin, and those of
// Revoke.
func (u Users) Disable(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return u.calls.do(ctx, &call{method: api.MethodDisableUser, change: true, encode: req.Append})
}

// Enable ends Disable. Errors: those of Revoke.
func (u Users) Enable(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return u.calls.do(ctx, &call{method: api.MethodEnableUser, change: true, encode: req.Append})
}
