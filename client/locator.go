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

// locator says which node a row is at: from what it knows, without waiting, or else by
// the three levels of METADATA (lookup.go).
type locator struct {
	client *Client
	seeds  seeds
	mode   atomic.Uint32
	// asked is when mode was last found out, in nanoseconds.
	asked atomic.Int64
	// away is what the last node that was asked for the root said to be missing; nil: one has told it since.
	away atomic.Pointer[absence]
	root atomic.Pointer[location] // where the root tablet is; nil: not known
	// tables is by name. Replaced under mu, never changed.
	tables atomic.Pointer[map[string]*tablets]

	// mu guards the field in it, and replacing what is known. Never held across I/O.
	mu struct {
		sync.Mutex
		count int // locations of all tables
	}
	stats counters
}

// absence is why a node cannot tell where the root tablet is, and when it said so.
type absence struct {
	err error
	at  time.Time
}

// awayTime is how long that is worth more than that the time is up.
const awayTime = 3 * lookupTimeout

// whyAway returns what a node has said lately to be missing, nil if none has.
func (l *locator) whyAway() error {
	if a := l.away.Load(); a != nil && time.Since(a.at) < awayTime {
		return a.err
	}
	return nil
}

// The modes of a locator.
const (
	modeUnknown uint32 = iota
	modeAlone          // the cluster has no METADATA: the node that is asked serves what there is
	modeMetadata
)

// alonePeriod is the pause, at least, between two questions of a client whether a
// cluster without METADATA has one by now.
const alonePeriod = time.Second

// place is where an attempt of a call goes.
type place struct {
	node *node
	loc  *location // why there; nil: any node will do
}

// tableID returns the id of the table that has the row; 0 if it is not known.
func (p place) tableID() uint64 {
	if p.loc == nil {
		return 0
	}
	return p.loc.table
}

func newLocator(c *Client, addrs []string) *locator {
	l := &locator{client: c}
	l.seeds.addrs.Store(&addrs)
	l.forgetAll()
	return l
}

// forgetAll forgets what is known of tables.
func (l *locator) forgetAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tables.Store(&map[string]*tablets{})
	l.root.Store(nil)
	l.mu.count = 0
}

// any is a node for calls that any node answers.
func (l *locator) any() place { return place{node: l.client.node(l.seeds.any())} }

// locate returns where row is. Errors: *lookupError, ErrClosed, ctx's.
func (l *locator) locate(ctx context.Context, table string, row []byte) (place, error) {
	if p, ok := l.cached(table, row); ok {
		return p, nil
	}
	return l.find(ctx, table, row)
}

// cached is locate for what is known already.
func (l *locator) cached(table string, row []byte) (place, bool) {
	if mode := l.mode.Load(); mode == modeAlone || table == "" {
		return l.any(), true
	} else if mode == modeUnknown {
		return place{}, false
	}
	loc := l.lookUp(table, row)
	if loc == nil || loc.node == nil {
		return place{}, false
	}
	if !loc.used.Load() {
		loc.used.Store(true)
	}
	l.stats.hits.Add(1)
	return place{loc.node, loc}, true
}

// lookUp returns what is known of row's tablet, nil if nothing is.
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

// inRoot says whether a row of METADATA is in the root tablet.
func inRoot(row []byte) bool { return string(row) <= rootEnd }

// tablets returns what is known of a table, making room for it.
func (l *locator) tablets(name string) *tablets {
	if t := (*l.tables.Load())[name]; t != nil {
		return t
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := (*l.tables.Load())[name]; t != nil {
		return t
	}
	t := &tablets{name: name}
	t.known.Store(&known{})
	m := maps.Clone(*l.tables.Load())
	m[name] = t
	l.tables.Store(&m)
	return t
}

// setID notes a table's id. What is known by another id is forgotten.
func (l *locator) setID(t *tablets, id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := t.known.Load(); k.id != id {
		l.replaceLocked(t, &known{id: id})
	}
}

func (l *locator) replaceLocked(t *tablets, k *known) {
	if (*l.tables.Load())[t.name] == t { // or it has been forgotten
		l.mu.count += len(k.all) - len(t.known.Load().all)
	}
	t.known.Store(k)
}

// forget forgets a table that is not there.
func (l *locator) forget(t *tablets) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := *l.tables.Load(); m[t.name] == t {
		m = maps.Clone(m)
		delete(m, t.name)
		l.mu.count -= len(t.known.Load().all)
		l.tables.Store(&m)
	}
}

// insert adds a run of tablets that METADATA tells of a table with that id.
func (l *locator) insert(t *tablets, id uint64, run []*location) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.count+len(run) > l.client.cfg.LocationsMax {
		l.evictLocked()
	}
	if k := t.known.Load(); k.id == id {
		l.replaceLocked(t, k.with(run))
	}
}

// evictLocked drops the locations that no call has used since it last ran, and if that
// leaves more than three quarters of the room full, every second of the rest. Those of
// METADATA stay: all lookups need them, and they are few.
func (l *locator) evictLocked() {
	for _, all := range []bool{false, true} {
		if all && l.mu.count <= l.client.cfg.LocationsMax/4*3 {
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

// reason is why a place was wrong.
type reason int

const (
	unreached  reason = iota // no connection could be made
	broken                   // the connection broke
	notServing               // the node does not serve the tablet
	noTable                  // the table was dropped; another may have its name
	stopped                  // the node serves nothing now
)

// wrong reports that a call went to p in vain, so that the next is sent to where the
// tablet is by then. A hint, if there is one, is where the node believes it to be.
func (l *locator) wrong(p place, why reason, hint *api.NotServingError) {
	if p.loc == nil {
		l.wrongSeed(p, why)
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
		return // somebody was here before
	}
	l.stats.stale.Add(1)
	if why == noTable { // its id is to be asked for
		l.replaceLocked(t, &known{})
		return
	}
	l.replaceLocked(t, k.without(p.loc, l.instead(p.loc, why, hint)))
}

// instead returns what is to be known in the place of a location that proved wrong; nil
// for nothing.
func (l *locator) instead(loc *location, why reason, hint *api.NotServingError) *location {
	next := &location{of: loc.of, table: loc.table, start: loc.start, end: loc.end}
	// A server that was itself hinted at is not listened to, so that two cannot send
	// a client to and fro.
	if hint != nil && hint.Addr != "" && hint.Addr != loc.addr && !loc.hinted {
		l.stats.hints.Add(1)
		next.addr, next.server, next.node, next.hinted = hint.Addr, hint.Node, l.client.node(hint.Addr), true
		return next
	}
	// METADATA has just said so: the tablet is being loaded or unloaded. All the calls
	// that wait for it shall not ask again and again.
	if now := time.Now(); why == notServing && now.Sub(loc.read) < unassignedTime {
		next.until = now.Add(unassignedTime)
		return next
	}
	return nil
}

// alternatives is how many attempts a call may make elsewhere without a pause: as many
// as there are nodes that may do as well. A row that is located is at one server only: what
// may be wrong is what was known of it, and then the hint.
func (l *locator) alternatives() int {
	if l.mode.Load() == modeMetadata {
		return 2
	}
	return l.seeds.count()
}

// wrongSeed is wrong for a node that was as good as any other.
func (l *locator) wrongSeed(p place, why reason) {
	if why != unreached && why != notServing {
		return
	}
	l.seeds.wrong(p.node.addr)
	if why == notServing {
		l.recheck()
	}
}

// recheck has the next call find out whether the cluster has METADATA by now, unless that
// was done lately. It says whether it does.
func (l *locator) recheck() bool {
	return time.Since(time.Unix(0, l.asked.Load())) > alonePeriod && l.mode.CompareAndSwap(modeAlone, modeUnknown)
}
