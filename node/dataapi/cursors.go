package dataapi

import (
	"container/list"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/metric"
	"github.com/steledb/stele/table"
)

// CursorMemoryShare is the part of a node's memory for open cursors. One user has
// a quarter of that, and of their number: three users that take all they can leave
// a fourth as much.
const (
	CursorMemoryShare = 256
	cursorUserShare   = api.CursorsMax / api.CursorsOfUserMax
)

// cursorOverhead is the memory of a cursor besides its keys and filter, in bytes.
const cursorOverhead = 512

// cursors are the scans that clients may continue. A cursor is busy while a batch
// is read, so two calls with one cursor cannot mix their rows.
//
// Their number and memory are bounded, of one user and in all. A user at the limit
// is refused. If all users together are at the limit, the user with the largest
// part loses idle cursors to a user with a smaller one. Nodes and the clients of a
// cluster without access control have no name: only the limits for all bound them.
type cursors struct {
	bytesMax int64 // zero: no bound

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		open    map[uint64]*cursor
		owners  map[string]*cursorOwner
		bytes   int64
		stop    chan struct{}
		evicted int64 // cursors that others needed
		refused int64
	}
}

// cursor is a scan that a client may continue. The mu of cursors guards it, but
// for the scan, which belongs to the call that uses it.
type cursor struct {
	id    uint64
	scan  *scan
	owner *cursorOwner
	bytes int64 // without the filter's
	used  time.Time
	// filter is the scan's, once it is charged.
	filter *table.Program
	// idle is the cursor's place in owner.idle, nil while a call uses it.
	idle *list.Element
}

// cursorOwner is what one user has open.
type cursorOwner struct {
	name  string
	count int
	bytes int64
	idle  list.List // of *cursor, the longest unused first
	// filters counts the cursors of each filter. A filter is charged once, however many scans share it.
	filters map[*table.Program]int
}

// share is the part of the limits for all that an owner has.
func (cs *cursors) share(o *cursorOwner) float64 {
	part := float64(o.count) / api.CursorsMax
	if cs.bytesMax > 0 {
		part = max(part, float64(o.bytes)/float64(cs.bytesMax))
	}
	return part
}

// begin opens a cursor for a scan, which the caller uses until put or drop. The
// error is *api.OverloadedError.
func (cs *cursors) begin(s *scan) (*cursor, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	o := cs.mu.owners[s.owner]
	if o == nil {
		o = &cursorOwner{name: s.owner}
	}
	c := &cursor{scan: s, owner: o}
	if err := cs.chargeLocked(c, 1, s.bytes()); err != nil {
		cs.mu.refused++
		return nil, err
	}
	for c.id == 0 || cs.mu.open[c.id] != nil {
		// Random, so that a client cannot meet another's by counting.
		c.id = rand.Uint64N(wire.SafeIntegerMax + 1)
	}
	if cs.mu.open == nil {
		cs.mu.open, cs.mu.owners = map[uint64]*cursor{}, map[string]*cursorOwner{}
	}
	cs.mu.open[c.id], cs.mu.owners[s.owner] = c, o
	return c, nil
}

// weigh charges a cursor in use for the memory that its scan has come to take. If
// its owner has no space for more, the owner's idle cursors go. The error is
// *api.OverloadedError.
func (cs *cursors) weigh(c *cursor) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	f := c.scan.filter
	for {
		more, shared := c.scan.bytes()-c.bytes, int64(0)
		if f != nil && c.filter == nil && c.owner.filters[f] == 0 {
			shared = f.Bytes()
		}
		err := cs.chargeLocked(c, 0, more+shared)
		if err == nil {
			c.bytes -= shared
			c.shareFilter(f)
			return nil
		}
		if !cs.evictLocked(c.owner) {
			cs.mu.refused++
			return err
		}
	}
}

// shareFilter counts the cursor's filter among those of its owner, where it is charged.
func (c *cursor) shareFilter(f *table.Program) {
	if f == nil || c.filter != nil {
		return
	}
	if c.owner.filters == nil {
		c.owner.filters = map[*table.Program]int{}
	}
	c.owner.filters[f]++
	c.filter = f
}

// unshareFilter takes the cursor's filter from its owner, and returns the bytes that nothing else is charged for.
func (c *cursor) unshareFilter() (bytes int64) {
	f := c.filter
	if f == nil {
		return 0
	}
	c.filter = nil
	if c.owner.filters[f]--; c.owner.filters[f] > 0 {
		return 0
	}
	delete(c.owner.filters, f)
	return f.Bytes()
}

// chargeLocked adds to what a cursor and its owner have, evicting idle cursors of
// others if there is no space left in all.
func (cs *cursors) chargeLocked(c *cursor, count int, bytes int64) error {
	o := c.owner
	after := cursorOwner{name: o.name, count: o.count + count, bytes: o.bytes + bytes}
	var err error
	if count > 0 || bytes > 0 {
		err = cs.checkUser(&after)
	}
	for err == nil && (count > 0 && len(cs.mu.open)+count > api.CursorsMax || cs.bytesMax > 0 && bytes > 0 && cs.mu.bytes+bytes > cs.bytesMax) {
		if !cs.evictLocked(cs.largestLocked(&after)) {
			err = &api.OverloadedError{
				Reason: fmt.Sprintf("%d of %d cursors are open on this node and take %d of %d bytes: finish or close scans, or give the node more --memory",
					len(cs.mu.open), api.CursorsMax, cs.mu.bytes, cs.bytesMax), RetryAfter: time.Second}
		}
	}
	if err != nil {
		return err
	}
	o.count += count
	o.bytes += bytes
	c.bytes += bytes
	cs.mu.bytes += bytes
	return nil
}

// checkUser returns an *api.OverloadedError if an owner would have more than one
// user may.
func (cs *cursors) checkUser(o *cursorOwner) error {
	reason := ""
	switch most := cs.bytesMax / cursorUserShare; {
	case o.name == "":
	case o.count > api.CursorsOfUserMax:
		reason = fmt.Sprintf("user %s has %d of %d cursors open on this node: finish or close scans", o.name, o.count-1, api.CursorsOfUserMax)
	case cs.bytesMax > 0 && o.bytes > most:
		reason = fmt.Sprintf("the keys and filters of user %s's open cursors would take %d of %d bytes on this node: finish or close scans, or give the node more --memory",
			o.name, o.bytes, most)
	}
	if reason == "" {
		return nil
	}
	return &api.OverloadedError{Reason: reason, RetryAfter: time.Second}
}

// largestLocked returns the user with the largest part among those with idle cursors, if
// that is larger than what asks will have; else nil.
func (cs *cursors) largestLocked(asks *cursorOwner) (victim *cursorOwner) {
	most := cs.share(asks)
	if asks.name == "" {
		most = 0 // nodes come before users
	}
	for _, o := range cs.mu.owners {
		if part := cs.share(o); o.name != "" && o.name != asks.name && o.idle.Len() > 0 && part > most {
			victim, most = o, part
		}
	}
	return victim
}

// evictLocked drops the cursor of an owner that was not used for longest, and
// reports whether there was one. No owner has none.
func (cs *cursors) evictLocked(o *cursorOwner) bool {
	if o == nil || o.idle.Len() == 0 {
		return false
	}
	cs.dropLocked(o.idle.Front().Value.(*cursor))
	cs.mu.evicted++
	return true
}

// take returns a cursor for use, or nil if its owner has none of that id that is
// idle.
func (cs *cursors) take(id uint64, owner string) *cursor {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.mu.open[id]
	if c == nil || c.owner.name != owner || c.idle == nil {
		return nil
	}
	c.owner.idle.Remove(c.idle)
	c.idle = nil
	return c
}

// put ends the use of a cursor, which the client may continue then.
func (cs *cursors) put(c *cursor) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.used = time.Now()
	c.idle = c.owner.idle.PushBack(c)
}

// drop closes a cursor in use.
func (cs *cursors) drop(c *cursor) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.dropLocked(c)
}

func (cs *cursors) dropLocked(c *cursor) {
	o := c.owner
	if c.idle != nil {
		o.idle.Remove(c.idle)
		c.idle = nil
	}
	delete(cs.mu.open, c.id)
	bytes := c.bytes + c.unshareFilter()
	cs.mu.bytes -= bytes
	o.bytes -= bytes
	if o.count--; o.count == 0 {
		delete(cs.mu.owners, o.name)
	}
}

// sweepPeriod is how often idle cursors are dropped.
const sweepPeriod = api.CursorIdle / 6

// sweep drops cursors that were idle for long until close.
func (cs *cursors) sweep(stop <-chan struct{}) {
	tick := time.NewTicker(sweepPeriod)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			cs.mu.Lock()
			for _, c := range cs.mu.open {
				if c.idle != nil && now.Sub(c.used) > api.CursorIdle {
					cs.dropLocked(c)
				}
			}
			cs.mu.Unlock()
		}
	}
}

// start returns the channel that close closes.
func (cs *cursors) start() <-chan struct{} {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.mu.stop = make(chan struct{})
	return cs.mu.stop
}

func (cs *cursors) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.mu.stop != nil {
		close(cs.mu.stop)
		cs.mu.stop = nil
	}
}

// cursorStats are for metrics.
type cursorStats struct {
	open, users      int
	mostOfUser       int
	bytes, bytesMax  int64
	evicted, refused int64
}

func (cs *cursors) stats() cursorStats {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	st := cursorStats{open: len(cs.mu.open), bytes: cs.mu.bytes, bytesMax: cs.bytesMax, evicted: cs.mu.evicted, refused: cs.mu.refused}
	for name, o := range cs.mu.owners {
		if name != "" {
			st.users++
			st.mostOfUser = max(st.mostOfUser, o.count)
		}
	}
	return st
}

// Collect sends the metrics of scan cursors.
func (d *Service) Collect(m metric.Sender) {
	cs := d.cursors.stats()
	m.Gauge("scan_cursors", "Open scan cursors.", float64(cs.open))
	m.Gauge("scan_cursor_bytes", "Memory of the keys and filters of open scan cursors.", float64(cs.bytes))
	m.Gauge("scan_cursor_limit_bytes", "Limit of the memory of open scan cursors; one user may use a quarter.", float64(cs.bytesMax))
	m.Gauge("scan_cursor_users", "Users with open scan cursors.", float64(cs.users))
	m.Gauge("scan_cursors_user_max", "Open scan cursors of the user with the most.", float64(cs.mostOfUser))
	m.Counter("scan_cursors_evicted_total", "Idle scan cursors closed to free memory for other scans.", float64(cs.evicted))
	m.Counter("scan_cursors_refused_total", "Scans rejected because their user, or all users together, had too many open cursors.", float64(cs.refused))
}
