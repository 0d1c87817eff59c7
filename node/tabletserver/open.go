package tabletserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/sortedrun"
	"github.com/steledb/stele/tablet/storage"
)

// Open opens a tablet server without tablets under a lock.
func (s *Service) Open(ctx context.Context, lock *session.Lock) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.Ctx, cancel)()
	opened := make(chan struct{})
	defer close(opened)
	s.Background.Go(func() {
		select {
		case <-lock.Done():
			cancel()
		case <-opened:
		}
	})
	opening, err := s.newServer(ctx, lock)
	if err != nil {
		return err
	}
	s.current.Store(opening)
	s.Reservation.From(opening.Users.ReserveCache)
	s.Background.Go(opening.renewSchemas)
	s.Background.Go(opening.expectMetadata)
	return nil
}

// newServer opens both tablet servers under a lock.
func (s *Service) newServer(ctx context.Context, lock *session.Lock) (*Server, error) {
	v := &Server{Config: &s.Config, Name: namespace.ServerName(s.ID(), lock.Generation()), lock: lock, table: s.Table(), schemas: namespace.NewSchemas(lock.Session()),
		sorting: s.sorting}
	v.Rows = newRows(v)
	v.log = s.Log.With("part", "tablet", "server", v.Name)
	v.blobs = storage.OnReplicatedStore(s.Store(), v.Name)
	v.runs = sortedrun.NewOpenRuns(v.blobs)
	return v, v.openBoth(ctx)
}

// A node has two tablet servers under one lock: one serves METADATA's tablets, the other all else. So METADATA has its own commit log,
// which is short and sorted first when the node dies (paper §6, "Commit-log implementation"), and its own memory and minor
// compactions, which users' writes do not delay.

const (
	// metadataSplitBytes is the size at which METADATA's tablets split (paper §5.1).
	metadataSplitBytes = 128 << 20
	// metadataLogBytes bounds what a recovery reads of METADATA's commit log: a small part of a piece.
	metadataLogBytes = 16 << 20
)

// Sizes are those of tablets and of commit logs. Zero means the default of tablet.Config, and for METADATA that above.
type Sizes struct {
	// MemtableBytes, SplitBytes and LogBytesMax are those of tablet.Config, for the tables of users.
	MemtableBytes, SplitBytes, LogBytesMax int64
	// MetadataMemtableBytes, MetadataSplitBytes and MetadataLogBytes are the same for METADATA.
	MetadataMemtableBytes, MetadataSplitBytes, MetadataLogBytes int64
	// FilesMerge is that of tablet.Config.
	FilesMerge int
	// CacheBytes bounds the caches of the tables of users. Zero means what the memory allows. A cache has tables for as many blocks as fit.
	CacheBytes int64
}

// openBoth opens both servers without tablets, and without a commit log for METADATA's.
func (s *Server) openBoth(ctx context.Context) (err error) {
	b := s.Budget
	b.Cache = cmp.Or(s.Sizes.CacheBytes, b.Cache)
	cfg := tablet.Config{
		Blobs: s.blobs, Metadata: s.Rows, Schemas: s.schemas, Logger: s.Log.With("part", "tablet"),
		MemtablesBytesMax: b.Memtables, CacheBytes: b.Cache, RowReadBytesMax: b.Message,
		LargeReadBytes: b.Large, CompactionMemory: b.Compaction, RecoveryMemory: b.Sort, LearnMemory: b.Learn, LogBatchBytes: b.LogBatch,
		OnFailure: s.LogFailed, Serving: s.Serving,
		NewTabletID:      func(ctx context.Context) (uint64, error) { return s.Catalog.NextIDs(ctx, 1) },
		OnSplitCandidate: s.TrySplit, SplitRowBytes: metadata.EndMax,
		MemtableBytes: s.Sizes.MemtableBytes, SplitBytes: s.Sizes.SplitBytes, LogBytesMax: s.Sizes.LogBytesMax, FilesMerge: s.Sizes.FilesMerge,
	}
	if s.Users, err = tablet.Start(ctx, cfg); err != nil {
		return fmt.Errorf("open the tablet server: %w", err)
	}
	cfg.Blobs = storage.OnHighPriorityStore(s.Store(), s.nameFor(metadata.TableID))
	cfg.Logger = cfg.Logger.With("table", metadata.Name)
	cfg.MemtablesBytesMax, cfg.CacheBytes, cfg.LogLater = b.MetadataMemtables, b.MetadataCache, true
	cfg.MemtableBytes, cfg.LogBytesMax = s.Sizes.MetadataMemtableBytes, cmp.Or(s.Sizes.MetadataLogBytes, metadataLogBytes)
	cfg.CompactionMemory, cfg.LogBatchBytes = b.MetadataCompaction, b.MetadataLogBatch()
	// Not by load: clients look up only what they do not have cached, and a range that begins
	// at a row is looked up in one step.
	cfg.SplitOps, cfg.SplitBytes = -1, cmp.Or(s.Sizes.MetadataSplitBytes, metadataSplitBytes)
	if s.Metadata, err = tablet.Start(ctx, cfg); err != nil {
		return errors.Join(fmt.Errorf("open METADATA's tablet server: %w", err), s.Users.Close())
	}
	return nil
}

// closeWithin closes both servers. It waits for commits that were accepted until ctx ends.
func (s *Server) closeWithin(ctx context.Context) error {
	defer s.runs.Close()
	return errors.Join(s.Users.CloseWithin(ctx), s.Metadata.CloseWithin(ctx))
}
