package node

import (
	"errors"
	"net/http"
	"strings"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// mayLook returns nil if a request may see the node's pages: from a node, or from a principal with the right to monitor the cluster, who has a
// certificate or sends an access token as a bearer. Otherwise it returns the HTTP status.
func (n *Node) mayLook(r *http.Request, peer pki.Peer) (status int, err error) {
	caller := &authz.Subject{Peer: peer, From: r.RemoteAddr}
	if peer.Kind == pki.Node {
		return 0, nil
	}
	if !n.serving.Load() {
		return http.StatusServiceUnavailable, n.notServing()
	}
	if peer.Kind == pki.Anonymous {
		text, credentialToken := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !credentialToken {
			return http.StatusUnauthorized, authz.ErrStranger
		}
		err = n.tokenAuth.Authenticate(r.Context(), caller, strings.TrimSpace(text))
	}
	if err == nil {
		_, err = n.authz.Rights.Check(r.Context(), caller, acl.Monitor)
	}
	switch {
	case err == nil:
		return 0, nil
	case errors.Is(err, api.ErrUnauthenticated):
		status = http.StatusUnauthorized
	case errors.Is(err, api.ErrPermission):
		status = http.StatusForbidden
	case errors.Is(err, api.ErrOverloaded):
		return http.StatusTooManyRequests, err
	default:
		return http.StatusServiceUnavailable, err
	}
	n.authz.Audit.Refused(caller, "http", r.URL.Path, err)
	return status, err
}
