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
	// Grant gives rights to a principal.
	Grant = api.GrantInfo
	// UserInfo is a principal of the cluster.
	UserInfo = api.UserInfo
	// UserToken is an access token of a principal.
	UserToken = api.UserToken
	// Whoami is a client's identity and rights.
	Whoami = api.Whoami
)

// Everyone is the principal of grants to all principals of the cluster.
const Everyone = api.Everyone

// Grant gives a principal rights, in addition to existing ones. When it returns, the rights are in
// effect on all servers. It requires the right to administer the table, or the cluster if the grant
// names no table. Errors: ErrNoUser, ErrNoTable, ErrNoFamily, ErrPermission, *table.LimitError,
// *AmbiguousError, and those of Tables.
func (c *Client) Grant(ctx context.Context, g Grant) error {
	return c.changeGrant(ctx, api.MethodGrant, g)
}

// Revoke removes rights from exactly this grant: on the cluster, the table or the family. When it
// returns, no server answers requests by these rights. Errors: ErrNoGrant, ErrLastAdmin, and those
// of Grant.
func (c *Client) Revoke(ctx context.Context, g Grant) error {
	return c.changeGrant(ctx, api.MethodRevoke, g)
}

func (c *Client) changeGrant(ctx context.Context, method string, g Grant) error {
	req := api.GrantRequest{Principal: g.Principal, Rights: g.Rights, Table: g.Table, Family: g.Family}
	return c.do(ctx, &call{method: method, change: true, encode: req.Append})
}

// Grants returns the grants on a table to a principal. An empty table selects all grants, an empty
// principal all principals. It requires the right to administer the table, or the cluster. Errors:
// ErrNoTable, ErrPermission, and those of Tables.
func (c *Client) Grants(ctx context.Context, tableName, principal string) ([]Grant, error) {
	req := api.ListGrantsRequest{Principal: principal, Table: tableName}
	var all api.Grants
	err := c.do(ctx, &call{method: api.MethodListGrants, safe: true, encode: req.Append, decode: all.Decode})
	return all.Grants, err
}

// AddUser creates a credential for a principal. It creates the principal if necessary, without
// rights except those of Everyone. The private key is generated here and not sent. The credential
// is valid for ttl, or for a year if that is zero. isNew reports whether the principal was created.
// Errors: ErrPermission, *AmbiguousError, those of package pki and of Tables.
func (c *Client) AddUser(ctx context.Context, name string, ttl time.Duration) (_ *pki.Credential, isNew bool, err error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, false, err
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return nil, false, err
	}
	made, err := c.addUser(ctx, api.AddUserRequest{Name: name, TTL: ttl, Request: request})
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

// AddToken creates an access token for a principal, as AddUser creates a credential. It is valid
// for ttl; zero means 90 days. The comment is stored with it. Errors: those of AddUser.
func (c *Client) AddToken(ctx context.Context, name string, ttl time.Duration, comment string) (_ token.Token, isNew bool, err error) {
	r := api.AddUserRequest{Name: name, TTL: ttl, Comment: comment}
	if ttl == NoEnd {
		r.TTL, r.NoEnd = 0, true
	}
	made, err := c.addUser(ctx, r)
	if err != nil {
		return token.Token{}, false, err
	}
	t, err := token.Parse(made.Token)
	return t, made.New, err
}

func (c *Client) addUser(ctx context.Context, req api.AddUserRequest) (*api.AddedUser, error) {
	made := &api.AddedUser{}
	return made, c.do(ctx, &call{method: api.MethodAddUser, change: true, encode: req.Append, decode: made.Decode})
}

// Users returns the principals of the cluster, sorted by name. Errors: ErrPermission, and those of
// Tables.
func (c *Client) Users(ctx context.Context) ([]UserInfo, error) {
	var all api.Users
	err := c.query(ctx, api.MethodListUsers, nil, all.Decode)
	return all.Users, err
}

// RevokeUser revokes all credentials of a principal. When it returns, no server answers requests
// with them. The principal's grants remain. Errors: ErrNoUser, ErrLastAdmin, ErrPermission,
// *AmbiguousError, and those of Tables.
func (c *Client) RevokeUser(ctx context.Context, name string) error {
	return c.revokeUser(ctx, api.RevokeUserRequest{Name: name})
}

// RevokeUserToken revokes one access token of a principal, given by its id. Errors: ErrTokenRefused
// if the principal has no token with that id, and those of RevokeUser.
func (c *Client) RevokeUserToken(ctx context.Context, name, id string) error {
	if id == "" { // an empty id on the wire means all credentials
		return &TokenRefusedError{Reason: TokenMalformed, Text: "token id is empty"}
	}
	return c.revokeUser(ctx, api.RevokeUserRequest{Name: name, Token: id})
}

// RevokeUserCertificate revokes one certificate of a principal, given by its serial number in
// hexadecimal, as returned by Whoami. A client cannot revoke the certificate of its own connection.
// Errors: those of RevokeUser.
func (c *Client) RevokeUserCertificate(ctx context.Context, name, serial string) error {
	if err := acl.CheckSerial(serial); err != nil { // an empty one on the wire means all credentials
		return fmt.Errorf("revoke a certificate: %w", err)
	}
	return c.revokeUser(ctx, api.RevokeUserRequest{Name: name, Certificate: serial})
}

func (c *Client) revokeUser(ctx context.Context, req api.RevokeUserRequest) error {
	return c.do(ctx, &call{method: api.MethodRevokeUser, change: true, encode: req.Append})
}

// RemoveUser removes a principal with its credentials and grants. Errors: ErrLastAdmin, and those
// of RevokeUser.
func (c *Client) RemoveUser(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return c.do(ctx, &call{method: api.MethodRemoveUser, change: true, encode: req.Append})
}

// DisableUser rejects all credentials of a principal until EnableUser; its credentials and grants
// remain. When it returns, no server answers requests of the principal. Errors: ErrLastAdmin, and
// those of RevokeUser.
func (c *Client) DisableUser(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return c.do(ctx, &call{method: api.MethodDisableUser, change: true, encode: req.Append})
}

// EnableUser ends DisableUser. Errors: those of RevokeUser.
func (c *Client) EnableUser(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return c.do(ctx, &call{method: api.MethodEnableUser, change: true, encode: req.Append})
}

// Whoami returns the client's identity and rights. Errors: *IdentityError if the client is not
// authenticated, and those of Tables.
func (c *Client) Whoami(ctx context.Context) (*Whoami, error) {
	me := &Whoami{}
	return me, c.query(ctx, api.MethodWhoami, nil, me.Decode)
}
