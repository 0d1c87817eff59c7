package bulk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/tablet"
)

// key names a part. Users do not find each other's parts.
type key struct {
	id    tablet.PartID
	table string
	owner string // the user; empty for nodes and on an open cluster
}

// part is an open part.
type part struct {
	key key
	// busy is a semaphore: calls for one part run one after the other.
	busy   chan struct{}
	opened time.Time

	// The following fields are guarded by the mu of parts.
	used  time.Time // of the last progress
	added int64     // bytes of rows since

	// The following fields belong to the holder of busy.
	part      *tablet.BulkPart
	requests  int64 // that were executed
	committed bool  // its commit has begun
}

// expired reports whether a part has made too little progress, is open for too long, or cannot be committed any more. busy and the mu of parts are held.
func (p *part) expired(now time.Time) bool {
	return now.Sub(p.used) > api.BulkIdle || now.Sub(p.opened) > api.BulkOpenMax || p.part != nil && p.part.Gone()
}

// parts are the open parts of a node.
type parts struct {
	most int // the largest number of them

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		open    map[key]*part
		stop    chan struct{}
		closed  bool
		refused int64
	}
}

// open begins a part and reserves it until release. If a concurrent call begins the same part, the result is that one. Errors:
// *api.OverloadedError, those of begin, ctx's.
func (ps *parts) open(ctx context.Context, k key, begin func() (*tablet.BulkPart, error)) (*part, error) {
	p := &part{key: k, busy: make(chan struct{}, 1)}
	p.busy <- struct{}{}
	if other, err := ps.add(p); err != nil {
		return nil, err
	} else if other != nil {
		return ps.use(ctx, k)
	}
	var err error
	if p.part, err = begin(); err != nil {
		ps.release(p)
		return nil, err
	}
	return p, nil
}

// add adds a part, unless there is one with its key, which it returns.
func (ps *parts) add(p *part) (other *part, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.mu.closed {
		return nil, api.ErrUnavailable
	}
	if other := ps.mu.open[p.key]; other != nil {
		return other, nil
	}
	if err := ps.checkLocked(p.key.owner); err != nil {
		ps.mu.refused++
		return nil, err
	}
	if ps.mu.open == nil {
		ps.mu.open = map[key]*part{}
	}
	p.opened = time.Now()
	p.used = p.opened
	ps.mu.open[p.key] = p
	return nil, nil
}

// checkLocked returns an *api.OverloadedError if no part is free for owner. A user may have as many as are then left for others: alone
// half of them.
func (ps *parts) checkLocked(owner string) error {
	own := 0
	for k := range ps.mu.open {
		if k.owner == owner {
			own++
		}
	}
	open, reason := len(ps.mu.open), ""
	switch free := ps.most - open; {
	case free <= 0:
		reason = fmt.Sprintf("%d of %d parts of bulk imports are open on this node", open, ps.most)
	case owner != "" && own >= max(1, free):
		reason = fmt.Sprintf("user %s has %d parts of bulk imports open on this node, and the %d free ones are for others", owner, own, free)
	default:
		return nil
	}
	return &api.OverloadedError{Reason: reason + ": commit or abort one", RetryAfter: time.Second}
}

// use reserves a part until release. Errors: api.ErrBulkExpired, ctx's.
func (ps *parts) use(ctx context.Context, k key) (*part, error) {
	ps.mu.Lock()
	p := ps.mu.open[k]
	ps.mu.Unlock()
	if p == nil {
		return nil, api.ErrBulkExpired
	}
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ps.mu.Lock()
	gone := ps.mu.open[k] != p
	ps.mu.Unlock()
	if gone {
		<-p.busy
		return nil, api.ErrBulkExpired
	}
	return p, nil
}

// progress records that bytes of rows were added to a part, or, if all is set, that it makes progress whatever was added. Calls that add nothing do not
// keep a part open, and those that add little do not for long.
func (ps *parts) progress(p *part, bytes int64, all bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.added += bytes; all || p.added >= api.BulkProgress {
		p.used, p.added = time.Now(), 0
	}
}

// release ends the reservation of a part, and forgets one that has ended.
func (ps *parts) release(p *part) {
	ps.mu.Lock()
	if p.part == nil || p.part.Ended() {
		delete(ps.mu.open, p.key)
	}
	ps.mu.Unlock()
	<-p.busy
}

// sweepPeriod is the interval at which expired parts are aborted.
const sweepPeriod = api.BulkIdle / 6

// sweep aborts expired parts until close.
func (ps *parts) sweep(stop <-chan struct{}) {
	tick := time.NewTicker(sweepPeriod)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			ps.abort(func(p *part) bool { return p.expired(now) })
		}
	}
}

// abort aborts the parts that are not in use and for which is returns true.
func (ps *parts) abort(is func(*part) bool) {
	ps.mu.Lock()
	var ended []*part
	for _, p := range ps.mu.open {
		select {
		case p.busy <- struct{}{}:
		default:
			continue
		}
		if is(p) {
			ended = append(ended, p)
		} else {
			<-p.busy
		}
	}
	ps.mu.Unlock()
	for _, p := range ended {
		ps.end(p)
	}
}

// end aborts and releases a reserved part.
func (ps *parts) end(p *part) {
	if p.part != nil {
		p.part.Abort()
	}
	ps.release(p)
}

// stats returns the number of open parts, and of those refused.
func (ps *parts) stats() (open int, refused int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.mu.open), ps.mu.refused
}

// start returns a channel that close closes.
func (ps *parts) start() <-chan struct{} {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.mu.stop = make(chan struct{})
	return ps.mu.stop
}

// close aborts all parts. It waits for those in use until ctx ends.
func (ps *parts) close(ctx context.Context) {
	ps.mu.Lock()
	if ps.mu.closed || ps.mu.stop == nil {
		ps.mu.Unlock()
		return
	}
	ps.mu.closed = true
	close(ps.mu.stop)
	open := slices.Collect(maps.Values(ps.mu.open))
	ps.mu.Unlock()
	for _, p := range open {
		select {
		case p.busy <- struct{}{}:
			ps.end(p)
		case <-ctx.Done():
			return
		}
	}
}
