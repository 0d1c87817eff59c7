package budget

import (
	"sync"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/tablet/sstable"
)

const (
	// pinnedShare is the part of the total, in quarters, that files of in-memory groups may use.
	// Other groups are read too.
	pinnedShare = 3
	// cacheLeast divides the total: the block cache keeps an eighth, however much open files use.
	cacheLeast = 8
	// CacheStep divides the total: the block cache is resized, which makes it evict, only for a
	// change of 1/256.
	CacheStep = 256
)

// Reads divides memory among all that serves reads: the state of open files (indexes, filters,
// dictionaries), the files of in-memory groups, and the block cache. The block cache gets what these
// and reservations for other purposes leave (I13).
type Reads struct {
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

// NewReads returns a division of total bytes. All of them are the block cache's at first.
func NewReads(total int64) *Reads {
	return &Reads{total: total, cached: total, cache: sstable.NewCache(total)}
}

// Cache returns the block cache.
func (r *Reads) Cache() *sstable.Cache { return r.cache }

// AddOpen adds the memory of an opened file, or subtracts that of a closed one if bytes is
// negative.
func (r *Reads) AddOpen(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open += bytes
	r.resizeCache()
}

// SetReserved sets the memory reserved for purposes other than reads, in bytes.
func (r *Reads) SetReserved(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved = bytes
	r.resizeCache()
}

// AddWorking changes the memory reserved for compactions and loads by bytes, which may be negative.
func (r *Reads) AddWorking(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.working += bytes
	r.resizeCache()
}

// Pin reserves memory for files of in-memory groups. It returns false if that would exceed their
// limit.
func (r *Reads) Pin(bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pinned+bytes > r.pinnedMax() {
		return false
	}
	r.pinned += bytes
	r.resizeCache()
	return true
}

// Unpin releases memory that Pin reserved.
func (r *Reads) Unpin(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pinned -= bytes
	r.resizeCache()
}

// pinnedMax returns the current limit of files of in-memory groups. mu is held.
func (r *Reads) pinnedMax() int64 {
	return max(0, min(r.total*pinnedShare/4, r.total-r.total/cacheLeast-r.open-r.reserved-r.working))
}

// resizeCache sets the size of the cache to what is left. mu is held.
func (r *Reads) resizeCache() {
	invariant.Check(r.open >= 0 && r.working >= 0, "open files use %d bytes, and compactions %d", r.open, r.working)
	invariant.Check(r.pinned >= 0, "pinned files use %d bytes", r.pinned)
	left := max(r.total-r.open-r.reserved-r.working-r.pinned, r.total/cacheLeast)
	if d := left - r.cached; d > r.total/CacheStep || -d > r.total/CacheStep || left == r.total && d != 0 {
		r.cached = left
		r.cache.Resize(left)
	}
}

// ReadsUse is the use of the memory for reads, in bytes.
type ReadsUse struct {
	Total     int64 // total, including the block cache
	Open      int64 // indexes, filters and dictionaries of open files
	Pinned    int64 // files of in-memory groups
	PinnedMax int64 // current limit of Pinned
}

// Use returns the current use.
func (r *Reads) Use() ReadsUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ReadsUse{Total: r.total, Open: r.open, Pinned: r.pinned, PinnedMax: r.pinnedMax()}
}
