package client

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/planted"
)

// locator maps rows to nodes: from its cache without waiting, or else by the three levels of
// METADATA (lookup.go).
type locator struct {
	cfg   *Config
	life  *lifetime
	pool  *pool
	seeds seeds
	mode  atomic.Uint32
	// modeChecked is when mode was last determined, in nanoseconds since 1970.
	modeChecked atomic.Int64
	// rootError is the latest ErrUnavailable of a root call; nil after a success.
	rootError atomic.Pointer[rootFailure]
	root      atomic.Pointer[location] // location of the root tablet; nil: unknown
	// tables is by name. The map is copied on write.
	tables  atomic.Pointer[map[string]*tableCache]
	flights atomic.Uint64 // number of the last flight

	// mu guards the field in it, and writes of the cache. Never held across I/O.
	mu struct {
		sync.Mutex
		count int // locations of all tables
	}
	stats counters
}

// rootFailure records why and when a node could not return the location of the root tablet.
type rootFailure struct {
	err error
	at  time.Time
}

// rootErrorTime is how long that error is preferred to an expired deadline.
const rootErrorTime = 3 * lookupTimeout

// recentRootError returns the error of a recent rootFailure, or nil.
func (l *locator) recentRootError() error {
	if a := l.rootError.Load(); a != nil && time.Since(a.at) < rootErrorTime {
		return a.err
	}
	return nil
}

// The modes of a locator.
const (
	modeUnknown    uint32 = iota
	modeNoMetadata        // the cluster has no METADATA; each node serves all tables
	modeMetadata
)

// recheckPeriod is the minimum time between two checks whether a cluster without METADATA has got
// one.
const recheckPeriod = time.Second

// destination is the destination of an attempt.
type destination struct {
	node *node
	loc  *location // why this node; nil: any node will do
}

// tableID returns the table id of the location; 0 if it is not known.
func (p destination) tableID() uint64 {
	if p.loc == nil {
		return 0
	}
	return p.loc.table
}

func newLocator(cfg *Config, life *lifetime, p *pool, addrs []string) *locator {
	l := &locator{cfg: cfg, life: life, pool: p}
	l.seeds.addrs.Store(&addrs)
	l.forgetAll()
	return l
}

// forgetAll discards the cache.
func (l *locator) forgetAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tables.Store(&map[string]*tableCache{})
	l.root.Store(nil)
	l.mu.count = 0
}

// any returns a node for calls that any node can answer.
func (l *locator) any() destination { return destination{node: l.pool.node(l.seeds.any())} }

// locate returns the location of row. Errors: *lookupError, ErrClosed, ctx's.
func (l *locator) locate(ctx context.Context, table string, row []byte) (destination, error) {
	if p, ok := l.cached(table, row); ok {
		return p, nil
	}
	return l.find(ctx, table, row)
}

// cached is locate without a lookup.
func (l *locator) cached(table string, row []byte) (destination, bool) {
	if mode := l.mode.Load(); mode == modeNoMetadata || table == "" {
		return l.any(), true
	} else if mode == modeUnknown {
		return destination{}, false
	}
	loc := l.lookUp(table, row)
	if loc == nil || loc.node == nil {
		return destination{}, false
	}
	if !loc.used.Load() {
		loc.used.Store(true)
	}
	l.stats.hits.Add(1)
	return destination{loc.node, loc}, true
}

// lookUp returns the cached location of row's tablet, or nil.
func (l *locator) lookUp(table string, row []byte) *location {
	if table == metadata.Name && inRoot(row) {
		return l.root.Load()
	}
	if t := (*l.tables.Load())[table]; t != nil {
		return t.known.Load().at(row)
	}
	return nil
}

var rootEnd = string(metadata.RootEnd())

// inRoot reports whether a row of METADATA is in the root tablet.
func inRoot(row []byte) bool { return string(row) <= rootEnd }

// table returns the cache of a table, and creates it if necessary.
func (l *locator) table(name string) *tableCache {
	if t := (*l.tables.Load())[name]; t != nil {
		return t
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := (*l.tables.Load())[name]; t != nil {
		return t
	}
	t := &tableCache{name: name}
	t.known.Store(&known{})
	m := maps.Clone(*l.tables.Load())
	m[name] = t
	l.tables.Store(&m)
	return t
}

// setID sets a table's id. It discards locations of another id.
func (l *locator) setID(t *tableCache, id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := t.known.Load(); k.id != id {
		l.replaceLocked(t, &known{id: id})
	}
}

func (l *locator) replaceLocked(t *tableCache, k *known) {
	if (*l.tables.Load())[t.name] == t { // otherwise it was discarded
		l.mu.count += len(k.all) - len(t.known.Load().all)
	}
	t.known.Store(k)
}

// forget discards a table that does not exist.
func (l *locator) forget(t *tableCache) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := *l.tables.Load(); m[t.name] == t {
		m = maps.Clone(m)
		delete(m, t.name)
		l.mu.count -= len(t.known.Load().all)
		l.tables.Store(&m)
	}
}

// insert caches a run of tablets from METADATA for the table with that id.
func (l *locator) insert(t *tableCache, id uint64, run []*location) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.count+len(run) > l.cfg.LocationsMax {
		l.evictLocked()
	}
	if k := t.known.Load(); k.id == id {
		l.replaceLocked(t, k.with(run))
	}
}

// evictLocked drops the locations that no call has used since its last run. If more than three
// quarters of LocationsMax remain, it also drops every second one. Locations of METADATA stay: all
// lookups need them, and they are few.
func (l *locator) evictLocked() {
	for _, all := range []bool{false, true} {
		if all && l.mu.count <= l.cfg.LocationsMax/4*3 {
			return
		}
		for _, t := range *l.tables.Load() {
			if t.name == metadata.Name {
				continue
			}
			old := t.known.Load()
			k := &known{id: old.id}
			for i, loc := range old.all {
				if all && i%2 == 0 || !all && loc.used.Swap(false) {
					k.all = append(k.all, loc)
				}
			}
			l.stats.evicted.Add(int64(len(old.all) - len(k.all)))
			l.replaceLocked(t, k)
		}
	}
}

// reason is why a destination was wrong.
type reason int

const (
	unreached  reason = iota // no connection could be made
	broken                   // the connection broke
	notServing               // the node does not serve the tablet
	noTable                  // the table was dropped; another may have its name
	stopped                  // the node serves nothing now
)

// invalidate records that a call to p failed, so that the next call looks up the tablet's location.
// hint, if not nil, is the location that the node returned.
func (l *locator) invalidate(p destination, why reason, hint *api.NotServingError) {
	if p.loc == nil {
		l.invalidateSeed(p, why)
		return
	}
	if planted.On(planted.CacheForEver) {
		return
	}
	if p.loc.of == nil {
		if l.root.CompareAndSwap(p.loc, nil) {
			l.stats.stale.Add(1)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := p.loc.of
	k := t.known.Load()
	if k.index(p.loc) < 0 {
		return // already replaced
	}
	l.stats.stale.Add(1)
	if why == noTable { // its id must be looked up
		l.replaceLocked(t, &known{})
		return
	}
	l.replaceLocked(t, k.without(p.loc, l.replacement(p.loc, why, hint)))
}

// replacement returns the replacement of a stale location, or nil for none.
func (l *locator) replacement(loc *location, why reason, hint *api.NotServingError) *location {
	next := &location{of: loc.of, table: loc.table, start: loc.start, end: loc.end}
	// A hint from a server that was itself hinted at is ignored, so that two servers cannot send a
	// client back and forth.
	if hint != nil && hint.Addr != "" && hint.Addr != loc.addr && !loc.hinted {
		l.stats.hints.Add(1)
		next.addr, next.server, next.node, next.hinted = hint.Addr, hint.Node, l.pool.node(hint.Addr), true
		return next
	}
	// METADATA has just returned this location: the tablet is being loaded or unloaded. Waiting
	// calls should not read METADATA again and again.
	if now := time.Now(); why == notServing && now.Sub(loc.read) < unassignedTime {
		next.until = now.Add(unassignedTime)
		return next
	}
	return nil
}

// alternatives returns the number of attempts that a call may make elsewhere without a pause: the
// number of nodes that may answer it. A located row is on one server only; there the stale location
// and the hint count.
func (l *locator) alternatives() int {
	if l.mode.Load() == modeMetadata {
		return 2
	}
	return l.seeds.count()
}

// invalidateSeed is invalidate for a call that any node could answer.
func (l *locator) invalidateSeed(p destination, why reason) {
	if why != unreached && why != notServing {
		return
	}
	l.seeds.skip(p.node.addr)
	if why == notServing {
		l.recheck()
	}
}

// recheck makes the next call check whether the cluster has METADATA by now, unless that was
// checked recently. It reports whether the next call will.
func (l *locator) recheck() bool {
	return time.Since(time.Unix(0, l.modeChecked.Load())) > recheckPeriod && l.mode.CompareAndSwap(modeNoMetadata, modeUnknown)
}

// Stats holds counters of tablet location since Open. Only Tablets is a gauge.
type Stats struct {
	Hits       int64 // rows whose tablet was cached
	Lookups    int64 // lookups
	Shared     int64 // calls that waited for the lookup of another call
	RoundTrips int64 // requests made by lookups
	Stale      int64 // locations that were stale or whose node could not be reached
	Hints      int64 // rejected calls for which the node returned the tablet's location
	Evicted    int64 // locations dropped because LocationsMax was reached
	Tablets    int64 // locations cached now
}

type counters struct{ hits, lookups, shared, roundTrips, stale, hints, evicted atomic.Int64 }

// Stats returns the counters of tablet location.
func (c *Client) Stats() Stats {
	s := &c.locator.stats
	c.locator.mu.Lock()
	tablets := int64(c.locator.mu.count)
	c.locator.mu.Unlock()
	return Stats{
		Hits: s.hits.Load(), Lookups: s.lookups.Load(), Shared: s.shared.Load(), RoundTrips: s.roundTrips.Load(),
		Stale: s.stale.Load(), Hints: s.hints.Load(), Evicted: s.evicted.Load(), Tablets: tablets,
	}
}
