package authz

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/steledb/stele/security/audit"
	"github.com/steledb/stele/security/pki"
)

// connectAction is the action in the audit log for a rejected connection.
const connectAction = "connect"

// ConnectionRejected records a rejected connection. It does not wait for the disk. The identity that the peer claims is unverified, so it
// appears only in the text: otherwise clients could create any number of kinds of refusals.
func (l *AuditLog) ConnectionRejected(from string, err error) {
	code := rejectionCode(err)
	if l == nil || code == "" {
		return
	}
	r := audit.Record{From: from, Action: connectAction, Code: code, Text: err.Error()}
	var many *pki.ManyConnsError
	if errors.As(err, &many) {
		r.Requester = pki.Peer{Kind: pki.Principal, Name: many.Name}
	}
	l.To.Refusal(r)
}

// rejectionCode returns the code for the reason of a rejected connection, or "" for a connection that broke or timed out.
func rejectionCode(err error) string {
	var peer *pki.PeerError
	var many *pki.ManyConnsError
	var plain tls.RecordHeaderError
	var network net.Error
	switch {
	case errors.As(err, &peer):
		for _, w := range []struct {
			why  error
			code string
		}{
			{pki.ErrExpired, "expired"}, {pki.ErrNotYetValid, "not_yet_valid"}, {pki.ErrOtherCluster, "other_cluster"},
			{pki.ErrUntrusted, "untrusted"}, {pki.ErrRefused, "removed"},
		} {
			if errors.Is(peer.Why, w.why) {
				return w.code
			}
		}
	case errors.As(err, &many):
		return "many_connections"
	case errors.As(err, &plain):
		return "no_tls"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &network), errors.Is(err, context.Canceled):
		return ""
	}
	return "bad_handshake"
}
