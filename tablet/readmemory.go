package tablet

import (
	"sync"

	"github.com/steledb/stele/tablet/sstable"
)

const (
	// pinnedShare is the part of CacheBytes that files of in-memory groups may have, in quarters. The
	// other groups are read too.
	pinnedShare = 3
	// cacheLeast is the part of CacheBytes that the block cache keeps, whatever open files take: an eighth.
	cacheLeast = 8
	// cacheStep is by which part of CacheBytes its rest must have changed before the block cache's size is
	// set anew, which has it tidy up.
	cacheStep = 256
)

// readMemory divides CacheBytes among all that serves reads: what open files take for themselves (indexes, filters,
// dictionaries), the files of in-memory groups, and the block cache, which has what these and others than reads leave (I13).
type readMemory struct {
	total int64
	cache *sstable.Cache

	// mu guards what follows. Never held across I/O.
	mu     sync.Mutex
	open   int64 // of open files
	lent   int64 // to others than the tablet server
	own    int64 // lent to compactions of huge values
	pinned int64
	cached int64 // what the cache was told last
}

func newReadMemory(total int64) *readMemory {
	return &readMemory{total: total, cached: total, cache: sstable.NewCache(total)}
}

// take counts the memory of a file that was opened, or that is closed if it is negative.
func (m *readMemory) take(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open += bytes
	m.settle()
}

// lend has others take that much of it, in place of what they took.
func (m *readMemory) lend(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lent = bytes
	m.settle()
}

// borrow has compactions take that much of it more, or fewer if it is negative.
func (m *readMemory) borrow(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.own += bytes
	m.settle()
}

// LendCache has others than reads take so many bytes of CacheBytes, in place of what they took before: the block cache gives way, up to
// seven eighths of it.
func (s *Server) LendCache(bytes int64) { s.memory.lend(bytes) }

// pin takes memory for files of in-memory groups; false if they have as much as they may.
func (m *readMemory) pin(bytes int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pinned+bytes > m.pinnedMax() {
		return false
	}
	m.pinned += bytes
	m.settle()
	return true
}

func (m *readMemory) unpin(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pinned -= bytes
	m.settle()
}

// pinnedMax is what files of in-memory groups may have at the moment. mu is held.
func (m *readMemory) pinnedMax() int64 {
	return max(0, min(m.total*pinnedShare/4, m.total-m.total/cacheLeast-m.open-m.lent-m.own))
}

// settle gives the cache what is left. mu is held.
func (m *readMemory) settle() {
	left := max(m.total-m.open-m.lent-m.own-m.pinned, m.total/cacheLeast)
	if d := left - m.cached; d > m.total/cacheStep || -d > m.total/cacheStep || left == m.total && d != 0 {
		m.cached = left
		m.cache.Resize(left)
	}
}

// ReadMemory is what has how much of the memory for reads, in bytes.
type ReadMemory struct {
	Total       int64 // of all, and the block cache
	Open        int64 // indexes, filters and dictionaries of open files
	Pinned      int64 // of files of in-memory groups
	PinnedMax   int64 // that they may have at the moment
	PinnedFiles int64
	// Lacking is the data of in-memory groups that have been read and for which there is no room: it is
	// read through the block cache.
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
