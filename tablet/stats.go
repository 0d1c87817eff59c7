package tablet

import (
	"sync/atomic"
	"time"

	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/heat"
	"github.com/steledb/stele/tablet/sstable"
)

type counters struct {
	reads, scans           atomic.Int64
	minors, merges, majors atomic.Int64
	splits, tabletMerges   atomic.Int64
	splitPause             atomic.Int64 // of the last split, in ns
	bulkParts              atomic.Int64 // committed
	discarding             atomic.Int64 // tablets of dropped tables
}

// Stats are statistics of a server, cumulative since it was opened or current.
type Stats struct {
	Tables, Tablets int

	Reads, Scans      int64
	Stalls, Overloads int64 // writers that waited for memory; writers rejected

	MinorCompactions, MergingCompactions, MajorCompactions int64

	BulkParts      int64         // committed parts of bulk imports
	Splits, Merges int64         // of tablets
	SplitPause     time.Duration // how long the last split fenced writes

	MemtableBytes, MemtableBytesMax int64
	Cache                           sstable.CacheStats
	Memory                          ReadMemory
	Log                             commitlog.Stats
	LogPendingBytes                 int64 // that a recovery would read
	Blocked                         error // why memtables cannot be written out, or nil
}

// ReadMemory is the use of the memory for reads, in bytes.
type ReadMemory struct {
	budget.ReadsUse
	PinnedFiles int64
	// Lacking is the data of in-memory groups that were read but do not fit. It is read through the
	// block cache.
	Lacking int64
}

func (r *ReadMemory) add(o *ReadMemory) {
	r.Total, r.Open = r.Total+o.Total, r.Open+o.Open
	r.Pinned, r.PinnedMax, r.PinnedFiles = r.Pinned+o.Pinned, r.PinnedMax+o.PinnedMax, r.PinnedFiles+o.PinnedFiles
	r.Lacking += o.Lacking
}

// Stats returns the server's statistics.
func (s *Server) Stats() Stats {
	st := Stats{
		Tables: len(*s.served.tables.Load()), Tablets: len(s.served.all()),
		Reads: s.stats.reads.Load(), Scans: s.stats.scans.Load(),
		Stalls: s.writes.stalls.Load(), Overloads: s.writes.overloads.Load(),
		MinorCompactions: s.stats.minors.Load(), MergingCompactions: s.stats.merges.Load(), MajorCompactions: s.stats.majors.Load(),
		BulkParts: s.stats.bulkParts.Load(),
		Splits:    s.stats.splits.Load(), Merges: s.stats.tabletMerges.Load(), SplitPause: time.Duration(s.stats.splitPause.Load()),
		MemtableBytes: s.writeMemory.Memtables(), MemtableBytesMax: s.cfg.MemtablesBytesMax,
		Cache: s.readMemory.Cache().Stats(), Memory: ReadMemory{s.readMemory.Use(), s.pins.files.Load(), s.pins.lacking.Load()}, Log: s.commitLog.commits.Stats(), LogPendingBytes: s.commitLog.pending(),
	}
	if err := s.minors.blocked.Load(); err != nil {
		st.Blocked = *err
	}
	return st
}

// Add adds the statistics of another server.
func (s *Stats) Add(o *Stats) {
	s.Tables, s.Tablets = s.Tables+o.Tables, s.Tablets+o.Tablets
	s.Reads, s.Scans = s.Reads+o.Reads, s.Scans+o.Scans
	s.Stalls, s.Overloads = s.Stalls+o.Stalls, s.Overloads+o.Overloads
	s.MinorCompactions += o.MinorCompactions
	s.MergingCompactions += o.MergingCompactions
	s.MajorCompactions += o.MajorCompactions
	s.BulkParts += o.BulkParts
	s.Splits, s.Merges, s.SplitPause = s.Splits+o.Splits, s.Merges+o.Merges, max(s.SplitPause, o.SplitPause)
	s.MemtableBytes, s.MemtableBytesMax = s.MemtableBytes+o.MemtableBytes, s.MemtableBytesMax+o.MemtableBytesMax
	s.Cache.Add(&o.Cache)
	s.Memory.add(&o.Memory)
	s.Log.Batches, s.Log.Commits, s.Log.Bytes = s.Log.Batches+o.Log.Batches, s.Log.Commits+o.Log.Commits, s.Log.Bytes+o.Log.Bytes
	s.Log.AppendTime += o.Log.AppendTime
	s.LogPendingBytes += o.LogPendingBytes
	if s.Blocked == nil {
		s.Blocked = o.Blocked
	}
}

// TabletStats are statistics of one tablet.
type TabletStats struct {
	ID            uint64
	Start, End    []byte
	MemtableBytes int64
	Bytes         int64 // in files and memtables; an estimate of the tablet's part of shared ones
	OpsPerSecond  int64 // in the last period
	Files         []FileStats
}

// FileStats are statistics of one SSTable. If several tablets share the file since a split, each
// counts an estimate of its part, and the parts add up to the file.
type FileStats struct {
	Group    string
	Blob     string
	Bytes    int64 // on disk
	RawBytes int64 // of keys and values, before prefix and block compression
	Entries  int64
}

// TabletStats returns the statistics of a table's tablets in range order. The error is
// api.ErrNoTable.
func (s *Server) TabletStats(tableName string) ([]TabletStats, error) {
	tablets, err := s.served.tabletsOf(tableName)
	if err != nil {
		return nil, err
	}
	var all []TabletStats
	for _, t := range tablets {
		v, _, err := t.views.acquire()
		if err != nil {
			continue // dropped meanwhile
		}
		st := TabletStats{ID: t.id, Start: t.start, End: t.end, MemtableBytes: v.memtableBytes()}
		for _, g := range v.groups {
			for _, f := range g.files {
				st.Files = append(st.Files, FileStats{
					Group: g.name, Blob: f.meta.Handle.ID.String(),
					Bytes: f.bytes, RawBytes: f.portion(f.meta.RawBytes), Entries: f.portion(f.meta.Entries),
				})
			}
		}
		v.release()
		st.Bytes, st.OpsPerSecond = t.views.bytes()+t.views.changeBytes(), t.load.rate.Load()
		all = append(all, st)
	}
	return all, nil
}

// TakeHeat returns the operations on ranges of rows since the last call, of all tables.
func (s *Server) TakeHeat() []*heat.Part {
	var parts []*heat.Part
	for _, t := range s.served.all() {
		if p := t.heat.Take(); p != nil {
			parts = append(parts, p)
		}
	}
	return append(parts, s.retiredHeat.Take()...)
}
