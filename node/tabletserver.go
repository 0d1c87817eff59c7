package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/tablet/sortedrun"

	"github.com/steledb/stele/tablet/storage"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/tablet"
)

// tabletServer is this node as a tablet server, from acquiring its server lock until losing it. It implements tablet.Metadata for
// both of its servers.
type tabletServer struct {
	n    *Node
	name string
	lock *session.Lock
	rows *metarows.Table
	// schemas has the schemas of users' tables.
	schemas *namespace.Schemas
	log     interface {
		Info(msg string, args ...any)
		Warn(msg string, args ...any)
	}
	blobs    storage.Blobs
	runs     *sortedrun.OpenRuns // sorted logs of dead servers
	tablets  *tablet.Server      // of users' tables
	metadata *tablet.Server
	// merges has the tablets that are being merged with the one below: the end of the lower one, by tablet.Ref.
	merges sync.Map

	// splitting is set while a tablet is split: of users' tables, and of METADATA.
	splitting [2]atomic.Bool

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		loading map[string]bool          // by key
		failed  map[string]time.Time     // last time that a tablet failed to load, by key
		states  map[tablet.Ref]*rowState // of loaded tablets
	}
}

// startTabletServer opens the tablet server, under another lock if the current one is lost meanwhile: a commit log can be begun only
// under a lock.
func (n *Node) startTabletServer(ctx context.Context) error {
	for {
		lock := n.locks.ServerLock()
		err := n.openTabletServer(ctx, lock)
		if err == nil || ctx.Err() != nil || !lostSoon(ctx, lock, err) {
			return err
		}
		n.log.Warn("server lock lost during the start; acquiring it again", "err", err)
		if err := n.locks.Hold(ctx); err != nil {
			return err
		}
	}
}

// lostSoon reports whether the lock is lost. If the log is fenced, the lock is lost, and the session learns of it within fencedWait.
func lostSoon(ctx context.Context, lock *session.Lock, err error) bool {
	if errors.Is(err, blobfs.ErrFenced) {
		t := time.NewTimer(fencedWait)
		defer t.Stop()
		select {
		case <-lock.Done():
		case <-ctx.Done():
		case <-t.C:
		}
	}
	select {
	case <-lock.Done():
		return true
	default:
		return false
	}
}

// openTabletServer opens a tablet server without tablets under a lock.
func (n *Node) openTabletServer(ctx context.Context, lock *session.Lock) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	opened := make(chan struct{})
	defer close(opened)
	n.background.Go(func() {
		select {
		case <-lock.Done():
			cancel()
		case <-opened:
		}
	})
	s := &tabletServer{n: n, name: namespace.ServerName(n.id(), lock.Generation()), lock: lock, rows: n.rows, schemas: namespace.NewSchemas(lock.Session())}
	s.log = n.log.With("part", "tablet", "server", s.name)
	s.mu.loading, s.mu.states = map[string]bool{}, map[tablet.Ref]*rowState{}
	s.blobs = storage.OnReplicatedStore(n.store.Load(), s.name)
	s.runs = sortedrun.NewOpenRuns(s.blobs)
	if err := s.openBoth(ctx); err != nil {
		return err
	}
	n.server.Store(s)
	n.reservation.from(s.tablets.ReserveCache)
	n.background.Go(s.renewSchemas)
	n.background.Go(s.expectMetadata)
	return nil
}

// fencedWait bounds the time between the fencing of the log and the session's learning that the lock is lost: longer than a session
// may be in jeopardy.
const fencedWait = time.Minute

// logFailed ends the node, unless its log was fenced: then the master has taken this silent server for dead, and its lock is lost.
// keepSession starts again in that case, and the node continues.
func (s *tabletServer) logFailed(err error) {
	if errors.Is(err, blobfs.ErrFenced) && (lostSoon(s.n.ctx, s.lock, err) || s.n.ctx.Err() != nil) {
		return
	}
	s.n.fail(err)
}

var errLeaseEnded = &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true,
	Message: "the node does not certainly hold its server lock until the lock service answers: it serves nothing until then"}

// serving returns nil while this server certainly holds its lock (I4).
func (s *tabletServer) serving() error {
	if s.lock.Held() || planted.On(planted.LeaseNotChecked) {
		return nil
	}
	return errLeaseEnded
}

// held returns the tablets that the server has.
func (s *tabletServer) held() reply.Result {
	all := append(s.metadata.Served().Loaded(), s.tablets.Served().Loaded()...)
	return func(e *wire.Encoder) {
		e.Array(len(all))
		for i := range all {
			t := &all[i]
			e.Array(3)
			e.Bin([]byte(tabletKey(t.Table, t.End)))
			e.Int(t.Bytes)
			e.Float(t.Load)
		}
	}
}

// tabletKey returns the master's name of a tablet.
func tabletKey(tableID uint64, end []byte) string {
	if metarows.IsRoot(tableID, end) {
		return master.RootKey
	}
	return string(metadata.Key(nil, tableID, end))
}

func decodeHeld(d *wire.Decoder) []master.Held {
	var all []master.Held
	for n := d.Array(); n > 0 && d.Err() == nil; n-- {
		more := d.Array() - 3
		all = append(all, master.Held{Key: string(d.Bytes()), Bytes: d.Int(), Load: d.Float()})
		for ; more > 0 && d.Err() == nil; more-- {
			d.Skip()
		}
	}
	return all
}

// rowOf reads the METADATA row of a tablet with the master's name.
func (s *tabletServer) rowOf(ctx context.Context, key []byte) (*metadata.Row, error) {
	if string(key) == master.RootKey {
		return s.rows.Root(ctx)
	}
	tableID, end, err := metadata.ParseKey(key)
	if err != nil {
		return nil, err
	}
	return s.rows.Get(ctx, tableID, end)
}

// load acquires the tablet whose row has that generation and serves it. A tablet that is loaded already is no error.
func (s *tabletServer) load(ctx context.Context, key []byte, generation uint64) error {
	if !s.begin(key) {
		return errBusyTablet
	}
	defer s.end(key)
	row, err := s.rowOf(ctx, key)
	if err != nil {
		return err
	}
	settling := s.of(row.Table).Served().SplitPending(metarows.RefOf(row)) // read first: a tablet that has settled is loaded
	if s.has(row) {
		return nil
	}
	if settling {
		return errSplittingOff
	}
	if row.Generation != generation {
		return fmt.Errorf("%w: generation is %d, want %d", metarows.ErrChanged, row.Generation, generation)
	}
	if err := s.serving(); err != nil {
		return err
	}
	if err := s.take(ctx, row, s.retried(ctx, key, row)); err != nil {
		return err
	}
	if err := s.loadTaken(ctx, key, row); err != nil {
		s.releaseFailed(key, err)
		return err
	}
	return nil
}

// loadTaken loads a tablet that belongs to this server.
func (s *tabletServer) loadTaken(ctx context.Context, key []byte, row *metadata.Row) error {
	l, err := s.prepare(ctx, row)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := s.of(row.Table).Load(ctx, *l); err != nil && !(errors.Is(err, tablet.ErrServed) && s.has(row)) {
		s.forget(metarows.RefOf(row))
		return err
	}
	s.loadedAfterAll(ctx, key, metarows.RefOf(row))
	s.log.Info("tablet loaded", "tablet", l.Meta.ID, "table", l.Schema.Name, "runs", len(l.Runs), "took", time.Since(start).Round(time.Millisecond))
	return nil
}

var (
	errBusyTablet      = &rpc.Error{Code: rpc.CodeUnavailable, Message: "the tablet is being loaded or unloaded", Retryable: true}
	errServedByAnother = &rpc.Error{Code: rpc.CodeUnavailable, Message: "rows of the tablet are served here by another tablet", Retryable: true}
	errSplittingOff    = &rpc.Error{Code: rpc.CodeUnavailable, Message: "the tablet is being split off here", Retryable: true}
)

// begin reserves a tablet for loading or unloading until end. It reports false if it is reserved.
func (s *tabletServer) begin(key []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.loading[string(key)] {
		return false
	}
	s.mu.loading[string(key)] = true
	return true
}

func (s *tabletServer) end(key []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.loading, string(key))
}

// has reports whether the server has the tablet of a row.
func (s *tabletServer) has(row *metadata.Row) bool {
	return s.of(row.Table).Served().Has(metarows.RefOf(row))
}

// take makes the tablet this server's: from then on no other server changes its row. METADATA records an event, unless this repeats
// an earlier attempt.
func (s *tabletServer) take(ctx context.Context, row *metadata.Row, again bool) error {
	name := s.nameFor(row.Table)
	event := "loaded on " + name
	if row.Server != "" && row.Server != name {
		event += ", recovered from " + row.Server
		if !slices.Contains(row.Recoveries, row.Server) {
			if len(row.Recoveries) >= metadata.RecoveriesMax {
				return fmt.Errorf("tablet not loaded: %d servers ended while serving it before it was written out; the limit is %d", len(row.Recoveries)+1, metadata.RecoveriesMax)
			}
			row.Recoveries = append(row.Recoveries, row.Server)
		}
	}
	if again {
		event = ""
	}
	row.Server, row.Addr = name, s.n.RPCAddr()
	return s.rows.Replace(ctx, row, event)
}

// prepare collects what a tablet consists of.
func (s *tabletServer) prepare(ctx context.Context, row *metadata.Row) (*tablet.Load, error) {
	if err := s.finishSplit(ctx, row); err != nil {
		return nil, fmt.Errorf("finish its split: %w", err)
	}
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil {
		return nil, fmt.Errorf("metadata of the tablet: %w", err)
	}
	if err := s.narrow(ctx, row, m); err != nil {
		return nil, err
	}
	l := &tablet.Load{Meta: m, Schema: metadata.Schema(), HighPriority: true}
	if row.Table != metadata.TableID {
		if l.Schema, l.Version, err = s.schemas.ByID(ctx, row.Table); err != nil {
			return nil, err
		}
		l.HighPriority = false
	}
	for _, server := range row.Recoveries {
		if row.Table != metadata.TableID && planted.On(planted.LoadWithoutRuns) {
			break
		}
		err := s.n.blobs.refs.runsOf(ctx, server, func(m *sortedrun.Meta) error {
			l.Runs = append(l.Runs, s.runs.Run(*m))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("find the sorted logs of %s: %w", server, err)
		}
	}
	st := s.remember(row)
	if len(row.Recoveries) > 0 {
		l.OnRecovered = func() { s.recovered(st) }
	}
	return l, nil
}

// unload releases a tablet and returns its row's generation; 0 if another server has it.
func (s *tabletServer) unload(ctx context.Context, key []byte) (generation uint64, err error) {
	if !s.begin(key) {
		return 0, errBusyTablet
	}
	defer s.end(key)
	row, err := s.rowOf(ctx, key)
	if err != nil {
		return 0, err
	}
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil {
		return 0, err
	}
	if s.of(row.Table).Served().SplitPending(metarows.RefOf(row)) { // read first: a tablet that has settled is loaded
		return 0, errSplittingOff
	}
	held := s.has(row)
	if held {
		if err := s.of(row.Table).Unload(ctx, metarows.RefOf(row)); err != nil {
			return 0, err
		}
	}
	// A closed server has no tablets either, but its log is still needed.
	if err := s.serving(); err != nil {
		return 0, err
	}
	// The row that was read may be older than the tablet's last split, and begin below its rows.
	if !held && s.of(row.Table).Served().Overlaps(row.Table, m.Start, row.End) {
		return 0, errServedByAnother
	}
	if row, err = s.rowOf(ctx, key); err != nil {
		return 0, err
	}
	if row.Server != s.nameFor(row.Table) {
		return 0, nil
	}
	event := "unloaded by " + row.Server
	row.Server, row.Addr = "", ""
	if err := s.rows.Replace(ctx, row, event); err != nil {
		return 0, err
	}
	s.forget(metarows.RefOf(row))
	return row.Generation, nil
}
