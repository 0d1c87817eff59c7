package api

import (
	"bytes"
	"errors"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

var (
	// ErrNoUser means that the cluster has no user with that name.
	ErrNoUser = errors.New("no such user")
	// ErrNoGrant means that there is no such grant to revoke.
	ErrNoGrant = errors.New("no such grant")
	// ErrGrantsChanged means that the grants are not those that set_grants was to replace.
	ErrGrantsChanged = errors.New("grants have changed")
	// ErrLastAdmin means that the cluster would have no enabled administrator with a valid
	// credential left.
	ErrLastAdmin = errors.New("the cluster would have no administrator left")
	// ErrNoIssuer means that the node that was to sign a certificate does not have the authority's
	// key.
	ErrNoIssuer = errors.New("node cannot sign certificates")
	// ErrOpenCluster means that the cluster has no certificates and therefore no users, grants or
	// tokens.
	ErrOpenCluster = errors.New("the cluster has no access control: every client has all rights; \"stele init\" creates a cluster with access control")
)

// Everyone is the principal of grants to all principals of the cluster.
const Everyone = "*"

// GrantRequest holds the parameters of grant and revoke:
//
//	[principal, rights, options?]    options: table, family, view
type GrantRequest struct {
	Options
	Principal string
	// Rights is a comma-separated list of read, write, admin and monitor.
	Rights string
	// Table is the object of the grant; empty means the cluster. Family, with a table, is a family
	// of it; empty means the whole table. View, instead, is a view of it.
	Table, Family, View string
}

// Append encodes the parameters.
func (r *GrantRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	for _, s := range []string{r.Table, r.Family, r.View} {
		if s != "" {
			n++
		}
	}
	e.Array(2 + min(n, 1))
	e.Str(r.Principal)
	e.Str(r.Rights)
	r.Options.append(e, n)
	appendText(e, "table", r.Table)
	appendText(e, "family", r.Family)
	appendText(e, "view", r.View)
}

func appendText(e *wire.Encoder, key, s string) {
	if s != "" {
		e.Str(key)
		e.Str(s)
	}
}

// Decode decodes the n parameters in d.
func (r *GrantRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodGrant, n, 2, 3); err != nil {
		return err
	}
	*r = GrantRequest{Principal: d.Str(), Rights: d.Str()}
	return r.Options.decode(d, n > 2, r)
}

func (r *GrantRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "table":
		r.Table = textOption(d, "table")
	case "family":
		r.Family = textOption(d, "family")
	case "view":
		r.View = textOption(d, "view")
	default:
		return false
	}
	return true
}

// SetGrantsRequest holds the parameters of set_grants:
//
//	[[[principal, rights]…], [[principal, rights]…], options?]    options: table, view
type SetGrantsRequest struct {
	Options
	// From are the present grants on the object, and To those that replace them. Principals differ.
	From, To []PrincipalRights
	// Table and View name the object, as in a GrantRequest. Grants on families of the table are not changed.
	Table, View string
}

// PrincipalRights are the rights of a principal on an object.
type PrincipalRights struct {
	Principal string
	Rights    string // as in a GrantRequest
}

// setGrantsMax bounds the grants in a request: an object has no more.
const setGrantsMax = 3000

// Append encodes the parameters.
func (r *SetGrantsRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	for _, s := range []string{r.Table, r.View} {
		if s != "" {
			n++
		}
	}
	e.Array(2 + min(n, 1))
	for _, all := range [][]PrincipalRights{r.From, r.To} {
		e.Array(len(all))
		for _, g := range all {
			e.Array(2)
			e.Str(g.Principal)
			e.Str(g.Rights)
		}
	}
	r.Options.append(e, n)
	appendText(e, "table", r.Table)
	appendText(e, "view", r.View)
}

// Decode decodes the n parameters in d.
func (r *SetGrantsRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodSetGrants, n, 2, 3); err != nil {
		return err
	}
	*r = SetGrantsRequest{}
	for _, to := range []*[]PrincipalRights{&r.From, &r.To} {
		for range d.ArrayMax(setGrantsMax) {
			if d.Array() != 2 && d.Err() == nil {
				return rpc.Errorf(rpc.CodeBadRequest, "%s: a grant has not two elements", MethodSetGrants)
			}
			*to = append(*to, PrincipalRights{Principal: d.Str(), Rights: d.Str()})
			if d.Err() != nil {
				return d.Err()
			}
		}
	}
	return r.Options.decode(d, n > 2, r)
}

func (r *SetGrantsRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "table":
		r.Table = textOption(d, "table")
	case "view":
		r.View = textOption(d, "view")
	default:
		return false
	}
	return true
}

// ListGrantsRequest holds the parameters of list_grants:
//
//	[principal, options?]    options: table
type ListGrantsRequest struct {
	Options
	Principal string // empty means all
	Table     string // empty means the cluster and all tables
}

// Append encodes the parameters.
func (r *ListGrantsRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	if r.Table != "" {
		n++
	}
	e.Array(1 + min(n, 1))
	e.Str(r.Principal)
	r.Options.append(e, n)
	appendText(e, "table", r.Table)
}

// Decode decodes the n parameters in d.
func (r *ListGrantsRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodListGrants, n, 1, 2); err != nil {
		return err
	}
	*r = ListGrantsRequest{Principal: d.Str()}
	return r.Options.decode(d, n > 1, r)
}

func (r *ListGrantsRequest) option(key []byte, d *wire.Decoder) bool {
	if string(key) != "table" {
		return false
	}
	r.Table = textOption(d, "table")
	return true
}

// GrantInfo is one grant.
type GrantInfo struct {
	Principal string
	// Table and Family are names; an empty Table means the cluster, an empty Family the whole
	// table.
	Table, Family string
	// Rights is a comma-separated list.
	Rights string
	// View is the name of the view of the table that the grant is on; empty for other grants.
	View string
}

func (g *GrantInfo) fields() fields {
	return fields{{"principal", &g.Principal}, {"table", &g.Table}, {"family", &g.Family}, {"rights", &g.Rights}, {"view", &g.View}}
}

// grantsMax is the maximum number of grants that a client decodes.
const grantsMax = 1_000_000

// Grants is the result of list_grants: those on the cluster, then those on tables, sorted by name.
type Grants struct{ Grants []GrantInfo }

func (g *Grants) fields() fields {
	return fields{{"grants", &list[GrantInfo]{all: &g.Grants, fields: (*GrantInfo).fields, what: "grants", max: grantsMax}}}
}

// Append encodes the result.
func (g *Grants) Append(e *wire.Encoder) { g.fields().append(e) }

// Decode decodes the result.
func (g *Grants) Decode(d *wire.Decoder) error {
	*g = Grants{}
	return g.fields().decode(d)
}

// AddUserRequest holds the parameters of add_user:
//
//	[name, options?]    options: request, ttl_ms, no_end, comment
type AddUserRequest struct {
	Options
	Name string
	// Request is a certificate request in DER (PKCS #10). Without it the cluster creates an access
	// token.
	Request []byte
	// TTL is the time for which the credential is valid. Zero means a year for a certificate and 90
	// days for a token.
	TTL time.Duration
	// NoEnd creates a token that is valid until it is revoked.
	NoEnd bool
	// Comment is stored with a token.
	Comment string
}

// Append encodes the parameters.
func (r *AddUserRequest) Append(e *wire.Encoder) {
	n := r.Options.count() + present(r.Request)
	if r.TTL != 0 {
		n++
	}
	if r.NoEnd {
		n++
	}
	if r.Comment != "" {
		n++
	}
	e.Array(1 + min(n, 1))
	e.Str(r.Name)
	r.Options.append(e, n)
	appendBytes(e, "request", r.Request)
	appendCount(e, "ttl_ms", wholeMillis(r.TTL))
	if r.NoEnd {
		e.Str("no_end")
		e.Bool(true)
	}
	appendText(e, "comment", r.Comment)
}

// Decode decodes the n parameters in d.
func (r *AddUserRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodAddUser, n, 1, 2); err != nil {
		return err
	}
	*r = AddUserRequest{Name: d.Str()}
	return r.Options.decode(d, n > 1, r)
}

// userTTLMax is the largest decoded TTL; larger values are reduced to it.
const userTTLMax = 100 * 365 * 24 * time.Hour

func (r *AddUserRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "request":
		r.Request = bytes.Clone(optionalBytes(d))
	case "ttl_ms":
		r.TTL = millisOption(d, "ttl_ms", userTTLMax)
	case "no_end":
		r.NoEnd = d.Bool()
	case "comment":
		r.Comment = string(optionalBytes(d))
	default:
		return false
	}
	return true
}

// AddedUser is the result of add_user.
type AddedUser struct {
	// New reports whether the user was created by this call.
	New bool
	// Certificate is the requested certificate in DER. Authority contains the certificates of the
	// cluster's authority in PEM.
	Certificate, Authority []byte
	// Token is the text of an access token if no certificate was requested. It is a secret that the
	// cluster does not store.
	Token string
	// TokenID is the id of the token.
	TokenID string
	// EndsMS is when the credential expires, in milliseconds since 1970; 0 means never.
	EndsMS int64
}

func (u *AddedUser) fields() fields {
	return fields{
		{"new", &u.New}, {"certificate", &u.Certificate}, {"authority", &u.Authority}, {"token", &u.Token}, {"token_id", &u.TokenID}, {"ends_ms", &u.EndsMS},
	}
}

// Append encodes the result.
func (u *AddedUser) Append(e *wire.Encoder) { u.fields().append(e) }

// Decode decodes the result.
func (u *AddedUser) Decode(d *wire.Decoder) error {
	*u = AddedUser{}
	return u.fields().decode(d)
}

// UserInfo is a principal of the cluster.
type UserInfo struct {
	Name      string
	Disabled  bool
	CreatedMS int64 // in milliseconds since 1970
	// Generation is the lowest generation of valid credentials.
	Generation uint64
	Tokens     []UserToken
}

// UserToken is an access token of a principal.
type UserToken struct {
	ID                string
	CreatedMS, EndsMS int64 // an EndsMS of 0 means never
	Comment           string
}

func (t *UserToken) fields() fields {
	return fields{{"id", &t.ID}, {"created_ms", &t.CreatedMS}, {"ends_ms", &t.EndsMS}, {"comment", &t.Comment}}
}

func (u *UserInfo) fields() fields {
	return fields{
		{"name", &u.Name}, {"disabled", &u.Disabled}, {"created_ms", &u.CreatedMS}, {"generation", &u.Generation},
		{"tokens", &list[UserToken]{all: &u.Tokens, fields: (*UserToken).fields, what: "tokens", max: usersMax}},
	}
}

// usersMax is the maximum number of users that a client decodes.
const usersMax = 100_000

// Users is the result of list_users, sorted by name.
type Users struct{ Users []UserInfo }

func (u *Users) fields() fields {
	return fields{{"users", &list[UserInfo]{all: &u.Users, fields: (*UserInfo).fields, what: "users", max: usersMax}}}
}

// Append encodes the result.
func (u *Users) Append(e *wire.Encoder) { u.fields().append(e) }

// Decode decodes the result.
func (u *Users) Decode(d *wire.Decoder) error {
	*u = Users{}
	return u.fields().decode(d)
}

// RevokeUserRequest holds the parameters of revoke_user:
//
//	[name, options?]    options: token, certificate
type RevokeUserRequest struct {
	Options
	Name string
	// Token is the id of the only token to revoke, and Certificate the serial number, in
	// hexadecimal, of the only certificate. If both are empty, all certificates and tokens of the
	// user are revoked.
	Token, Certificate string
}

// Append encodes the parameters.
func (r *RevokeUserRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	for _, s := range []string{r.Token, r.Certificate} {
		if s != "" {
			n++
		}
	}
	e.Array(1 + min(n, 1))
	e.Str(r.Name)
	r.Options.append(e, n)
	appendText(e, "token", r.Token)
	appendText(e, "certificate", r.Certificate)
}

// Decode decodes the n parameters in d.
func (r *RevokeUserRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodRevokeUser, n, 1, 2); err != nil {
		return err
	}
	*r = RevokeUserRequest{Name: d.Str()}
	return r.Options.decode(d, n > 1, r)
}

func (r *RevokeUserRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "token":
		r.Token = textOption(d, "token")
	case "certificate":
		r.Certificate = textOption(d, "certificate")
	default:
		return false
	}
	return true
}
