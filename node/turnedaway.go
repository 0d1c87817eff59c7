package node

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/steledb/stele/security/audit"
	"github.com/steledb/stele/security/pki"
)

// connectAction is what the audit log says that one wanted whose connection was not taken.
const connectAction = "connect"

// turnedAway notes that a connection was not taken. It waits for nothing. Whom the other end says it is has been
// shown by nothing: it stands in the text alone, else everybody could make as many kinds of refusals as he likes.
func (l *auditLog) turnedAway(from string, err error) {
	code := whyTurnedAway(err)
	if l == nil || code == "" {
		return
	}
	r := audit.Record{From: from, Action: connectAction, Code: code, Text: err.Error()}
	var many *pki.ManyConnsError
	if errors.As(err, &many) {
		r.Who = pki.Peer{Kind: pki.Principal, Name: many.Name}
	}
	l.to.Refusal(r)
}

// whyTurnedAway is a word for why a connection was not taken; none for one that broke, or on which nothing was said in time.
func whyTurnedAway(err error) string {
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
