package tablet

import (
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
