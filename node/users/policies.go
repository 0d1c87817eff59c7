package users

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
)

// policies is the grants that the lock service stores, a file for the cluster and for each table.
type policies struct {
	catalog *namespace.Catalog
	meta    *namespace.Access
	changes *changes.Changes
}

// get returns the grants on a table, or on the cluster, and their generation.
func (ps *policies) get(ctx context.Context, tableID uint64) (*acl.Policy, uint64, error) {
	f, err := ps.meta.Get(ctx, acl.PolicyFile(tableID))
	if errors.Is(err, metaapi.ErrNotFound) {
		return &acl.Policy{Table: tableID}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	p, err := acl.DecodePolicy(f.Data)
	return p, f.Generation, err
}

// tables returns the objects with grants: the cluster, and tables by id, including tables that do not exist.
func (ps *policies) tables(ctx context.Context) ([]uint64, error) {
	names, err := ps.catalog.List(ctx, path.Dir(acl.TableFile(0)))
	if err != nil {
		return nil, err
	}
	ids := []uint64{acl.Cluster}
	for _, name := range names {
		id, err := strconv.ParseUint(name, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("grants on a table without an id: %w", err)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

// edit changes the grants on a table, or on the cluster.
func (ps *policies) edit(ctx context.Context, tableID uint64, edit func(*acl.Policy) (*acl.Policy, error)) error {
	for {
		old, gen, err := ps.get(ctx, tableID)
		if err != nil {
			return err
		}
		next, err := edit(old)
		if err != nil {
			return err
		}
		if _, err = ps.changes.SetAsMaster(ctx, acl.PolicyFile(tableID), next.Encode(), gen); !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
	}
}
