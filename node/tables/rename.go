package tables

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/table"
)

// renamer renames tables.
type renamer struct{ *Service }

func (tb renamer) serve(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	var s *table.Schema
	err := tb.Changes.Do(ctx, authz.RequestIn(ctx), func(ctx context.Context) (err error) {
		s, err = tb.rename(ctx, r.Names[0], r.Names[1])
		return err
	})
	if err != nil {
		return nil, err
	}
	tb.Quotas.Await(ctx, s.ID)
	return schemaAnswer(s), nil
}

// rename gives a table another name, within a change, in one write of the lock service (TB4). The table keeps its id, and so everything that is kept by
// it: tablets, grants, owner, quota, change stream and key heat. Servers learn the new name as they learn of a changed schema (I15).
func (tb renamer) rename(ctx context.Context, from, to string) (*table.Schema, error) {
	if metadata.IsSystem(from) {
		return nil, api.ErrSystemTable
	}
	old, cut, gen, err := namespace.ReadTable(ctx, tb.Catalog.Meta, from)
	if err != nil {
		return nil, err
	}
	if err := tb.checkNew(ctx, to); err != nil {
		return nil, err
	}
	s := *old
	s.Name = to
	if err := tb.Catalog.RenameTable(ctx, from, gen, &s, cut); err != nil {
		return nil, err
	}
	tb.Log.Info("table renamed", "table", to, "former_name", from, "table_id", s.ID)
	return &s, nil
}
