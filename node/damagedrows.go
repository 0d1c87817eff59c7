package node

import (
	"context"
	"errors"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/master"
)

// damagedRows has the rows of METADATA that no server acts on because they cannot be read completely. The master reads only locations, so
// it learns of damage in other columns from the servers. A row counts as damaged until it changes.
type damagedRows struct {
	mu  sync.Mutex
	all map[string]damagedRow // by key
}

type damagedRow struct {
	generation uint64
	err        error
}

// note records why a tablet's row is unreadable, at the generation that the master knows.
func (d *damagedRows) note(key string, generation uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[string]damagedRow{}
	}
	d.all[key] = damagedRow{generation, err}
}

// why returns why a row is unreadable at that generation, or nil.
func (d *damagedRows) why(key string, generation uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, is := d.all[key]
	if is && x.generation != generation {
		delete(d.all, key)
		return nil
	}
	return x.err
}

// refused rereads the rows of tablets for which a server rejected an order because of corrupt data, and records the unreadable ones: the
// corrupt data may also have been a file. It returns the server's error.
func (c *clusterTablets) refused(ctx context.Context, err error, tablets ...*master.Tablet) error {
	if !errors.Is(err, api.CodeCorrupt) {
		return err
	}
	for _, t := range tablets {
		tableID, end, keyErr := metadata.ParseKey([]byte(t.Key))
		if keyErr != nil {
			continue // the root tablet's row is not in METADATA
		}
		var damage *metadata.FormatError
		if _, readErr := c.rows.get(ctx, tableID, end); errors.As(readErr, &damage) {
			c.damaged.note(t.Key, t.Generation, damage)
		}
	}
	return err
}
