package certs

import (
	"context"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/security/pki"
)

const (
	// disconnectPeriod is the interval of checks for connections of users that are no longer admitted. It takes two checks in a row to close a connection:
	// until then answers return the reason.
	disconnectPeriod = 5 * time.Second
	// disconnectAfter is how long a removed node keeps its connections, to learn of its removal and stop by itself.
	disconnectAfter = 3 * time.Second
)

// Disconnect closes all connections. Peers with valid certificates reconnect.
func (t *Transport) Disconnect() { t.endpoint.Disconnect(func(pki.Peer) bool { return true }) }

// DisconnectRemoved closes the connections of removed nodes some seconds later, unless ctx ends first.
func (t *Transport) DisconnectRemoved(ctx context.Context, gone map[string]bool) {
	if timing.Sleep(ctx, disconnectAfter); ctx.Err() == nil {
		t.endpoint.Disconnect(func(p pki.Peer) bool { return p.Kind == pki.Node && gone[p.Name] })
	}
}

// Rejections reports whether a credential is no longer valid.
type Rejections interface {
	// Ready returns an error while rights are unknown: nothing is rejected then.
	Ready() error
	Refuses(ctx context.Context, c authz.Credential) (bool, error)
}

// DisconnectRejected closes the connections of users that are no longer admitted, until ctx ends.
func (t *Transport) DisconnectRejected(ctx context.Context, rejections Rejections) {
	if t == nil {
		return
	}
	var out map[authz.Credential]bool
	for timing.Sleep(ctx, disconnectPeriod); ctx.Err() == nil; timing.Sleep(ctx, disconnectPeriod) {
		before := out
		var err error
		if out, err = t.rejectedCredentials(ctx, rejections); err != nil {
			t.Log.Debug("credentials of connections not checked", "err", err)
			continue
		}
		gone := t.endpoint.Disconnect(func(p pki.Peer) bool {
			c := authz.CredentialOf(p)
			return p.Kind == pki.Principal && before[c] && out[c]
		})
		if gone > 0 {
			t.Log.Info("connections of rejected users closed", "connections", gone)
		}
	}
}

// rejectedCredentials returns the credentials of connections that are no longer valid. The error is that of a read.
func (t *Transport) rejectedCredentials(ctx context.Context, rejections Rejections) (map[authz.Credential]bool, error) {
	if err := rejections.Ready(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, authz.RightsTimeout)
	defer cancel()
	out := map[authz.Credential]bool{}
	for _, p := range t.endpoint.Principals() {
		c := authz.CredentialOf(p)
		if _, looked := out[c]; looked {
			continue
		}
		refused, err := rejections.Refuses(ctx, c)
		if err != nil {
			return nil, err
		}
		out[c] = refused
	}
	return out, nil
}
