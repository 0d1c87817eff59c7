package assign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/tablet"
	"golang.org/x/sync/errgroup"
)

const (
	// firstTabletWorkers is the number of rows of METADATA that are created concurrently.
	firstTabletWorkers = 32
	// firstTabletsTimeout bounds the time that the master spends on this in one round; it continues in the next.
	firstTabletsTimeout = 2 * time.Second
)

// makeTablets creates the rows of a new table's tablets, as many as fit into one round. Rows that exist, by key, are skipped.
func (c *Tablets) makeTablets(ctx context.Context, name string, tableID uint64, there map[string]bool) error {
	s, cut, _, err := namespace.ReadTable(ctx, c.Catalog.Meta, name)
	if errors.Is(err, api.ErrNoTable) || err == nil && s.ID != tableID {
		return nil // dropped meanwhile
	}
	if err != nil {
		return err
	}
	if cut == nil {
		return c.makeTablet(ctx, tableID, nil, nil)
	}
	short, cancel := context.WithTimeout(ctx, firstTabletsTimeout)
	defer cancel()
	if cut.From != nil {
		err = c.restoreMissing(short, cut, tableID, there)
		if short.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	err = c.makeMissing(short, cut, tableID, there)
	if short.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	return c.CreateFirstTablet(ctx, cut, tableID, len(cut.Ends)) // last: a table whose last tablet exists is complete
}

// makeMissing creates the rows of all tablets but the last one, until ctx ends.
func (c *Tablets) makeMissing(ctx context.Context, cut *namespace.SplitPoints, tableID uint64, there map[string]bool) error {
	var group errgroup.Group
	group.SetLimit(firstTabletWorkers)
	for i, end := range cut.Ends {
		if !there[master.KeyOf(tableID, end)] && ctx.Err() == nil {
			group.Go(func() error { return c.CreateFirstTablet(ctx, cut, tableID, i) })
		}
	}
	return group.Wait()
}

// CreateFirstTablet creates the row of the i-th tablet.
func (c *Tablets) CreateFirstTablet(ctx context.Context, cut *namespace.SplitPoints, tableID uint64, i int) error {
	m := tablet.Meta{ID: cut.First + uint64(i), Table: tableID, LastMajor: time.Now()}
	if i > 0 {
		m.Start = cut.Ends[i-1]
	}
	if i < len(cut.Ends) {
		m.End = cut.Ends[i]
	}
	return c.writeMeta(ctx, &m)
}

// restoreMissing creates the rows of the tablets of a table that is restored from a backup, with the backup's files, until ctx ends. The last
// one is created when all others exist.
func (c *Tablets) restoreMissing(ctx context.Context, cut *namespace.SplitPoints, tableID uint64, there map[string]bool) error {
	manifest, done, err := backup.Open(ctx, c.Store(), cut.From.Manifest)
	if err != nil {
		return err
	}
	defer done()
	if cut.From.Table >= len(manifest.Tables) || manifest.Tables[cut.From.Table].Tablets != int64(cut.From.Tablets) {
		return fmt.Errorf("the manifest %s has no table %d with %d tablets", cut.From.Manifest.ID, cut.From.Table, cut.From.Tablets)
	}
	var group errgroup.Group
	group.SetLimit(firstTabletWorkers)
	var last *tablet.Meta
	err = manifest.Tablets(cut.From.Table, func(i int64, m *tablet.Meta) error {
		m.ID, m.Table = cut.First+uint64(i), tableID
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case len(m.End) == 0:
			last = m
		case !there[master.KeyOf(tableID, m.End)]:
			group.Go(func() error { return c.writeMeta(ctx, m) })
		}
		return nil
	})
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	return c.writeMeta(ctx, last)
}

// removeSplitPoints removes the split points of a table whose tablets have all been created.
func (c *Tablets) removeSplitPoints(ctx context.Context, name string, tableID uint64) error {
	if c.allCreated[tableID] {
		return nil
	}
	s, cut, gen, err := namespace.ReadTable(ctx, c.Catalog.Meta, name)
	if errors.Is(err, api.ErrNoTable) {
		return nil
	}
	if err == nil && cut != nil && s.ID == tableID {
		err = c.Catalog.SaveTable(ctx, s, nil, gen)
	}
	if errors.Is(err, api.ErrConflict) || errors.Is(err, metaapi.ErrGeneration) {
		return nil // retried in the next round
	}
	if err == nil {
		c.allCreated[tableID] = true
	}
	return err
}
