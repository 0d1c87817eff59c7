package cli

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// FaultOfIdentity maps errors of authentication and authorization.
func FaultOfIdentity(err error) *Fault {
	var unreachable *client.UnreachableError
	denied := func(hint, text string, cause error) *Fault {
		f := &Fault{Code: ExitDenied, Hint: hint}
		if errors.As(err, &unreachable) && text != "" {
			f.Err = fmt.Errorf("%s: %s", unreachable.Addr, text)
			if cause != nil {
				f.Err = fmt.Errorf("%w: %w", f.Err, cause)
			}
		}
		return f
	}
	var peer *pki.PeerError
	var refused *client.TokenRefusedError
	var plain tls.RecordHeaderError
	var unknown *client.IdentityError
	var permission *api.PermissionError
	switch {
	case errors.Is(err, enrol.ErrExpired):
		return denied("", "", nil)
	case errors.As(err, &refused):
		return denied(tokenHint(refused.Reason), "", nil)
	case IsTokenFormat(err):
		return denied("", "", nil)
	case errors.As(err, new(*formation.NoCertificateError)):
		return &Fault{Code: ExitUsage, Hint: `create a token by "stele token create --out token" on a host of the cluster, and join with --token-file token`}
	case errors.Is(err, client.ErrNoCredential):
		return denied(`authenticate with --credential FILE or STELE_CREDENTIAL; "stele init" creates the first credential`,
			"the node requires authentication", nil)
	case errors.As(err, &peer):
		return denied(peerHint(peer), "the node's certificate is not trusted", peer)
	case pki.IsAlert(err):
		return denied("the credential may be expired, revoked, or of another cluster, or a clock may be wrong",
			"the node rejects the credential", nil)
	case client.NotRPC(err):
		f := &Fault{Code: exitUnreachable, Hint: "name the port for clients, that of --listen: 7106 unless it is set; the console, the gossip and the Bigtable API have others"}
		if errors.As(err, &unreachable) {
			f.Err = fmt.Errorf("%s is not the port for clients of a node", unreachable.Addr)
		}
		return f
	case errors.As(err, &plain):
		return denied("if that is intended, omit --credential and STELE_CREDENTIAL",
			"the node has no certificate: its cluster has no access control", nil)
	case errors.As(err, &unknown):
		f := denied("authenticate with --credential FILE or STELE_CREDENTIAL", "", nil)
		if errors.As(err, &unreachable) {
			f.Err = fmt.Errorf("%s rejects the token: %w", unreachable.Addr, unknown)
		}
		return f
	case errors.Is(err, client.ErrUnauthenticated):
		return denied("authenticate with --credential FILE or STELE_CREDENTIAL", "", nil)
	case errors.As(err, &permission) && permission.Right == "": // no right would help
		return denied("", "", nil)
	case errors.Is(err, client.ErrPermission):
		return denied(`use a credential with that right, or ask an administrator to grant it by "stele acl grant"`, "", nil)
	}
	return nil
}

// IsTokenFormat reports whether err is about a malformed token.
func IsTokenFormat(err error) bool {
	var bad *token.FormatError
	return errors.As(err, &bad)
}

// peerHint returns the hint for a peer whose certificate is rejected.
func peerHint(e *pki.PeerError) string {
	switch e.Why {
	case pki.ErrExpired:
		return "the node may renew its certificate in a moment; if it does not, check its log and both clocks"
	case pki.ErrNotYetValid:
		return "check both clocks"
	}
	return "credential, token and address must belong to the same cluster"
}

// tokenHint returns the hint for a rejected token.
func tokenHint(reason string) string {
	switch reason {
	case client.TokenMalformed: // the error is sufficient
		return ""
	case client.TokenSpent:
		return `create another token by "stele token create"; "stele token list" shows which nodes have used this one`
	case client.TokenTaken:
		return `create a token for an existing node by "stele token create --node NODE"`
	case client.TokenOtherNode:
		return `create a token for this node by "stele token create --node NODE", or for a new node without --node`
	case client.TokenRemoved:
		return "empty the node's data folders to make the host join as a new node"
	}
	return `create another token by "stele token create"; "stele token list" shows the existing ones`
}
