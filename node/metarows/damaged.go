package metarows

import (
	"sync"
)

// Damaged has the rows of METADATA that no server acts on because they cannot be read completely. The master reads only locations, so
// it learns of damage in other columns from the servers. A row counts as damaged until it changes.
type Damaged struct {
	mu  sync.Mutex
	all map[string]damagedRow // by key
}

type damagedRow struct {
	generation uint64
	err        error
}

// Note records why a tablet's row is unreadable, at the generation that the master knows.
func (d *Damaged) Note(key string, generation uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[string]damagedRow{}
	}
	d.all[key] = damagedRow{generation, err}
}

// Why returns why a row is unreadable at that generation, or nil.
func (d *Damaged) Why(key string, generation uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, is := d.all[key]
	if is && x.generation != generation {
		delete(d.all, key)
		return nil
	}
	return x.err
}
