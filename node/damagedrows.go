package node

import (
	"context"
	"errors"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/master"
)

// damagedRows are the rows of METADATA on which no server acts, since they cannot be read as a whole. The master reads only where tablets
// are, so it learns of the other columns from the servers. Until such a row changes, the master takes it for damaged.
type damagedRows struct {
	mu  sync.Mutex
	all map[string]damagedRow // by key
}

type damagedRow struct {
	generation uint64
	err        error
}

// note records why the row of a tablet cannot be read, at the generation that the master knows.
func (d *damagedRows) note(key string, generation uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[string]damagedRow{}
	}
	d.all[key] = damagedRow{generation, err}
}

// why returns why a row cannot be read, nil if nothing is known against it at that generation.
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

// refused reads the rows of tablets about which a server rejected an order because stored bytes are damaged, and records those that cannot be
// read: it may as well have been a file. It returns the server's error.
func (c *clusterTablets) refused(ctx context.Context, err error, tablets ...*master.Tablet) error {
	if !errors.Is(err, api.CodeCorrupt) {
		return err
	}
	for _, t := range tablets {
		tableID, end, keyErr := metadata.ParseKey([]byte(t.Key))
		if keyErr != nil {
			continue // the root tablet
		}
		var damage *metadata.FormatError
		if _, readErr := c.rows.get(ctx, tableID, end); errors.As(readErr, &damage) {
			c.damaged.note(t.Key, t.Generation, damage)
		}
	}
	return err
}
