package users

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// handleWhoami registers the method that returns the caller's identity and rights.
func (acc *Service) handleWhoami(r method.Registrar) {
	r.Handle(api.MethodWhoami, rpc.Spawned, authz.Guard{To: authz.Known}, func(c *rpc.Call) {
		var r api.NamesRequest
		if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, api.MethodWhoami, 0), &r.Options) {
			return
		}
		me, err := acc.identityOf(c.Context(), authz.SubjectOf(c))
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(me.Append)
	})
}

// identityOf returns a subject's identity and rights. It contains nothing about tables that the subject may not see.
func (acc *Service) identityOf(ctx context.Context, caller *authz.Subject) (*api.Whoami, error) {
	me := &api.Whoami{Cluster: acc.Cluster(), Kind: api.KindAnonymous}
	if caller == nil {
		me.Grants = []api.GrantInfo{{Principal: acl.Everyone, Rights: acl.Admin.String()}}
		return me, nil
	}
	me.Kind, me.Name, me.Shown, me.ID, me.EndsMS = api.KindPrincipal, caller.Identity().Name, api.ShownCertificate, caller.Identity().Serial, caller.Peer.Ends.UnixMilli()
	if caller.Peer.Kind == pki.Node {
		me.Kind = api.KindNode
		return me, nil
	}
	if t := caller.CredentialToken.Load(); t != nil {
		me.Shown, me.EndsMS = api.ShownToken, 0
		if !t.Record.Ends.IsZero() {
			me.EndsMS = t.Record.Ends.UnixMilli()
		}
	}
	var err error
	me.Grants, err = acc.grantsOn(ctx, nil, func(to string) bool { return to == me.Name || to == acl.Everyone })
	return me, err
}
