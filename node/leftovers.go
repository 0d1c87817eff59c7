package node

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
	"github.com/steledb/stele/node/quota"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/pki"
)

// Grants on a table and its owner are written before the table, so that no table exists without them. A table whose creation failed halfway leaves
// them behind, and a dropped table may, too. They have no effect, because ids are not reused, but they would stay forever: a new master removes
// them.

const (
	// leftoversRetry is the pause after a failure.
	leftoversRetry = 10 * time.Second
	// leftoversTimeout bounds one search, which reads all tables' schemas.
	leftoversTimeout = time.Minute
)

// sweepLeftovers removes orphaned files of tables once in each mastership of this node, until the node closes.
func (n *Node) sweepLeftovers() {
	if n.security == nil { // nothing is written before a table
		return
	}
	var failed once
	for ; n.ctx.Err() == nil; pause(n.ctx, masterPoll) {
		epoch := n.master.Epoch()
		if epoch == 0 || epoch == n.swept.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, leftoversTimeout)
		err := n.sweepTables(ctx)
		cancel()
		if err == nil {
			n.swept.Store(epoch)
		} else if n.ctx.Err() == nil && n.isMaster() {
			failed.warn(n.log, "take away what is left over of tables that are not there; will try again", err)
			pause(n.ctx, leftoversRetry)
		}
	}
}

// sweepTables removes files of tables that do not exist.
func (n *Node) sweepTables(ctx context.Context) error {
	left, err := n.leftovers(ctx, nil)
	if err != nil || len(left) == 0 {
		return err
	}
	own := &subject{peer: pki.Peer{Kind: pki.Node, Name: n.id()}}
	return n.changes.do(ctx, asked{who: own}, func(ctx context.Context) error { // no creation is in progress meanwhile
		left, err := n.leftovers(ctx, left)
		if err != nil {
			return err
		}
		for _, id := range slices.Sorted(maps.Keys(left)) {
			for _, file := range left[id] {
				if err := n.catalog.remove(ctx, file, metaapi.AnyGeneration); err != nil && !errors.Is(err, metaapi.ErrNotFound) {
					return err
				}
			}
			n.log.Info("orphaned table files removed", "table_id", id, "files", left[id])
		}
		return nil
	})
}

// leftovers returns files of tables that do not exist, by table id. If found is not nil, only those that are also in it are returned. Files of a
// table that is being created are included, unless the caller holds up changes.
func (n *Node) leftovers(ctx context.Context, found map[uint64][]string) (map[uint64][]string, error) {
	left := maps.Clone(found)
	if found == nil {
		left = map[uint64][]string{}
		for _, file := range []func(uint64) string{policyPath, quota.OwnerFile, quota.TableFile} {
			if err := n.addIDs(ctx, left, file); err != nil {
				return nil, err
			}
		}
	}
	tables, err := n.meta.tables(ctx) // after the files
	for id := range tables {
		delete(left, id)
	}
	return left, err
}

// addIDs adds the files that are so called for a table.
func (n *Node) addIDs(ctx context.Context, all map[uint64][]string, file func(id uint64) string) error {
	names, err := n.catalog.list(ctx, path.Dir(file(metadata.FirstID)))
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
