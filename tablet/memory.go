package tablet

import (
	"context"
	"math"
	"sync"

	"github.com/steledb/stele/tablet/sstable"
)

const (
	// pinnedShare is the part of CacheBytes, in quarters, that files of in-memory groups may use.
	// Other groups are read too.
	pinnedShare = 3
	// cacheLeast divides CacheBytes: the block cache keeps an eighth, however much open files use.
	cacheLeast = 8
	// cacheStep divides CacheBytes: the block cache is resized, which makes it evict, only for a
	// change of 1/256.
	cacheStep = 256
)

// readMemory divides CacheBytes among all that serves reads: the state of open files (indexes,
// filters, dictionaries), the files of in-memory groups, and the block cache. The block cache gets
// what these and reservations for other purposes leave (I13).
type readMemory struct {
	total int64
	cache *sstable.Cache

	// mu guards the fields below. Never held across I/O.
	mu       sync.Mutex
	open     int64 // of open files
	reserved int64 // reserved by the node for other purposes
	working  int64 // reserved for compactions of huge values and for loads
	pinned   int64
	cached   int64 // size last set for the cache
}

func newReadMemory(total int64) *readMemory {
	return &readMemory{total: total, cached: total, cache: sstable.NewCache(total)}
}

// addOpen adds the memory of an opened file, or subtracts that of a closed one if bytes is
// negative.
func (m *readMemory) addOpen(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open += bytes
	m.resizeCache()
}

// setReserved sets the memory reserved for purposes other than reads, in bytes.
func (m *readMemory) setReserved(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reserved = bytes
	m.resizeCache()
}

// addWorking changes the memory reserved for compactions and loads by bytes, which may be negative.
func (m *readMemory) addWorking(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.working += bytes
	m.resizeCache()
}

// ReserveCache reserves bytes of CacheBytes for purposes other than reads, and replaces the previous
// reservation. The block cache shrinks accordingly, by seven eighths at most.
func (s *Server) ReserveCache(bytes int64) { s.memory.setReserved(bytes) }

// pin reserves memory for files of in-memory groups. It returns false if that would exceed their
// limit.
func (m *readMemory) pin(bytes int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pinned+bytes > m.pinnedMax() {
		return false
	}
	m.pinned += bytes
	m.resizeCache()
	return true
}

func (m *readMemory) unpin(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pinned -= bytes
	m.resizeCache()
}

// pinnedMax returns the current limit of files of in-memory groups. mu is held.
func (m *readMemory) pinnedMax() int64 {
	return max(0, min(m.total*pinnedShare/4, m.total-m.total/cacheLeast-m.open-m.reserved-m.working))
}

// resizeCache sets the size of the cache to what is left. mu is held.
func (m *readMemory) resizeCache() {
	left := max(m.total-m.open-m.reserved-m.working-m.pinned, m.total/cacheLeast)
	if d := left - m.cached; d > m.total/cacheStep || -d > m.total/cacheStep || left == m.total && d != 0 {
		m.cached = left
		m.cache.Resize(left)
	}
}

// ReadMemory is the use of the memory for reads, in bytes.
type ReadMemory struct {
	Total       int64 // total, including the block cache
	Open        int64 // indexes, filters and dictionaries of open files
	Pinned      int64 // files of in-memory groups
	PinnedMax   int64 // current limit of Pinned
	PinnedFiles int64
	// Lacking is the data of in-memory groups that were read but do not fit. It is read through the
	// block cache.
	Lacking int64
}

func (s *Server) readMemory() ReadMemory {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	return ReadMemory{Total: m.total, Open: m.open, Pinned: m.pinned, PinnedMax: m.pinnedMax(),
		PinnedFiles: s.pins.files.Load(), Lacking: s.pins.lacking.Load()}
}

func (r *ReadMemory) add(o *ReadMemory) {
	r.Total, r.Open = r.Total+o.Total, r.Open+o.Open
	r.Pinned, r.PinnedMax, r.PinnedFiles = r.Pinned+o.Pinned, r.PinnedMax+o.PinnedMax, r.PinnedFiles+o.PinnedFiles
	r.Lacking += o.Lacking
}

// mergeBytes returns the approximate memory that a compaction uses for the file: its largest block,
// stored and decoded, and the read-ahead.
func (f *file) mergeBytes() int64 { return 2*f.largest + min(readAheadBytes, f.bytes) }

func mergeBytes(files []*file) (n int64) {
	for _, f := range files {
		n += f.mergeBytes()
	}
	return n
}

// writeBytes returns the memory that a compaction uses to write a largest value, in bytes: the
// block and its compressed form.
func writeBytes(largest int64) int64 { return 2 * largest }

// rewriteBytes returns the approximate memory of a compaction of the files, and budget, the bytes
// of their large values that it holds at a time. Those are all if limit, in bytes, allows it, and
// otherwise at least one.
func rewriteBytes(files []*file, limit int64) (n, budget int64) {
	var largest, ahead, all int64
	for _, f := range files {
		largest = max(largest, f.largest)
		ahead += min(readAheadBytes, f.bytes)
		all += 2 * f.largest
	}
	other := ahead + writeBytes(largest)
	held := max(min(all, limit-other), 2*largest)
	return other + held, held - largest
}

// releaseGate is the gate of iterators that together hold at most budget bytes of large blocks, but
// at least one block. A released block is read again when its value is needed.
type releaseGate struct {
	budget int64
	iters  []*sstable.Iter
}

// Enter implements sstable.Gate.
func (g *releaseGate) Enter(bytes int) error {
	held := int64(bytes)
	for _, it := range g.iters {
		held += int64(it.LargeBytes())
	}
	if held > g.budget {
		for _, it := range g.iters {
			it.ReleaseValue()
		}
	}
	return nil
}

func (g *releaseGate) close() {
	for _, it := range g.iters {
		it.Close()
	}
}

// rewriteSources returns the entries of the files for a compaction that holds budget bytes of large
// values at a time. It calls step with the bytes read.
func rewriteSources(files []*file, budget int64, step func(bytes int)) (sources []source, large *releaseGate) {
	large = &releaseGate{budget: budget}
	for _, f := range files {
		it := f.table.NewIter(sstable.IterOptions{NoCacheFill: true, ReadAheadBytes: readAheadBytes, Loaded: step, Gate: large})
		large.iters = append(large.iters, it)
		sources = append(sources, boundedSource(it, f.meta.Start, f.meta.End))
	}
	return sources, large
}

// compactionMemory acquires the given memory for a compaction. The block cache shrinks by what
// exceeds CompactionMemory.
func (s *Server) compactionMemory(ctx context.Context, bytes int64) (release func(), err error) {
	share := min(bytes, s.cfg.CompactionMemory)
	if err := s.merging.Acquire(ctx, share); err != nil {
		return nil, err
	}
	s.memory.addWorking(bytes - share)
	return func() {
		s.memory.addWorking(share - bytes)
		s.merging.Release(share)
	}, nil
}

// recoveryMemory acquires the given memory for a load of sorted runs. A load that needs more than
// RecoveryMemory runs alone. The block cache shrinks by all of it.
func (s *Server) recoveryMemory(ctx context.Context, bytes int64) (release func(), err error) {
	share := min(bytes, s.cfg.RecoveryMemory)
	if err := s.recovering.Acquire(ctx, share); err != nil {
		return nil, context.Cause(ctx)
	}
	s.memory.addWorking(bytes)
	return func() {
		s.memory.addWorking(-bytes)
		s.recovering.Release(share)
	}, nil
}

// mergeableRange returns the range [from, to) of files that a compaction may read at once (I13). If
// memory does not suffice for all, it is the range of two or more files for which the fewest bytes
// are rewritten per file removed. Huge values are then not rewritten whenever a file is added.
func (s *Server) mergeableRange(files []*file) (from, to int) {
	if len(files) <= 2 || mergeBytes(files) <= s.cfg.CompactionMemory {
		return 0, len(files)
	}
	least := math.Inf(1)
	for i := range len(files) - 1 {
		left, bytes, j := s.cfg.CompactionMemory, int64(0), i
		for ; j < len(files); j++ {
			if left -= files[j].mergeBytes(); left < 0 && j-i >= 2 {
				break
			}
			bytes += files[j].bytes
		}
		if cost := float64(bytes) / float64(j-i-1); cost < least {
			least, from, to = cost, i, j
		}
	}
	return from, to
}

// oversizedGroup returns a group of v and the range of its files to merge first, if a major
// compaction could not read its input at once: the files of each group or, if families move, of all
// groups. The group is nil if it can, or if no group has two files.
func (s *Server) oversizedGroup(v *view, move bool) (most *group, from, to int) {
	sum := int64(0)
	for i := range v.groups {
		g := &v.groups[i]
		sum += mergeBytes(g.files)
		if from, to := s.mergeableRange(g.files); to-from < len(g.files) {
			return g, from, to
		}
		if most == nil || len(g.files) > len(most.files) {
			most = g
		}
	}
	if move && sum > s.cfg.CompactionMemory && len(most.files) > 1 {
		return most, 0, len(most.files)
	}
	return nil, 0, 0
}

// acquireMergeable acquires a view whose files a major compaction can read at once, after merging
// files where there were too many. mergeMu is held.
func (t *Tablet) acquireMergeable(ctx context.Context) (*view, error) {
	for {
		v, err := t.acquireFiles()
		if err != nil {
			return nil, errUnloaded
		}
		g, from, to := t.server.oversizedGroup(v, v.hasMovedFamilies(t.schema.Load()))
		if g == nil {
			return v, nil
		}
		err = t.mergeFiles(ctx, v, g, from, to)
		v.release()
		if err != nil {
			return nil, err
		}
	}
}
