package node

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/steledb/stele/internal/timing"

	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// disconnectPeriod is the interval of checks for connections of users that are no longer admitted. It takes two checks in a row to close a connection:
// until then answers return the reason.
const disconnectPeriod = 5 * time.Second

// credential is what a connection authenticated with.
type credential struct {
	name       string
	generation uint64
	token      string // its id; empty for a certificate
	serial     string // of a certificate; empty for a token
}

func credentialOf(p pki.Peer) credential {
	c := credential{name: p.Name, generation: p.Generation}
	if p.Ends.IsZero() { // as subject.who has it
		c.token = p.Serial
	} else {
		c.serial = p.Serial
	}
	return c
}

// disconnectRejected closes the connections of users that are no longer admitted, until the node closes.
func (n *Node) disconnectRejected() {
	if n.security == nil {
		return
	}
	var out map[credential]bool
	for timing.Sleep(n.ctx, disconnectPeriod); n.ctx.Err() == nil; timing.Sleep(n.ctx, disconnectPeriod) {
		before := out
		var err error
		if out, err = n.rejectedCredentials(); err != nil {
			n.log.Debug("credentials of connections not checked", "err", err)
			continue
		}
		gone := n.security.endpoint.Disconnect(func(p pki.Peer) bool {
			c := credentialOf(p)
			return p.Kind == pki.Principal && before[c] && out[c]
		})
		if gone > 0 {
			n.log.Info("connections of rejected users closed", "connections", gone)
		}
	}
}

// rejectedCredentials returns the credentials of connections that are no longer valid. The error is that of a read.
func (n *Node) rejectedCredentials() (map[credential]bool, error) {
	if err := n.checkLeader(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(n.ctx, rightsTimeout)
	defer cancel()
	out := map[credential]bool{}
	for _, p := range n.security.endpoint.Principals() {
		c := credentialOf(p)
		if _, looked := out[c]; looked {
			continue
		}
		refused, err := n.authz.rights.refuses(ctx, c)
		if err != nil {
			return nil, err
		}
		out[c] = refused
	}
	return out, nil
}

// refuses reports whether a credential is no longer valid.
func (r *rights) refuses(ctx context.Context, c credential) (bool, error) {
	t, err := r.cache.Check(ctx, c.name, c.generation)
	var unreadable *acl.RecordError
	switch {
	case errors.As(err, &unreadable): // it must not keep other users connected
		return false, nil
	case errors.Is(err, acl.ErrUnknownPrincipal), errors.Is(err, acl.ErrDisabled), errors.Is(err, acl.ErrRevoked):
		return true, nil
	case err != nil:
		return false, err
	case c.token == "":
		revoked, _ := r.cache.CertificateRevoked(t, c.name, c.serial) // if unknown, the next check finds it
		return revoked, nil
	}
	b, err := r.files.Get(ctx, path.Join(tokensDir, c.token))
	return err == nil && b == nil, err
}
