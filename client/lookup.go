package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

const (
	// lookupRows is the number of METADATA rows that a lookup reads: the requested tablet and those
	// after it. At about 200 bytes each they fit into one response.
	lookupRows = 64
	// flightsMax bounds the concurrent lookups for one table.
	flightsMax = 4
	// lookupTimeout bounds one request of a lookup. The data that it reads is in memory.
	lookupTimeout = 5 * time.Second
	// unassignedTime is how long METADATA is not read again for an unassigned tablet, or from an
	// unavailable METADATA server, however many calls wait.
	unassignedTime = 10 * time.Millisecond
	// lookupParts bounds the METADATA tablets that one lookup reads.
	lookupParts = 8
)

// errUnassigned means that the tablet is unassigned: it is being moved or recovered.
var errUnassigned = fmt.Errorf("%w: it is not assigned to a server", api.ErrNotServing)

// errNoRows means that METADATA has no row for the table's tablet.
var errNoRows = fmt.Errorf("%w: it has no row in METADATA", api.ErrNotServing)

// lookupError means that a tablet could not be located. Nothing was sent to its server.
type lookupError struct {
	table string
	row   []byte
	err   error
	bare  bool          // err needs no context in the decision
	at    *metadataDown // set if the cause is an unavailable METADATA server
}

func (e *lookupError) Error() string {
	return fmt.Sprintf("find the tablet of row %.64q of table %q: %v", e.row, e.table, e.err)
}

func (e *lookupError) Unwrap() error { return e.err }

// affectsOthers reports whether lookups of other rows of the table will probably fail as well.
func (e *lookupError) affectsOthers() bool { return e.err != errUnassigned && e.at == nil }

// withCause sets the cause.
func (e *lookupError) withCause(err error) *lookupError {
	e.err = err
	errors.As(err, &e.at)
	return e
}

// flight is a lookup in progress, shared by all calls that need it.
type flight struct {
	row    []byte
	number uint64        // flights are numbered as they begin
	done   chan struct{} // closed when loc and err are set
	loc    *location     // nil if any node will do
	err    *lookupError
}

// find looks up row in the cluster. If another lookup in progress may return row's tablet as well,
// it waits for that first. It does not return the error of a lookup that began before find (C9).
func (l *locator) find(ctx context.Context, name string, row []byte) (destination, error) {
	before := l.flights.Load()
	for waited := 0; ; waited++ {
		p, f, err := l.joinFlight(l.table(name), row, waited > 0)
		if f == nil {
			return p, err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			if unavailable := l.recentRootError(); unavailable != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return destination{}, &lookupError{table: name, row: bytes.Clone(row), err: unavailable}
			}
			return destination{}, ctx.Err()
		case <-l.life.ctx.Done():
			return destination{}, ErrClosed
		}
		own := bytes.Equal(f.row, row)
		switch {
		case f.err != nil && f.number <= before:
		case f.err != nil && (own || f.err.affectsOthers()):
			return destination{}, f.err
		case f.err == nil && f.loc == nil:
			return l.any(), nil
		case f.err == nil && own:
			return destination{f.loc.node, f.loc}, nil
		}
	}
}

// joinFlight returns the location of row, an error, or a flight to wait for. With exact it joins
// only a flight for the same row, unless there are flightsMax flights.
func (l *locator) joinFlight(t *tableCache, row []byte, exact bool) (destination, *flight, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := l.cached(t.name, row); ok {
		return p, nil, nil
	}
	if loc := l.lookUp(t.name, row); loc != nil && loc.node == nil && time.Now().Before(loc.until) {
		return destination{}, nil, &lookupError{table: t.name, row: bytes.Clone(row), err: errUnassigned}
	}
	meta := l.metadataOf(t, row)
	if err := t.failedLocked(l.lookupServer(meta)); err != nil {
		return destination{}, nil, err
	}
	var best *flight
	for _, f := range t.mu.flights {
		c := bytes.Compare(f.row, row)
		if c == 0 || c < 0 && !exact && (best == nil || bytes.Compare(best.row, f.row) < 0) && meta.hasMetadata(t, f.row) {
			best = f
		}
	}
	if best == nil && len(t.mu.flights) >= flightsMax {
		best = t.mu.flights[0]
	}
	if best != nil {
		l.stats.shared.Add(1)
		return destination{}, best, nil
	}
	f := &flight{row: bytes.Clone(row), number: l.flights.Add(1), done: make(chan struct{})}
	if !l.life.spawn(func() { l.runFlight(t, f) }) {
		return destination{}, nil, ErrClosed
	}
	t.mu.flights = append(t.mu.flights, f)
	return destination{}, f, nil
}

// runFlight performs a lookup under the Client's context, because the call that started it may end
// first.
func (l *locator) runFlight(t *tableCache, f *flight) {
	l.stats.lookups.Add(1)
	f.loc, f.err = l.lookup(l.life.ctx, t, f.row)
	t.mu.Lock()
	t.mu.flights = slices.DeleteFunc(t.mu.flights, func(o *flight) bool { return o == f })
	t.endedLocked(f.err)
	t.mu.Unlock()
	close(f.done)
}

// lookup locates the tablet of a row and those after it. It returns nil if any node will do.
func (l *locator) lookup(ctx context.Context, t *tableCache, row []byte) (*location, *lookupError) {
	failed := &lookupError{table: t.name, row: row}
	if t.name == metadata.Name && inRoot(row) {
		loc, err := l.rootTablet(ctx)
		if err != nil {
			return nil, failed.withCause(err)
		}
		return loc, nil
	}
	for {
		id, fetched, err := l.tableID(ctx, t)
		if err != nil {
			failed.err, failed.bare = err, true
			return nil, failed
		}
		if id == 0 {
			return nil, nil
		}
		run, err := l.readMetadata(ctx, t, id, row)
		if errors.Is(err, errNoRows) && !fetched && id != metadata.TableID {
			l.setID(t, 0) // it was dropped, and may exist again with another id
			continue
		}
		if err != nil {
			return nil, failed.withCause(err)
		}
		l.insert(t, id, run)
		loc := run[slices.IndexFunc(run, func(loc *location) bool { return loc.has(row) })]
		if loc.node == nil {
			failed.err = errUnassigned
			return nil, failed
		}
		loc.used.Store(true)
		return loc, nil
	}
}

// tableID returns a table's id, from the cache or from a node. It returns 0 if the cluster has no
// METADATA.
func (l *locator) tableID(ctx context.Context, t *tableCache) (id uint64, fetched bool, err error) {
	if l.mode.Load() == modeMetadata {
		if t.name == metadata.Name {
			l.setID(t, metadata.TableID)
		}
		if id := t.known.Load().id; id != 0 {
			return id, false, nil
		}
	}
	info, err := l.callRoot(ctx, t.name)
	if errors.Is(err, api.ErrNoTable) {
		l.forget(t)
	}
	if err != nil || !info.Metadata {
		return 0, true, err
	}
	l.setID(t, info.Table)
	return info.Table, true, nil
}

// rootTablet returns the location of the root tablet, from the cache or from a node. It returns nil
// if the cluster has no METADATA.
func (l *locator) rootTablet(ctx context.Context) (*location, error) {
	if loc := l.root.Load(); loc != nil {
		return loc, nil
	}
	info, err := l.callRoot(ctx, metadata.Name)
	if err != nil || !info.Metadata {
		return nil, err
	}
	if loc := l.root.Load(); loc != nil {
		return loc, nil
	}
	return nil, errUnassigned
}

// callRoot calls root on one node after another until one answers.
func (l *locator) callRoot(ctx context.Context, name string) (info api.RootInfo, err error) {
	req := api.NamesRequest{Names: []string{name}}
	k := call{method: api.MethodRoot, safe: true, encode: req.Append, decode: info.Decode}
	for i := 0; ; i++ {
		k.dest = l.any()
		a := l.request(ctx, &k)
		switch {
		case a.err == nil:
			l.rootError.Store(nil)
			l.cacheRoot(&info)
			return info, nil
		case errors.Is(a.err, rpc.CodeUnknownMethod): // a node of a version without METADATA
			info = api.RootInfo{}
			l.cacheRoot(&info)
			return info, nil
		}
		err = api.FromRPC(a.err)
		switch unavailable := l.recentRootError(); {
		case errors.Is(err, ErrUnavailable):
			l.rootError.Store(&rootFailure{err, time.Now()})
		case unavailable != nil && errors.Is(err, context.DeadlineExceeded):
			err = unavailable // more specific than an expired deadline
		}
		if i >= l.seeds.count() || !l.retryElsewhere(a) {
			return info, err
		}
		l.seeds.skip(k.dest.node.addr)
	}
}

// cacheRoot caches the result of root.
func (l *locator) cacheRoot(info *api.RootInfo) {
	l.modeChecked.Store(time.Now().UnixNano())
	if !info.Metadata {
		if l.mode.Swap(modeNoMetadata) == modeMetadata {
			l.forgetAll()
		}
		return
	}
	var loc *location
	if info.Addr != "" {
		loc = &location{table: metadata.TableID, end: []byte(rootEnd), server: info.Server, addr: info.Addr, node: l.pool.node(info.Addr)}
		l.seeds.add(info.Addr)
	}
	if old := l.root.Load(); old == nil || loc == nil || old.server != loc.server || old.addr != loc.addr {
		l.root.Store(loc)
	}
	l.mode.Store(modeMetadata)
}

// request makes one attempt of a lookup's call.
func (l *locator) request(ctx context.Context, k *call) attempt {
	l.stats.roundTrips.Add(1)
	k.lookup = true
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return k.send(ctx, k.dest)
}

// retryElsewhere reports whether a request of a lookup failed in a way that may succeed on another
// server, or on the same one after its location is looked up again.
func (l *locator) retryElsewhere(a attempt) bool {
	return a.err != nil && !l.life.closed() && (errors.Is(a.err, rpc.ErrConnLost) || errors.Is(a.err, ErrUnreachable) ||
		errors.Is(a.err, context.DeadlineExceeded) || errors.Is(a.err, api.CodeNotServing) || errors.Is(a.err, rpc.CodeUnavailable))
}

// readMetadata reads the locations of adjacent tablets of a table, including that of row. It
// returns errNoRows if METADATA has none.
func (l *locator) readMetadata(ctx context.Context, t *tableCache, id uint64, row []byte) (run []*location, err error) {
	from := bytes.Clone(row)
	_, end := metadata.TableRange(id)
	whole := id == metadata.TableID && !t.wide.Load()
	if id == metadata.TableID {
		end = successor([]byte(rootEnd))
	}
	if whole {
		// Read all METADATA tablets of a user table at once; usually they are few.
		from = from[:min(len(from), tableIDBytes)]
	}
	key := metadata.SeekKey(nil, id, from)
	for range lookupParts {
		rows, next, err := l.scanMetadata(ctx, t, id, key, end)
		if err != nil {
			return nil, err
		}
		run = append(run, l.locations(t, id, from, rows)...)
		if n := len(run); n > 0 && (run[n-1].end == nil || string(run[n-1].end) >= string(row)) {
			return run, nil
		}
		switch {
		case len(rows) == lookupRows && whole: // they are not few: read only the requested one and those after it
			t.wide.Store(true)
			whole, run, from = false, nil, bytes.Clone(row)
			key = metadata.SeekKey(nil, id, from)
			continue
		case len(rows) > 0:
			from = successor(run[len(run)-1].end)
			key = metadata.SeekKey(nil, id, from)
			continue
		}
		if key = next; key == nil {
			break
		}
	}
	return nil, errNoRows
}

// tableIDBytes is the length of the table id in a METADATA key.
const tableIDBytes = 8

// scanMetadata reads rows of METADATA from key on. If the cached METADATA location is stale, it is
// looked up again once. An unavailable server gets no second request.
func (l *locator) scanMetadata(ctx context.Context, t *tableCache, id uint64, key, end []byte) (rows []*metadata.Row, next []byte, err error) {
	var silent *metadataDown
	for stale := false; ; stale = true {
		p, err := l.metadataTablet(ctx, id, key)
		if err != nil {
			return nil, nil, err
		}
		if silent != nil && silent.node == p.node {
			return nil, nil, silent
		}
		if e := t.failed(p.node); e != nil {
			return nil, nil, e.err
		}
		var a attempt
		if rows, next, a = l.scanAt(ctx, p, key, end); a.err == nil {
			return rows, next, nil
		}
		err = api.FromRPC(a.err)
		switch {
		case errors.Is(err, api.ErrNoTable): // the server has no tablet of METADATA
			a.err = api.CodeNotServing
			err = fmt.Errorf("%w: %s serves no METADATA tablet", api.ErrNotServing, p.node.addr)
		case errors.Is(err, api.ErrUnavailable):
			silent = &metadataDown{err, p.node, time.Now().Add(unassignedTime)}
			err = silent
		}
		again := l.retryElsewhere(a)
		if again {
			l.invalidate(p, broken, nil)
		}
		if !again || stale {
			return nil, nil, err
		}
	}
}

// metadataTablet returns the location of the METADATA tablet with the given key. For METADATA's own
// tablets this is the root tablet.
func (l *locator) metadataTablet(ctx context.Context, id uint64, key []byte) (destination, error) {
	if id != metadata.TableID {
		return l.locate(ctx, metadata.Name, key)
	}
	loc, err := l.rootTablet(ctx)
	if err != nil {
		return destination{}, err
	}
	if loc == nil {
		return destination{}, errUnassigned // METADATA was removed meanwhile
	}
	return destination{loc.node, loc}, nil
}

var locationsFilter = encodeFilter(metadata.Locations())

func (l *locator) scanAt(ctx context.Context, p destination, key, end []byte) (rows []*metadata.Row, next []byte, a attempt) {
	if p.loc == nil {
		return nil, nil, attempt{err: errUnassigned} // METADATA was removed meanwhile
	}
	req := api.ScanOpenRequest{Table: metadata.Name, Start: key, End: end, Filter: locationsFilter, Limit: lookupRows, BatchRows: lookupRows, Parts: true}
	k := call{method: api.MethodScanOpen, safe: true, dest: p, encode: req.Append}
	cursor := uint64(0)
	k.decode = func(d *wire.Decoder) error {
		var r api.ScanResult
		if err := r.Decode(d); err != nil {
			return err
		}
		cursor, next = r.Cursor, bytes.Clone(r.Next)
		names := table.NewInterner(internedMax)
		for range r.Count {
			var row table.Row
			if err := table.DecodeRow(&r.Rows, &row, names); err != nil {
				return err
			}
			m, err := metadata.Decode(&row)
			if m == nil {
				return err
			}
			// A corrupt row has no server: requests for its tablet wait, others proceed.
			rows = append(rows, m)
		}
		return nil
	}
	if a = l.request(ctx, &k); a.err == nil && cursor != 0 {
		req := api.ScanNextRequest{Cursor: cursor}
		p.node.notify(l.life.ctx, api.MethodScanClose, req.Append)
	}
	return rows, next, a
}

// locations converts adjacent METADATA rows to locations. The first row's tablet holds the row
// from.
func (l *locator) locations(t *tableCache, id uint64, from []byte, rows []*metadata.Row) []*location {
	run := make([]*location, len(rows))
	now := time.Now()
	var addrs []string
	for i, m := range rows {
		loc := &location{of: t, table: id, start: from, end: m.End, server: m.Server, addr: m.Addr, read: now}
		if m.Unassigned() {
			loc.until = now.Add(unassignedTime)
		} else {
			loc.node = l.pool.node(m.Addr)
			addrs = append(addrs, m.Addr)
		}
		run[i], from = loc, successor(m.End)
	}
	l.seeds.add(addrs...)
	return run
}
