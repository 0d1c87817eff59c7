package quotas

import (
	"context"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// A table belongs to the principal that created it, until it is given to another one. Its bytes count for the owner's quota. Ownership
// gives no rights.

func (qs *Service) handleOwners(r method.Registrar) {
	r.Handle(api.MethodSetOwner, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, SelfAudited: true}, func(c *rpc.Call) {
		c.Retain() // the change may outlive the call
		var r api.NamesRequest
		if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, api.MethodSetOwner, 2), &r.Options) {
			return
		}
		err := qs.setOwner(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodSetOwner, Name: r.Names[0]}, r.Names[1])
		qs.Authz.Audit.Action(authz.SubjectOf(c), api.MethodSetOwner, "table "+r.Names[0]+" to "+r.Names[1], err)
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(nil)
	})
}

// setOwner sets the owner of the table in a request; empty means none.
func (qs *Service) setOwner(ctx context.Context, a authz.ChangeRequest, user string) error {
	if qs.Authz.Open {
		return api.ErrOpenCluster
	}
	if metadata.IsSystem(a.Name) {
		return api.ErrSystemTable
	}
	return qs.Changes.Do(ctx, a, func(ctx context.Context) error {
		s, _, err := qs.Catalog.Schema(ctx, a.Name)
		if err != nil {
			return err
		}
		if user != "" {
			if err := qs.CheckUser(ctx, user); err != nil {
				return err
			}
		}
		if err := qs.records.setOwner(ctx, s.ID, user); err != nil {
			return err
		}
		if _, err := qs.records.nextEpoch(ctx); err != nil {
			return reply.Recode(api.ErrOutcomeUnknown, fmt.Errorf("the change may not be in force on all servers; repeat it: %w", err))
		}
		return nil
	})
}

// OwnCreator records the owner of a table that is about to be created. Nodes need to know it only if the owner has a quota: they read owners
// when a quota is set later.
func (qs *Service) OwnCreator(ctx context.Context, creator string, tableID uint64) error {
	if err := qs.records.setOwner(ctx, tableID, creator); err != nil {
		return err
	}
	r, _, err := qs.records.get(ctx, quota.PrincipalFile(creator))
	if err == nil && r != nil && r.BytesMax > 0 {
		_, err = qs.records.nextEpoch(ctx)
	}
	return err
}

// Owners returns the owners of tables by id.
func (qs *Service) Owners(ctx context.Context) (map[uint64]string, error) {
	return qs.records.owners(ctx)
}
