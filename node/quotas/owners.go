package quotas

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// A table belongs to the principal that created it, until it is given to another one. Its bytes count for the owner's quota. Ownership
// gives no rights.

func (qs *Service) handleOwners(r method.Registrar) {
	r.Handle(api.MethodSetOwner, rpc.Spawned, func(c *rpc.Call) {
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
		if err := qs.saveOwner(ctx, s.ID, user); err != nil {
			return err
		}
		if _, err := qs.nextQuotaEpoch(ctx); err != nil {
			return reply.Recode(api.ErrOutcomeUnknown, fmt.Errorf("the change may not be in force on all servers; repeat it: %w", err))
		}
		return nil
	})
}

func (qs *Service) saveOwner(ctx context.Context, tableID uint64, user string) error {
	if user != "" {
		_, err := qs.Catalog.Set(ctx, quota.OwnerFile(tableID), quota.EncodeOwner(user), metaapi.AnyGeneration)
		return err
	}
	err := qs.Catalog.Remove(ctx, quota.OwnerFile(tableID), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil
	}
	return err
}

// OwnCreator records the owner of a table that is about to be created. Nodes need to know it only if the owner has a quota: they read owners
// when a quota is set later.
func (qs *Service) OwnCreator(ctx context.Context, creator string, tableID uint64) error {
	if err := qs.saveOwner(ctx, tableID, creator); err != nil {
		return err
	}
	r, _, err := qs.quotaAt(ctx, quota.PrincipalFile(creator))
	if err == nil && r != nil && r.BytesMax > 0 {
		_, err = qs.nextQuotaEpoch(ctx)
	}
	return err
}

// Owners returns the owners of tables by id.
func (qs *Service) Owners(ctx context.Context) (map[uint64]string, error) {
	names, err := qs.Catalog.List(ctx, quota.OwnersDir)
	if err != nil {
		return nil, err
	}
	all := map[uint64]string{}
	for _, name := range names {
		f, err := qs.Meta.Current().Get(ctx, path.Join(quota.OwnersDir, name))
		if errors.Is(err, metaapi.ErrNotFound) { // dropped meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		owner, err := quota.DecodeOwner(f.Data)
		id, bad := strconv.ParseUint(name, 10, 64)
		if err = errors.Join(err, bad); err != nil {
			qs.damaged.WarnError(qs.Log, "owner of a table skipped: its file is damaged", err, "file", f.Path)
			continue
		}
		all[id] = owner
	}
	return all, nil
}

// forgetOwner removes the ownership of a removed user's tables.
func (qs *Service) forgetOwner(ctx context.Context, user string) (found bool, err error) {
	all, err := qs.Owners(ctx)
	for id, owner := range all {
		if owner == user {
			found, err = true, errors.Join(err, qs.saveOwner(ctx, id, ""))
		}
	}
	return found, err
}
