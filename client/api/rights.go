package api

import (
	"errors"

	"github.com/steledb/stele/internal/errkind"
)

var (
	// ErrUnauthenticated means that the cluster does not know who asks: an *IdentityError.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrPermission means that who asks may not do that: a *PermissionError.
	ErrPermission = errors.New("permission denied")
)

// Why a caller is not known.
const (
	IdentityNone     = "no_credential" // none was shown
	IdentityNoTLS    = "no_tls"        // none can be: the connection is plain
	IdentityBadToken = "bad_token"     // there is no such token
	IdentityExpired  = "expired"       // the token has ended
	IdentityDisabled = "disabled"      // the principal is not let in at present
	IdentityRevoked  = "revoked"       // the certificate or token was revoked
	IdentityUnknown  = "unknown"       // there is no such principal, or no longer
)

// IdentityError says why a caller is not known.
type IdentityError struct {
	Reason string // IdentityNone...
	Text   string // for people
}

func (e *IdentityError) Error() string { return e.Text }

// Is makes the error match ErrUnauthenticated.
func (e *IdentityError) Is(target error) bool { return target == ErrUnauthenticated }

// PermissionError says which right is missing where.
type PermissionError struct {
	// Right is the right: read, write or admin. Empty: Method is for nodes alone.
	Right string
	// Table and Family are what it is about; without them it is the cluster.
	Table, Family string
	Method        string
	// Executed tells that the right was there when the request came, and was taken away
	// while it was carried out.
	Executed bool
	Text     string // for people
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
