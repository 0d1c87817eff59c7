package users

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
)

// Changes of rights are made by the master's node, one at a time. Each ends with a write of the epoch file, which invalidates what
// all servers have cached.

// nextEpoch starts another epoch of rights and returns it. It never creates the file: without it, no rights are known.
func (acc *Service) nextEpoch(ctx context.Context) (uint64, error) {
	for {
		f, err := acc.Meta.Get(ctx, acl.EpochFile)
		if err != nil {
			return 0, fmt.Errorf("read the epoch of rights: %w", err)
		}
		made, err := acc.Changes.SetAsMaster(ctx, acl.EpochFile, namespace.EpochBytes(f.Generation), f.Generation)
		if !errors.Is(err, metaapi.ErrGeneration) {
			return made, err
		}
	}
}

// changeRights runs a change of rights. When it returns, what was written is in force on all nodes, even if the result is that
// nothing was to be done. If it fails halfway, the error is api.ErrOutcomeUnknown.
func (acc *Service) changeRights(ctx context.Context, a authz.ChangeRequest, do func(ctx context.Context) error) error {
	return acc.Changes.Do(ctx, a, func(ctx context.Context) error {
		err := changes.NotMasterNow(do(ctx))
		part := namespace.MastershipIn(ctx).Wrote.Load()
		if !part && errors.Is(err, changes.ErrNotMaster) {
			return err
		}
		if _, epochErr := acc.nextEpoch(ctx); epochErr != nil { // part of the change may have been written
			return reply.Recode(api.ErrOutcomeUnknown, fmt.Errorf("the change may not be in force on all servers; repeat it: %w", errors.Join(err, epochErr)))
		}
		if part && err != nil {
			return reply.Recode(api.ErrOutcomeUnknown, fmt.Errorf("part of the change was made; repeat it: %w", err))
		}
		return err
	})
}

// GrantCreator grants the creator of a new table the right to administer it. No new epoch is needed: no server has cached rights on
// the table.
func (acc *Service) GrantCreator(ctx context.Context, creator string, tableID uint64) error {
	p, err := (&acl.Policy{Table: tableID}).Grant(acl.Grant{Principal: creator, Rights: acl.Admin})
	if err != nil {
		return err
	}
	_, err = acc.Changes.SetAsMaster(ctx, acl.TableFile(tableID), p.Encode(), 0)
	return err
}

// ForgetGrants removes the grants on a table that was dropped, or never created. They would have no effect, because ids are not
// reused.
func (acc *Service) ForgetGrants(ctx context.Context, tableID uint64) {
	if acc.Authz.Open {
		return
	}
	if err := acc.Changes.DeleteAsMaster(ctx, acl.TableFile(tableID)); err != nil {
		acc.Log.Warn("grants of dropped table not removed", "table_id", tableID, "err", err)
	}
}
