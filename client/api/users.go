package api

import (
	"bytes"
	"errors"
	"time"

	"github.com/steledb/stele/internal/wire"
)

var (
	// ErrNoUser means that the cluster knows nobody of that name.
	ErrNoUser = errors.New("no such user")
	// ErrNoGrant means that there is no such grant to be revoked.
	ErrNoGrant = errors.New("no such grant")
	// ErrLastAdmin means that nobody would be left who administers the cluster, is not disabled and has a
	// credential that is good.
	ErrLastAdmin = errors.New("nobody would be left who may administer the cluster")
	// ErrNoIssuer means that the node that was asked to sign a certificate has not the
	// authority's key.
	ErrNoIssuer = errors.New("the node cannot sign certificates")
	// ErrOpenCluster means that the cluster has no certificates, and so neither users, grants nor tokens.
	ErrOpenCluster = errors.New("the cluster has no access control: whoever reaches it may do everything; \"stele init\" makes a cluster that has it")
)

// Everyone stands in grants for every principal that the cluster knows.
const Everyone = "*"

// GrantRequest is the parameters of grant and revoke:
//
//	[principal, rights, options?]    options: table, family
type GrantRequest struct {
	Options
	Principal string
	// Rights are names with commas between: read, write, admin and monitor.
	Rights string
	// Table is what the grant is about; empty is the cluster. Family, with a table, is a
	// family of it; empty is the whole table.
	Table, Family string
}

// Append writes the parameters.
func (r *GrantRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	for _, s := range []string{r.Table, r.Family} {
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
}

func appendText(e *wire.Encoder, key, s string) {
	if s != "" {
		e.Str(key)
		e.Str(s)
	}
}

// Decode reads the n parameters in d.
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
	default:
		return false
	}
	return true
}

// ListGrantsRequest is the parameters of list_grants:
//
//	[principal, options?]    options: table
type ListGrantsRequest struct {
	Options
	Principal string // empty is all
	Table     string // empty is the cluster and all tables
}

// Append writes the parameters.
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

// Decode reads the n parameters in d.
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
	// Table and Family are names; empty is the cluster, and the whole table.
	Table, Family string
	// Rights are names with commas between.
	Rights string
}

func (g *GrantInfo) fields() fields {
	return fields{{"principal", &g.Principal}, {"table", &g.Table}, {"family", &g.Family}, {"rights", &g.Rights}}
}

// grantsMax bounds the grants that a client reads.
const grantsMax = 1_000_000

// Grants is the result of list_grants: those on the cluster, then those on tables, by name.
type Grants struct{ Grants []GrantInfo }

func (g *Grants) fields() fields {
	return fields{{"grants", &list[GrantInfo]{all: &g.Grants, fields: (*GrantInfo).fields, what: "grants", max: grantsMax}}}
}

// Append writes the result.
func (g *Grants) Append(e *wire.Encoder) { g.fields().append(e) }

// Decode reads the result.
func (g *Grants) Decode(d *wire.Decoder) error {
	*g = Grants{}
	return g.fields().decode(d)
}

// AddUserRequest is the parameters of add_user:
//
//	[name, options?]    options: request, ttl_ms, no_end, comment
type AddUserRequest struct {
	Options
	Name string
	// Request asks for a certificate, in DER (PKCS #10). Without it an access token is made.
	Request []byte
	// TTL is how long the credential can be used. Zero means a year for a certificate, and 90 days for a token.
	TTL time.Duration
	// NoEnd makes a token that can be used until it is revoked.
	NoEnd bool
	// Comment is kept beside a token.
	Comment string
}

// Append writes the parameters.
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

// Decode reads the n parameters in d.
func (r *AddUserRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodAddUser, n, 1, 2); err != nil {
		return err
	}
	*r = AddUserRequest{Name: d.Str()}
	return r.Options.decode(d, n > 1, r)
}

// userTTLMax bounds what is read.
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
	// New tells that nobody of that name was known before.
	New bool
	// Certificate is in DER, if one was asked for. Authority has the certificates of the
	// cluster's authority, in PEM.
	Certificate, Authority []byte
	// Token is the text of an access token if no certificate was asked for: a secret, which
	// is kept nowhere.
	Token string
	// TokenID names the token.
	TokenID string
	// EndsMS is when it ends, in milliseconds since 1970; 0 is never.
	EndsMS int64
}

func (u *AddedUser) fields() fields {
	return fields{
		{"new", &u.New}, {"certificate", &u.Certificate}, {"authority", &u.Authority}, {"token", &u.Token}, {"token_id", &u.TokenID}, {"ends_ms", &u.EndsMS},
	}
}

// Append writes the result.
func (u *AddedUser) Append(e *wire.Encoder) { u.fields().append(e) }

// Decode reads the result.
func (u *AddedUser) Decode(d *wire.Decoder) error {
	*u = AddedUser{}
	return u.fields().decode(d)
}

// UserInfo is a principal that the cluster knows.
type UserInfo struct {
	Name      string
	Disabled  bool
	CreatedMS int64 // in milliseconds since 1970
	// Generation is the least of credentials that are good.
	Generation uint64
	Tokens     []UserToken
}

// UserToken is an access token of a principal.
type UserToken struct {
	ID                string
	CreatedMS, EndsMS int64 // EndsMS 0 is never
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

// usersMax bounds the users that a client reads.
const usersMax = 100_000

// Users is the result of list_users, by name.
type Users struct{ Users []UserInfo }

func (u *Users) fields() fields {
	return fields{{"users", &list[UserInfo]{all: &u.Users, fields: (*UserInfo).fields, what: "users", max: usersMax}}}
}

// Append writes the result.
func (u *Users) Append(e *wire.Encoder) { u.fields().append(e) }

// Decode reads the result.
func (u *Users) Decode(d *wire.Decoder) error {
	*u = Users{}
	return u.fields().decode(d)
}

// RevokeUserRequest is the parameters of revoke_user:
//
//	[name, options?]    options: token, certificate
type RevokeUserRequest struct {
	Options
	Name string
	// Token, unless empty, is the id of the only token that is revoked, and Certificate the
	// serial number, in hexadecimal, of the only certificate. Without either all
	// certificates and tokens of the user are.
	Token, Certificate string
}

// Append writes the parameters.
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

// Decode reads the n parameters in d.
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
