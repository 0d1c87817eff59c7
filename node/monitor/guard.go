package monitor

import (
	"errors"
	"net/http"
	"strings"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// guarded rejects requests that come by TLS and may not see the page.
func (sv *Service) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if certs.IsTLS(r) {
			if status, err := sv.Authorize(r, certs.PeerOf(r)); err != nil {
				http.Error(w, err.Error(), status)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// Authorize returns nil if a request may see the node's pages: from a node, or from a principal with the right to monitor the cluster and with
// a certificate or an access token, sent as a bearer. Otherwise it returns the HTTP status.
func (sv *Service) Authorize(r *http.Request, peer pki.Peer) (status int, err error) {
	caller := &authz.Subject{Peer: peer, From: r.RemoteAddr}
	if peer.Kind == pki.Node {
		return 0, nil
	}
	if err := sv.CheckServing(); err != nil {
		return http.StatusServiceUnavailable, err
	}
	if peer.Kind == pki.Anonymous {
		text, credentialToken := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !credentialToken {
			return http.StatusUnauthorized, authz.ErrStranger
		}
		err = sv.Authenticate(r.Context(), caller, strings.TrimSpace(text))
	}
	if err == nil {
		_, err = sv.Authz.Rights.Check(r.Context(), caller, acl.Monitor)
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
	sv.Authz.Audit.Refused(caller, "http", r.URL.Path, err)
	return status, err
}
