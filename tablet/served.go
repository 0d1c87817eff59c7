package tablet

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// Ref names a tablet by the key of its METADATA row. The upper tablet of a split or a merge keeps
// its Ref. Tablet ids are for logs and users only: the lock service assigns them, and may assign
// one again after losing its last writes.
type Ref struct {
	Table uint64 // the table's id
	End   string // the tablet's last possible row; empty means no end
}

// String formats the table and the end for errors and logs.
func (r Ref) String() string {
	if r.End == "" {
		return fmt.Sprintf("tablet of table %d to its last row", r.Table)
	}
	return fmt.Sprintf("tablet of table %d to row %.64q", r.Table, r.End)
}

// Ref returns the name of the tablet that m describes.
func (m *Meta) Ref() Ref { return Ref{m.Table, string(m.End)} }

// Ref returns the tablet's name.
func (l *Loaded) Ref() Ref { return Ref{l.Table, string(l.End)} }

func (t *Tablet) ref() Ref { return Ref{t.table, string(t.end)} }

// TabletMap holds the tablets that a server serves: by table and row for operations, and by name for
// changes of a tablet. Reading it takes no lock.
type TabletMap struct {
	partial bool // other servers may have tablets of any table

	// tables maps table names to their served tablets. The map is immutable and is replaced as a
	// whole.
	tables atomic.Pointer[map[string]*served]

	// mu serializes changes of tables and of the tablets' schemas, and guards splitPending. Never
	// held across I/O.
	mu           sync.Mutex
	splitPending map[Ref]bool // tablets that are being split off
}

func newTabletMap(partial bool) *TabletMap {
	m := &TabletMap{partial: partial, splitPending: map[Ref]bool{}}
	m.tables.Store(&map[string]*served{})
	return m
}

// served holds the tablets of one table that are served here, in the order of their ranges.
type served struct {
	id       uint64
	tablets  []*Tablet
	renewing chan struct{} // holds a value while the schema is being read; shared by all versions of a table's served
}

// withTablets returns a copy of sv with the given tablets.
func (sv *served) withTablets(tablets []*Tablet) *served {
	return &served{id: sv.id, tablets: tablets, renewing: sv.renewing}
}

// change replaces the map of tables with a copy to which change was applied.
func (m *TabletMap) change(change func(tables map[string]*served)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.tables.Load()
	tables := make(map[string]*served, len(old)+1)
	maps.Copy(tables, old)
	change(tables)
	m.tables.Store(&tables)
}

// add makes a tablet reachable under its table's name. If another table is served under that name,
// one of the two was dropped. If it is the other one, it is replaced and returned: its tablets must
// be discarded. Errors: ErrServed, and api.ErrNoTable if the tablet's own table was dropped.
func (m *TabletMap) add(name string, t *Tablet) (dropped *served, err error) {
	m.change(func(tables map[string]*served) {
		n := &served{id: t.table, renewing: make(chan struct{}, 1)}
		old := tables[name]
		switch {
		case old != nil && old.id == t.table:
			n = old.withTablets(slices.Clone(old.tablets))
		case old != nil && len(old.tablets) > 0 && !t.schema.Load().follows(old.tablets[0].schema.Load()):
			err = fmt.Errorf("tablet %d of table %d, whose name is that of table %d now: %w", t.id, t.table, old.id, api.ErrNoTable)
			return
		case old != nil && len(old.tablets) > 0 && old.tablets[0].schema.Load().version != nil:
			err = fmt.Errorf("%w: table %d is still served by the name of table %d", api.ErrUnavailable, old.id, t.table)
			return
		default:
			dropped = old
		}
		at, same := slices.BinarySearchFunc(n.tablets, t, func(a, b *Tablet) int {
			return compareEnds(a.end, b.end)
		})
		if same || at > 0 && string(n.tablets[at-1].end) > string(t.start) ||
			at < len(n.tablets) && (len(t.end) == 0 || string(n.tablets[at].start) < string(t.end)) {
			err = fmt.Errorf("tablet %d: %w", t.id, ErrServed)
			return
		}
		n.unifySchemas(t)
		n.tablets = slices.Insert(n.tablets, at, t)
		tables[name] = n
	})
	if err != nil {
		return nil, err
	}
	return dropped, nil
}

// take removes the tablets of a table, or only those by names with stale schemas, from the map, and returns them; nil if there are none.
func take(tables map[string]*served, id uint64, all bool) (taken *served) {
	for name, sv := range tables {
		if sv.id != id || !all && sv.current() {
			continue
		}
		delete(tables, name)
		if taken != nil {
			sv = taken.with(sv)
		}
		taken = sv
	}
	return taken
}

// with returns the tablets of both, which are of one table.
func (sv *served) with(other *served) *served {
	all := slices.Concat(sv.tablets, other.tablets)
	slices.SortFunc(all, func(a, b *Tablet) int { return compareEnds(a.end, b.end) })
	return sv.withTablets(all)
}

// stale reports whether the schema of a tablet of a table must be read again.
func (m *TabletMap) stale(id uint64) bool {
	for _, sv := range *m.tables.Load() {
		if sv.id == id && !sv.current() {
			return true
		}
	}
	return false
}

// drop removes the tablets of a table, and returns them; nil if there are none.
func (m *TabletMap) drop(id uint64) (dropped *served) {
	m.change(func(tables map[string]*served) { dropped = take(tables, id, true) })
	return dropped
}

// rename moves the tablets of a table with stale schemas to a name, beside those that were loaded under that name. If another table has stale schemas and
// the name, it has lost it: it is moved out of the way, to a name by which no request finds it, until its schema is read. So tables can exchange
// their names. rename returns false, and changes nothing, if the schemas of the other table are current.
func (m *TabletMap) rename(id uint64, to string) (done bool) {
	m.change(func(tables map[string]*served) {
		there := tables[to]
		if there != nil && there.id != id && len(there.tablets) > 0 {
			if done = !there.current(); !done {
				return
			}
			put(tables, fmt.Sprintf("%s%d", table.DroppedPrefix, there.id), there)
			delete(tables, to)
		}
		if sv := take(tables, id, false); sv != nil {
			put(tables, to, sv)
		}
		done = true
	})
	return done
}

// put adds tablets of a table to those with that name, if any, which are of the same table.
func put(tables map[string]*served, name string, sv *served) {
	if there := tables[name]; there != nil && there.id == sv.id {
		sv = there.with(sv)
	}
	tables[name] = sv
}

// exchange replaces tablets with others of the same rows, for operations that begin later. It
// returns false if the old ones are no longer served because their table was dropped.
func (m *TabletMap) exchange(old, fresh []*Tablet) (done bool) {
	m.change(func(tables map[string]*served) {
		for name, sv := range tables {
			at := slices.Index(sv.tablets, old[0])
			if at < 0 {
				continue
			}
			for _, t := range fresh { // under the lock, so that no schema change is missed
				for _, o := range old {
					if sc, now := o.schema.Load(), t.schema.Load(); now == nil || sc != now && sc.follows(now) {
						t.schema.Store(sc)
					}
				}
			}
			tables[name] = sv.withTablets(slices.Replace(slices.Clone(sv.tablets), at, at+len(old), fresh...))
			done = true
		}
	})
	return done
}

// remove makes a tablet unreachable for operations that begin later.
func (m *TabletMap) remove(t *Tablet) {
	m.change(func(tables map[string]*served) {
		for name, sv := range tables {
			if at := slices.Index(sv.tablets, t); at >= 0 {
				tables[name] = sv.withTablets(slices.Delete(slices.Clone(sv.tablets), at, at+1))
			}
		}
	})
}

// table returns the served tablets of a table. The error is api.ErrNoTable, or api.ErrNotServing
// if other servers may have tablets of it.
func (m *TabletMap) table(tableName string) (*served, error) {
	sv := (*m.tables.Load())[tableName]
	switch {
	case table.IsDropped(tableName): // its tablets are kept, and no request may reach them
		return nil, fmt.Errorf("table %q: %w", tableName, api.ErrNoTable)
	case sv != nil:
		return sv, nil
	case m.partial:
		return nil, fmt.Errorf("table %q: %w", tableName, api.ErrNotServing)
	}
	return nil, fmt.Errorf("table %q: %w", tableName, api.ErrNoTable)
}

// tabletsOf returns the served tablets of a table in range order. Errors: as table.
func (m *TabletMap) tabletsOf(tableName string) ([]*Tablet, error) {
	sv, err := m.table(tableName)
	if err != nil {
		return nil, err
	}
	return sv.tablets, nil
}

// all returns all served tablets.
func (m *TabletMap) all() []*Tablet {
	var all []*Tablet
	for _, sv := range *m.tables.Load() {
		all = append(all, sv.tablets...)
	}
	return all
}

// firstUnflushed returns the first sequence number that is in no file of the served tablets, or 0.
//
// A tablet that is unloaded while it looks has none. What that had in memory is in files, or in the
// tablets that took its place in the map before: so it looks again if the map has changed.
func firstUnflushed(load func() *map[string]*served) uint64 {
	for {
		tables, first := load(), uint64(0)
		for _, sv := range *tables {
			for _, t := range sv.tablets {
				if seq := t.views.unflushed(); seq != 0 && (first == 0 || seq < first) {
					first = seq
				}
			}
		}
		if load() == tables {
			return first
		}
	}
}

// at returns the tablet that holds row, or nil.
func (sv *served) at(row []byte) *Tablet {
	lo, hi := 0, len(sv.tablets)
	for lo < hi {
		mid := (lo + hi) / 2
		if end := sv.tablets[mid].end; len(end) > 0 && string(end) < string(row) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(sv.tablets) || !sv.tablets[lo].holds(row) {
		return nil
	}
	return sv.tablets[lo]
}

// find returns the tablet of that name, or nil if it is not served.
func (m *TabletMap) find(r Ref) *Tablet {
	for _, sv := range *m.tables.Load() {
		if sv.id != r.Table {
			continue
		}
		at, ok := slices.BinarySearchFunc(sv.tablets, []byte(r.End), func(t *Tablet, end []byte) int { return compareEnds(t.end, end) })
		if ok {
			return sv.tablets[at]
		}
	}
	return nil
}

// tablet returns the tablet of that name. The error is api.ErrNotServing or ErrSplitPending.
func (m *TabletMap) tablet(r Ref) (*Tablet, error) {
	if t := m.find(r); t != nil {
		return t, nil
	}
	if m.SplitPending(r) {
		return nil, fmt.Errorf("%v: %w", r, ErrSplitPending)
	}
	return nil, fmt.Errorf("%v: %w", r, api.ErrNotServing)
}

// Has reports whether the server has the tablet of that name.
func (m *TabletMap) Has(r Ref) bool { return m.find(r) != nil }

// SplitPending reports whether a tablet is being split off: Metadata may have it, but it is not served
// by its name yet.
func (m *TabletMap) SplitPending(r Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.splitPending[r]
}

// setSplitPending records whether a tablet is being split off.
func (m *TabletMap) setSplitPending(r Ref, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is {
		m.splitPending[r] = true
	} else {
		delete(m.splitPending, r)
	}
}

// Loaded summarizes a tablet that a server has.
type Loaded struct {
	ID, Table  uint64
	Start, End []byte  // it has the rows after Start, up to End; empty means no bound
	Bytes      int64   // of its files
	Load       float64 // operations a second
}

// Loaded returns the tablets, those of one table in the order of their rows.
func (m *TabletMap) Loaded() []Loaded {
	var all []Loaded
	for _, sv := range *m.tables.Load() {
		for _, t := range sv.tablets {
			all = append(all, Loaded{ID: t.id, Table: sv.id, Start: t.start, End: t.end, Bytes: t.views.bytes() + t.views.changeBytes(), Load: float64(t.load.rate.Load())})
		}
	}
	return all
}

// Tables returns the ids of the tables of which the server has tablets, by name.
func (m *TabletMap) Tables() map[string]uint64 {
	tables := map[string]uint64{}
	for name, sv := range *m.tables.Load() {
		tables[name] = sv.id
	}
	return tables
}

// Schema returns the schema with which a table is served here, or nil if it is not. An Access is
// called with it unless it is changed meanwhile.
func (m *TabletMap) Schema(tableName string) *table.Schema {
	sv := (*m.tables.Load())[tableName]
	if sv == nil || len(sv.tablets) == 0 {
		return nil
	}
	return sv.tablets[0].schema.Load().table
}

// Overlaps reports whether the server has rows of a table above start and up to end; an empty end
// means no bound.
func (m *TabletMap) Overlaps(tableID uint64, start, end []byte) bool {
	for _, sv := range *m.tables.Load() {
		if sv.id == tableID && slices.ContainsFunc(sv.tablets, func(t *Tablet) bool {
			return (len(t.end) == 0 || string(t.end) > string(start)) && (len(end) == 0 || string(t.start) < string(end))
		}) {
			return true
		}
	}
	return false
}

// compareEnds orders the ends of ranges. An empty end means no bound and is the largest.
func compareEnds(a, b []byte) int {
	switch {
	case len(a) == 0 && len(b) == 0:
		return 0
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return slices.Compare(a, b)
}
