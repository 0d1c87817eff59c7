package tables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/schemabundles"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// KeptFor is how long a dropped table is kept, unless it is purged.
const KeptFor = 7 * 24 * time.Hour

const (
	// droppedPeriod is how often the master looks for dropped tables whose time is over.
	droppedPeriod = 10 * time.Second
	// droppedTimeout bounds one look.
	droppedTimeout = time.Minute
)

// handleDropped registers the methods about dropped tables.
func (tb *Service) handleDropped(r method.Registrar) {
	change := authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("dropped table"), Leader: authz.LeaderFirst}
	r.Handle(api.MethodUndropTable, rpc.Spawned, change, tb.undropTable)
	r.Handle(api.MethodPurgeTable, rpc.Spawned, change, tb.purgeTable)
	r.HandleNames(api.MethodListDropped, 0, authz.Guard{To: authz.Right, Right: acl.Read, Leader: authz.LeaderThroughout}, tb.listDropped)
}

// created reports whether the first tablets of a table have all been created. The last one is created after the others.
func (tb *Service) created(ctx context.Context, s *table.Schema, cut *namespace.SplitPoints) (bool, error) {
	if cut == nil {
		return true, nil
	}
	_, err := tb.Tablets.Rows().Get(ctx, s.ID, nil)
	if errors.Is(err, metarows.ErrNoRow) {
		return false, nil
	}
	return err == nil, err
}

// forget removes the files of a table that was dropped for good.
func (tb *Service) forget(ctx context.Context, id uint64) {
	tb.Users.ForgetGrants(ctx, id)
	tb.Quotas.ForgetTable(ctx, id)
	if err := tb.Catalog.Remove(ctx, schemabundles.File(id), metaapi.AnyGeneration); err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		tb.Log.Warn("schema bundles of dropped table not removed", "table_id", id, "err", err)
	}
}

// findDropped returns the dropped table of a name, and of an id unless that is 0.
func (tb *Service) findDropped(ctx context.Context, name string, id uint64) (*namespace.DroppedTable, error) {
	kept, err := tb.Catalog.Dropped(ctx)
	if err != nil {
		return nil, err
	}
	var found *namespace.DroppedTable
	for _, at := range slices.Sorted(maps.Keys(kept)) {
		d := kept[at]
		if d.Name != name || id != 0 && d.ID != id {
			continue
		}
		if found != nil {
			return nil, rpc.Errorf(rpc.CodeBadRequest, "several dropped tables had the name %q, such as those with the ids %d and %d: name one by its id", name, found.ID, d.ID)
		}
		found = &d
	}
	switch {
	case found == nil && id != 0:
		return nil, fmt.Errorf("dropped table %q with id %d: %w", name, id, api.ErrNoTable)
	case found == nil:
		return nil, fmt.Errorf("dropped table %q: %w", name, api.ErrNoTable)
	}
	return found, nil
}

func (tb *Service) undropTable(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.DroppedRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, api.MethodUndropTable), &r.Options) {
		return
	}
	var s *table.Schema
	err := tb.Changes.Do(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodUndropTable, Name: r.Table}, func(ctx context.Context) (err error) {
		s, err = tb.undrop(ctx, &r)
		return err
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	tb.Quotas.Await(c.Context(), s.ID)
	AwaitTable(c.Context(), tb.AwaitServed(s, 1))
	c.Reply(schemaAnswer(s))
}

// undrop makes a dropped table an ordinary one again, within a change.
func (tb *Service) undrop(ctx context.Context, r *api.DroppedRequest) (*table.Schema, error) {
	d, err := tb.findDropped(ctx, r.Table, r.ID)
	if err != nil {
		return nil, err
	}
	s, err := tb.Catalog.ReadDropped(ctx, d)
	if err != nil {
		return nil, err
	}
	s.Name = cmp.Or(r.As, d.Name)
	if err := tb.checkNew(ctx, s.Name); err != nil {
		return nil, err
	}
	if err := tb.Catalog.Restore(ctx, d, s); err != nil {
		return nil, err
	}
	tb.Log.Info("dropped table restored", "table", s.Name, "table_id", s.ID)
	return s, nil
}

func (tb *Service) purgeTable(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.DroppedRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, api.MethodPurgeTable), &r.Options) {
		return
	}
	err := tb.Changes.Do(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodPurgeTable, Name: r.Table}, func(ctx context.Context) error {
		d, err := tb.findDropped(ctx, r.Table, r.ID)
		if err != nil {
			return err
		}
		return tb.purge(ctx, d)
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(nil)
}

// purge drops a dropped table for good, within a change. No server acts on it from then on, and each deletes the files of
// its tablets. The master removes their rows. The error is api.ErrNoTable if it is gone, or was restored.
func (tb *Service) purge(ctx context.Context, d *namespace.DroppedTable) error {
	if err := tb.Catalog.Purge(ctx, d); err != nil {
		return err
	}
	tb.forget(ctx, d.ID)
	tb.Log.Info("dropped table purged", "table", d.Name, "table_id", d.ID)
	tb.NudgeMaster(ctx)
	return nil
}

func (tb *Service) listDropped(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	kept, err := tb.Catalog.Dropped(ctx)
	if err != nil {
		return nil, err
	}
	all := &api.DroppedTables{}
	for _, d := range kept {
		t := api.DroppedTable{Name: d.Name, ID: d.ID, DroppedMS: d.At.UnixMilli(), GoneMS: d.At.Add(tb.keptFor()).UnixMilli()}
		err := tb.Tablets.Rows().Tablets(ctx, d.ID, func(r *metadata.Row) error {
			m, err := tablet.DecodeMeta(r.Meta)
			if err == nil {
				t.Tablets, t.Bytes = t.Tablets+1, t.Bytes+m.Bytes()
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		all.Tables = append(all.Tables, t)
	}
	slices.SortFunc(all.Tables, func(a, b api.DroppedTable) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return all.Append, nil
}

func (tb *Service) keptFor() time.Duration { return cmp.Or(tb.DroppedFor, KeptFor) }

// PurgeExpired deletes dropped tables whose time is over, while this node is the master, until the node closes.
func (tb *Service) PurgeExpired() {
	var failed loglimit.OnChange
	for ; tb.Ctx.Err() == nil; timing.Sleep(tb.Ctx, min(droppedPeriod, tb.keptFor())) {
		if tb.MasterEpoch() == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(tb.Ctx, droppedTimeout)
		err := tb.PurgeExpiredNow(ctx, time.Now())
		cancel()
		if tb.Ctx.Err() == nil && tb.MasterEpoch() != 0 {
			failed.WarnError(tb.Log, "dropped tables not purged; will try again", err)
		}
	}
}

// PurgeExpiredNow deletes the dropped tables whose time is over, and the oldest of those that are too many.
func (tb *Service) PurgeExpiredNow(ctx context.Context, now time.Time) error {
	if gone, err := tb.expired(ctx, now); err != nil || len(gone) == 0 {
		return err
	}
	own := &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: tb.ID()}}
	return tb.Changes.Do(ctx, authz.ChangeRequest{Caller: own}, func(ctx context.Context) error {
		gone, err := tb.expired(ctx, now)
		if err != nil {
			return err
		}
		for i := range gone {
			if err := tb.purge(ctx, &gone[i]); err != nil && !errors.Is(err, api.ErrNoTable) { // restored meanwhile, in a cluster without certificates
				return err
			}
		}
		return nil
	})
}

// expired returns the dropped tables to delete.
func (tb *Service) expired(ctx context.Context, now time.Time) ([]namespace.DroppedTable, error) {
	kept, err := tb.Catalog.Dropped(ctx)
	if err != nil {
		return nil, err
	}
	gone := slices.SortedFunc(maps.Values(kept), func(a, b namespace.DroppedTable) int { return a.At.Compare(b.At) })
	n := max(0, len(gone)-api.DroppedTablesMax)
	for n < len(gone) && !now.Before(gone[n].At.Add(tb.keptFor())) {
		n++
	}
	return gone[:n], nil
}
