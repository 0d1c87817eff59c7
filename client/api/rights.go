package api

import (
	"errors"

	"github.com/steledb/stele/internal/errkind"
	"github.com/steledb/stele/internal/wire"
)

var (
	// ErrUnauthenticated means that the cluster could not authenticate the caller: an
	// *IdentityError.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrPermission means that the caller lacks a right: a *PermissionError.
	ErrPermission = errors.New("permission denied")
)

// Reasons for which a caller is not authenticated.
const (
	IdentityNone     = "no_credential" // no credential was presented
	IdentityNoTLS    = "no_tls"        // none can be presented: the connection is plain
	IdentityBadToken = "bad_token"     // there is no such token
	IdentityExpired  = "expired"       // the token has expired
	IdentityDisabled = "disabled"      // the principal is disabled
	IdentityRevoked  = "revoked"       // the certificate or token was revoked
	IdentityUnknown  = "unknown"       // there is no such principal
)

// IdentityError is the reason for which a caller is not authenticated.
type IdentityError struct {
	Reason string // IdentityNone...
	Text   string // message for the user
}

func (e *IdentityError) Error() string { return e.Text }

// Is makes the error match ErrUnauthenticated.
func (e *IdentityError) Is(target error) bool { return target == ErrUnauthenticated }

// PermissionError is the right that the caller lacks.
type PermissionError struct {
	// Right is read, write or admin. If it is empty, Method may be called by nodes only.
	Right string
	// Table and Family are the object of the right; if both are empty, it is the cluster.
	Table, Family string
	Method        string
	// Executed means that the right was revoked during the execution of the request.
	Executed bool
	Text     string // message for the user
}

func (e *PermissionError) Error() string { return e.Text }

// Is makes the error match ErrPermission.
func (e *PermissionError) Is(target error) bool { return target == ErrPermission }

var (
	identityForm = errkind.FormOf(
		func(e *IdentityError, d errkind.Details) { d["reason"] = e.Reason },
		func(a errkind.Answer) error { return &IdentityError{Reason: a.Text("reason"), Text: a.Message} })
	permissionForm = errkind.FormOf(
		func(e *PermissionError, d errkind.Details) {
			for key, value := range map[string]string{"right": e.Right, "table": e.Table, "family": e.Family, "method": e.Method} {
				if value != "" {
					d[key] = value
				}
			}
			d["executed"] = 0
			if e.Executed {
				d["executed"] = 1
			}
		},
		func(a errkind.Answer) error {
			return &PermissionError{
				Right: a.Text("right"), Table: a.Text("table"), Family: a.Text("family"), Method: a.Text("method"),
				Executed: a.Int("executed") == 1, Text: a.Message,
			}
		})
)

// Kinds of callers.
const (
	KindPrincipal = "principal"
	KindNode      = "node"
	// KindAnonymous is a caller of a cluster without certificates, where every client has all rights.
	KindAnonymous = "anybody"
)

// Kinds of credentials.
const (
	ShownCertificate = "certificate"
	ShownToken       = "token"
)

// Whoami is the result of whoami: the caller's identity and rights.
type Whoami struct {
	Kind string // KindPrincipal...
	Name string
	// Cluster is the cluster's id.
	Cluster string
	// Shown is the kind of the caller's credential, such as ShownCertificate. ID is a certificate's
	// serial number in hexadecimal, or a token's id. EndsMS is when the credential expires, in
	// milliseconds since 1970; 0 means never.
	Shown, ID string
	EndsMS    int64
	// Grants are those to the principal and to Everyone.
	Grants []GrantInfo
}

func (w *Whoami) fields() fields {
	return fields{
		{"kind", &w.Kind}, {"name", &w.Name}, {"cluster", &w.Cluster}, {"shown", &w.Shown}, {"id", &w.ID}, {"ends_ms", &w.EndsMS},
		{"grants", &list[GrantInfo]{all: &w.Grants, fields: (*GrantInfo).fields, what: "grants", max: grantsMax}},
	}
}

// Append encodes the result.
func (w *Whoami) Append(e *wire.Encoder) { w.fields().append(e) }

// Decode decodes the result.
func (w *Whoami) Decode(d *wire.Decoder) error {
	*w = Whoami{}
	return w.fields().decode(d)
}
