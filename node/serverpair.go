package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/storage"
)

// A node has two tablet servers under one lock: one serves METADATA's tablets, the other all else. So METADATA has its own commit log,
// which is short and sorted first when the node dies (paper §6, "Commit-log implementation"), and its own memory and minor
// compactions, which users' writes do not delay.

const (
	// metadataSplitBytes is the size at which METADATA's tablets split (paper §5.1).
	metadataSplitBytes = 128 << 20
	// metadataLogBytes bounds what a recovery reads of METADATA's commit log: a small part of a piece.
	metadataLogBytes = 16 << 20
)

// openBoth opens both servers without tablets, and without a commit log for METADATA's.
func (s *tabletServer) openBoth(ctx context.Context) (err error) {
	n, b := s.n, s.n.cfg.budget()
	cfg := tablet.Config{
		Blobs: s.blobs, Metadata: s, Schemas: s.schemas, Logger: n.log.With("part", "tablet"),
		MemtablesBytesMax: b.Memtables, CacheBytes: b.Cache, RowReadBytesMax: b.Message,
		LargeReadBytes: b.Large, CompactionMemory: b.Compaction, RecoveryMemory: b.Sort, LearnMemory: b.Learn, LogBatchBytes: b.LogBatch,
		OnFailure: s.logFailed, Serving: s.serving,
		NewTabletID:      func(ctx context.Context) (uint64, error) { return n.catalog.NextIDs(ctx, 1) },
		OnSplitCandidate: s.splitWanted, SplitRowBytes: metadata.EndMax,
	}
	if s.tablets, err = tablet.Start(ctx, cfg); err != nil {
		return fmt.Errorf("open the tablet server: %w", err)
	}
	cfg.Blobs = storage.OnHighPriorityStore(n.store.Load(), s.nameFor(metadata.TableID))
	cfg.Logger = cfg.Logger.With("table", metadata.Name)
	cfg.MemtablesBytesMax, cfg.CacheBytes, cfg.LogBytesMax, cfg.LogLater = b.MetadataMemtables, b.MetadataCache, metadataLogBytes, true
	cfg.CompactionMemory, cfg.LogBatchBytes = b.MetadataCompaction, b.MetadataLogBatch()
	// Not by load: clients look up only what they do not have cached, and a range that begins
	// at a row is looked up in one step.
	cfg.SplitOps, cfg.SplitBytes = -1, metadataSplitBytes
	if n.cfg.metadataSplitBytes != 0 {
		cfg.SplitBytes = n.cfg.metadataSplitBytes
	}
	if s.metadata, err = tablet.Start(ctx, cfg); err != nil {
		return errors.Join(fmt.Errorf("open METADATA's tablet server: %w", err), s.tablets.Close())
	}
	return nil
}

const (
	// metadataNodesPeriod is how often a node looks where its client believes METADATA's tablets to be, and
	// metadataNodesKept how long it remembers: the client forgets a server as soon as a call breaks.
	metadataNodesPeriod = time.Second
	metadataNodesKept   = 15 * time.Second
)

// expectMetadata begins the commit log of METADATA's tablets when a node that has some is not heard of any more
// and this one is to get them, which the master does as soon as that is sure: a log would be waited for then.
func (s *tabletServer) expectMetadata() {
	tick := time.NewTicker(metadataNodesPeriod)
	defer tick.Stop()
	seen := map[string]time.Time{} // nodes that had METADATA's tablets, by when that was last known
	for {
		changed := s.n.blobMembers.Changed()
		for _, id := range s.n.client.MetadataNodes() {
			seen[id] = time.Now()
		}
		maps.DeleteFunc(seen, func(_ string, at time.Time) bool { return time.Since(at) > metadataNodesKept })
		if s.n.getsMetadata(s.n.blobMembers.Members(), seen) {
			ctx, cancel := context.WithTimeout(s.n.ctx, namespace.ChangeAttempt)
			err := s.metadata.BeginLog(ctx)
			cancel()
			if err == nil {
				return
			}
			s.n.log.Debug("begin METADATA's commit log; will be tried again when it is needed", "err", err)
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-s.lock.Done():
			return
		case <-s.n.ctx.Done():
			return
		}
	}
}

// getsMetadata says whether METADATA's tablets are on a node that seems dead, and this one is the first of those
// that may get them.
func (n *Node) getsMetadata(members []blobfs.Member, had map[string]time.Time) bool {
	lost := false
	for _, m := range members {
		switch {
		case m.ID == n.id():
			if m.Draining {
				return false
			}
		case m.Alive && !m.Draining && m.ID < n.id():
			return false
		case !m.Alive && !had[m.ID].IsZero():
			lost = true
		}
	}
	return lost
}

// close ends both.
func (s *tabletServer) close() error { return s.closeWithin(context.Background()) }

// closeWithin does so, and waits for commits that were accepted until ctx ends.
func (s *tabletServer) closeWithin(ctx context.Context) error {
	defer s.runs.Close()
	return errors.Join(s.tablets.CloseWithin(ctx), s.metadata.CloseWithin(ctx))
}

// abandon cancels what waits for the commit logs, before they are closed.
func (s *tabletServer) abandon() {
	s.tablets.Abandon()
	s.metadata.Abandon()
}

// of returns the server of a table's tablets.
func (s *tabletServer) of(tableID uint64) *tablet.Server {
	if tableID == metadata.TableID {
		return s.metadata
	}
	return s.tablets
}

// nameFor returns the name of the server of a table's tablets.
func (s *tabletServer) nameFor(tableID uint64) string {
	if tableID == metadata.TableID {
		return namespace.MetadataServer(s.name)
	}
	return s.name
}

// is reports whether one of the two servers has that name.
func (s *tabletServer) is(server string) bool {
	return server == s.name || server == namespace.MetadataServer(s.name)
}

// tablets returns this node's tablet server for users' tables; it may be closed, and then serves nothing.
func (n *Node) tablets() *tablet.Server { return n.server.Load().tablets }

// tabletsOf returns this node's tablet server for a table.
func (n *Node) tabletsOf(table string) *tablet.Server {
	s := n.server.Load()
	if table == metadata.Name {
		return s.metadata
	}
	return s.tablets
}

// tabletStats returns the sum of both servers' statistics.
func (n *Node) tabletStats() tablet.Stats {
	s := n.server.Load()
	t, m := s.tablets.Stats(), s.metadata.Stats()
	t.Add(&m)
	return t
}
