package node

import (
	"context"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/security/pki"
)

// disconnectPeriod is the interval of checks for connections of users that are no longer admitted. It takes two checks in a row to close a connection:
// until then answers return the reason.
const disconnectPeriod = 5 * time.Second

// disconnectRejected closes the connections of users that are no longer admitted, until the node closes.
func (n *Node) disconnectRejected() {
	if n.security == nil {
		return
	}
	var out map[authz.Credential]bool
	for timing.Sleep(n.ctx, disconnectPeriod); n.ctx.Err() == nil; timing.Sleep(n.ctx, disconnectPeriod) {
		before := out
		var err error
		if out, err = n.rejectedCredentials(); err != nil {
			n.log.Debug("credentials of connections not checked", "err", err)
			continue
		}
		gone := n.security.endpoint.Disconnect(func(p pki.Peer) bool {
			c := authz.CredentialOf(p)
			return p.Kind == pki.Principal && before[c] && out[c]
		})
		if gone > 0 {
			n.log.Info("connections of rejected users closed", "connections", gone)
		}
	}
}

// rejectedCredentials returns the credentials of connections that are no longer valid. The error is that of a read.
func (n *Node) rejectedCredentials() (map[authz.Credential]bool, error) {
	if err := n.checkLeader(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(n.ctx, authz.RightsTimeout)
	defer cancel()
	out := map[authz.Credential]bool{}
	for _, p := range n.security.endpoint.Principals() {
		c := authz.CredentialOf(p)
		if _, looked := out[c]; looked {
			continue
		}
		refused, err := n.authz.Rights.Refuses(ctx, c)
		if err != nil {
			return nil, err
		}
		out[c] = refused
	}
	return out, nil
}

// disconnectAfter is how long a removed node keeps its connections, to learn of its removal and stop by itself.
const disconnectAfter = 3 * time.Second

// disconnectRemoved closes the connections of removed nodes after disconnectAfter, unless ctx ends first.
func (s *security) disconnectRemoved(ctx context.Context, gone map[string]bool) {
	if timing.Sleep(ctx, disconnectAfter); ctx.Err() == nil {
		s.endpoint.Disconnect(func(p pki.Peer) bool { return p.Kind == pki.Node && gone[p.Name] })
	}
}

// refuse rejects removed nodes.
func (s *security) refuse(p pki.Peer) error {
	if p.Kind == pki.Node && s.removed(p.Name) {
		return removal.ErrorOf(p.Name)
	}
	return nil
}
