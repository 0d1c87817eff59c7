package tabletserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/sortedrun"
	"github.com/steledb/stele/tablet/storage"
)

// Server is this node as a tablet server, from acquiring its server lock until losing it: in fact two, one of users' tables and one of
// METADATA.
type Server struct {
	*Config
	// Name is the server's name for users' tables. The other's is namespace.MetadataServer(Name).
	Name            string
	Users, Metadata *tablet.Server
	// Rows has the METADATA rows of the loaded tablets.
	Rows *Rows
	// Busy has the tablets that are being loaded or unloaded.
	Busy Busy

	lock     *session.Lock
	table    *metarows.Table
	schemas  *namespace.Schemas // of users' tables
	log      *slog.Logger
	blobs    storage.Blobs
	runs     *sortedrun.OpenRuns // sorted logs of dead servers
	failures failures
	sorting  chan struct{}
	// splitting is set while a tablet is split: of users' tables, and of METADATA.
	splitting [2]atomic.Bool
}

// LogFailed ends the node, unless its log was fenced: then the master has taken this silent server for dead, and its lock is lost.
// The node opens another server in that case.
func (s *Server) LogFailed(err error) {
	if errors.Is(err, blobfs.ErrFenced) && (lostSoon(s.Ctx, s.lock, err) || s.Ctx.Err() != nil) {
		return
	}
	s.Fail(err)
}

// ErrLeaseEnded means that the server does not certainly hold its lock.
var ErrLeaseEnded = &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true,
	Message: "the node does not certainly hold its server lock until the lock service answers: it serves nothing until then"}

// Serving returns nil while this server certainly holds its lock (I4).
func (s *Server) Serving() error {
	if s.lock.Held() || planted.On(planted.LeaseNotChecked) {
		return nil
	}
	return ErrLeaseEnded
}

// held returns the tablets that the server has.
func (s *Server) held() reply.Result {
	all := append(s.Metadata.Served().Loaded(), s.Users.Served().Loaded()...)
	held := make([]master.Held, len(all))
	for i := range all {
		t := &all[i]
		held[i] = master.Held{Key: master.KeyOf(t.Table, t.End), Bytes: t.Bytes, Load: t.Load}
	}
	return func(e *wire.Encoder) { command.AppendHeld(e, held) }
}

// Row reads the METADATA row of a tablet with the master's name.
func (s *Server) Row(ctx context.Context, key []byte) (*metadata.Row, error) {
	if string(key) == master.RootKey {
		return s.table.Root(ctx)
	}
	tableID, end, err := metadata.ParseKey(key)
	if err != nil {
		return nil, err
	}
	return s.table.Get(ctx, tableID, end)
}

// Load acquires the tablet whose row has that generation and serves it. A tablet that is loaded already is no error.
func (s *Server) Load(ctx context.Context, key []byte, generation uint64) error {
	if !s.Busy.Reserve(key) {
		return ErrBusyTablet
	}
	defer s.Busy.Release(key)
	row, err := s.Row(ctx, key)
	if err != nil {
		return err
	}
	settling := s.of(row.Table).Served().SplitPending(metarows.RefOf(row)) // read first: a tablet that has settled is loaded
	if s.Has(row) {
		return nil
	}
	if settling {
		return errSplittingOff
	}
	if row.Generation != generation {
		return fmt.Errorf("%w: generation is %d, want %d", metarows.ErrChanged, row.Generation, generation)
	}
	if err := s.Serving(); err != nil {
		return err
	}
	if err := s.Take(ctx, row, s.Retried(ctx, key, row)); err != nil {
		return err
	}
	if err := s.loadTaken(ctx, key, row); err != nil {
		s.ReleaseFailed(key, err)
		return err
	}
	return nil
}

// loadTaken loads a tablet that belongs to this server.
func (s *Server) loadTaken(ctx context.Context, key []byte, row *metadata.Row) error {
	l, err := s.Prepare(ctx, row)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := s.of(row.Table).Load(ctx, *l); err != nil && !(errors.Is(err, tablet.ErrServed) && s.Has(row)) {
		s.Rows.forget(metarows.RefOf(row))
		return err
	}
	s.loadedAfterAll(ctx, key, metarows.RefOf(row))
	s.log.Info("tablet loaded", "tablet", l.Meta.ID, "table", l.Schema.Name, "runs", len(l.Runs), "took", time.Since(start).Round(time.Millisecond))
	return nil
}

var (
	// ErrBusyTablet means that a tablet is being loaded or unloaded.
	ErrBusyTablet      = &rpc.Error{Code: rpc.CodeUnavailable, Message: "the tablet is being loaded or unloaded", Retryable: true}
	errServedByAnother = &rpc.Error{Code: rpc.CodeUnavailable, Message: "rows of the tablet are served here by another tablet", Retryable: true}
	errSplittingOff    = &rpc.Error{Code: rpc.CodeUnavailable, Message: "the tablet is being split off here", Retryable: true}
)

// Has reports whether the server has the tablet of a row.
func (s *Server) Has(row *metadata.Row) bool {
	return s.of(row.Table).Served().Has(metarows.RefOf(row))
}

// Take makes the tablet this server's: from then on no other server changes its row. METADATA records an event, unless this repeats
// an earlier attempt.
func (s *Server) Take(ctx context.Context, row *metadata.Row, again bool) error {
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
	row.Server, row.Addr = name, s.Addr()
	moment.Pass("before a server takes a tablet", "")
	return s.table.Replace(ctx, row, event)
}

// Prepare collects what a tablet consists of.
func (s *Server) Prepare(ctx context.Context, row *metadata.Row) (*tablet.Load, error) {
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
		err := s.Roots.Runs(ctx, server, func(m *sortedrun.Meta) error {
			l.Runs = append(l.Runs, s.runs.Run(*m))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("find the sorted logs of %s: %w", server, err)
		}
	}
	st := s.Rows.remember(row)
	if len(row.Recoveries) > 0 {
		l.OnRecovered = func() { s.Rows.recovered(st) }
	}
	return l, nil
}

// Unload releases a tablet and returns its row's generation; 0 if another server has it.
func (s *Server) Unload(ctx context.Context, key []byte) (generation uint64, err error) {
	if !s.Busy.Reserve(key) {
		return 0, ErrBusyTablet
	}
	defer s.Busy.Release(key)
	row, err := s.Row(ctx, key)
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
	held := s.Has(row)
	if held {
		if err := s.of(row.Table).Unload(ctx, metarows.RefOf(row)); err != nil {
			return 0, err
		}
	}
	// A closed server has no tablets either, but its log is still needed.
	if err := s.Serving(); err != nil {
		return 0, err
	}
	// The row that was read may be older than the tablet's last split, and begin below its rows.
	if !held && s.of(row.Table).Served().Overlaps(row.Table, m.Start, row.End) {
		return 0, errServedByAnother
	}
	if row, err = s.Row(ctx, key); err != nil {
		return 0, err
	}
	if row.Server != s.nameFor(row.Table) {
		return 0, nil
	}
	event := "unloaded by " + row.Server
	row.Server, row.Addr = "", ""
	moment.Pass("before a server releases a tablet", "")
	if err := s.table.Replace(ctx, row, event); err != nil {
		return 0, err
	}
	s.Rows.forget(metarows.RefOf(row))
	return row.Generation, nil
}

// of returns the server of a table's tablets.
func (s *Server) of(tableID uint64) *tablet.Server {
	if tableID == metadata.TableID {
		return s.Metadata
	}
	return s.Users
}

// nameFor returns the name of the server of a table's tablets.
func (s *Server) nameFor(tableID uint64) string {
	if tableID == metadata.TableID {
		return namespace.MetadataServer(s.Name)
	}
	return s.Name
}

// is reports whether one of the two servers has that name.
func (s *Server) is(server string) bool {
	return server == s.Name || server == namespace.MetadataServer(s.Name)
}
