package tables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/schemabundles"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// Grants on a table and its owner are written before the table, so that no table exists without them. A table whose creation failed halfway leaves
// them behind, and a dropped table may, too, as well as its quota and its schema bundles. They have no effect, because ids are not reused, but they would
// stay forever: a new master removes them.

const (
	// orphansRetry is the pause after a failure.
	orphansRetry = 10 * time.Second
	// orphansTimeout bounds one search, which reads all tables' schemas.
	orphansTimeout = time.Minute
)

// Swept returns the epoch of the last mastership in which orphaned files of tables were removed.
func (tb *Service) Swept() uint64 { return tb.swept.Load() }

// RemoveOrphans removes orphaned files of tables once in each mastership of this node, until the node closes.
func (tb *Service) RemoveOrphans() {
	var failed loglimit.OnChange
	for ; tb.Ctx.Err() == nil; timing.Sleep(tb.Ctx, changes.MasterPoll) {
		epoch := tb.MasterEpoch()
		if epoch == 0 || epoch == tb.swept.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(tb.Ctx, orphansTimeout)
		err := tb.RemoveOrphansNow(ctx)
		cancel()
		if err == nil {
			tb.swept.Store(epoch)
		} else if tb.Ctx.Err() == nil && tb.MasterEpoch() != 0 {
			failed.WarnError(tb.Log, "take away what is left over of tables that are not there; will try again", err)
			timing.Sleep(tb.Ctx, orphansRetry)
		}
	}
}

// RemoveOrphansNow removes files of tables that do not exist.
func (tb *Service) RemoveOrphansNow(ctx context.Context) error {
	left, err := tb.orphans(ctx, nil)
	if err != nil || len(left) == 0 {
		return err
	}
	own := &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: tb.ID()}}
	return tb.Changes.Do(ctx, authz.ChangeRequest{Caller: own}, func(ctx context.Context) error { // no creation is in progress meanwhile
		left, err := tb.orphans(ctx, left)
		if err != nil {
			return err
		}
		for _, id := range slices.Sorted(maps.Keys(left)) {
			for _, file := range left[id] {
				if err := tb.Catalog.Remove(ctx, file, metaapi.AnyGeneration); err != nil && !errors.Is(err, metaapi.ErrNotFound) {
					return err
				}
			}
			tb.Log.Info("orphaned table files removed", "table_id", id, "files", left[id])
		}
		return nil
	})
}

// orphans returns files of tables that do not exist, by table id. If found is not nil, only those that are also in it are returned. Files of a
// table that is being created are included, unless the caller holds up changes.
func (tb *Service) orphans(ctx context.Context, found map[uint64][]string) (map[uint64][]string, error) {
	left := maps.Clone(found)
	if found == nil {
		left = map[uint64][]string{}
		for _, file := range []func(uint64) string{acl.PolicyFile, quota.OwnerFile, quota.TableFile, schemabundles.File} {
			if err := tb.addIDs(ctx, left, file); err != nil {
				return nil, err
			}
		}
	}
	tables, err := tb.Meta.Tables(ctx) // after the files
	for id := range tables {
		delete(left, id)
	}
	return left, err
}

// addIDs adds the files that are so called for a table.
func (tb *Service) addIDs(ctx context.Context, all map[uint64][]string, file func(id uint64) string) error {
	names, err := tb.Catalog.List(ctx, path.Dir(file(metadata.FirstID)))
	if err != nil {
		return err
	}
	for _, name := range names {
		id, err := strconv.ParseUint(name, 10, 64)
		if err != nil || id < metadata.FirstID {
			return fmt.Errorf("%s is not the name of a table's file", name)
		}
		all[id] = append(all[id], file(id))
	}
	return nil
}
