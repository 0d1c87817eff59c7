package sstable

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
)

// Cache holds blocks of any number of tables in memory, within one budget of
// bytes. It keeps what is asked for often and recently (W-TinyLFU), so one
// long scan does not empty it. It is safe for concurrent use.
type Cache struct {
	blocks  *otter.Cache[cacheKey, []byte]
	counter *stats.Counter
	nextNum atomic.Uint64
	budget  atomic.Int64
	flights [flightShards]flightShard
}

// cacheKey names a block: its file and its offset there.
type cacheKey struct {
	file uint64
	off  int64
}

// ownNumBit sets the file numbers that the cache gives out apart from those
// that its users do.
const ownNumBit = 1 << 63

// blockShareMax is the part of the budget that one block may have. 8: a huge
// value must not push out everything else.
const blockShareMax = 8

// NewCache returns a cache of at most budget bytes, counted as the blocks'
// memory and what it takes to keep them. A budget of 0 or less caches
// nothing.
func NewCache(budget int64) *Cache {
	c := &Cache{counter: stats.NewCounter()}
	c.blocks = otter.Must(&otter.Options[cacheKey, []byte]{
		MaximumWeight: uint64(max(budget, 0)),
		Weigher:       func(_ cacheKey, p []byte) uint32 { return uint32(cost(p)) },
		StatsRecorder: c.counter,
	})
	c.Resize(budget)
	for i := range c.flights {
		c.flights[i].calls = map[cacheKey]*flight{}
	}
	return c
}

// Resize sets the budget in bytes. What is above it goes at once.
func (c *Cache) Resize(budget int64) {
	budget = max(budget, 0)
	c.budget.Store(budget)
	c.blocks.SetMaximum(uint64(budget))
	c.blocks.CleanUp()
}

// CacheStats is what a cache did and what it holds.
type CacheStats struct {
	Hits, Misses uint64 // look-ups, but for those with NoCacheFill
	Evictions    uint64 // blocks that went for lack of room
	Blocks       int
	Bytes        int64
	Budget       int64
}

// Add adds the figures of another cache.
func (s *CacheStats) Add(o *CacheStats) {
	s.Hits, s.Misses, s.Evictions = s.Hits+o.Hits, s.Misses+o.Misses, s.Evictions+o.Evictions
	s.Blocks, s.Bytes, s.Budget = s.Blocks+o.Blocks, s.Bytes+o.Bytes, s.Budget+o.Budget
}

// Stats returns the counters since the cache was made.
func (c *Cache) Stats() CacheStats {
	s := c.counter.Snapshot()
	return CacheStats{
		Hits: s.Hits, Misses: s.Misses, Evictions: s.Evictions,
		Blocks: c.blocks.EstimatedSize(),
		Bytes:  int64(c.blocks.WeightedSize()),
		Budget: c.budget.Load(),
	}
}

// entryOverhead is what a block in the cache takes beside its bytes: its
// node of 88 bytes, its share of the hash table, of the policy's sketch.
const entryOverhead = 160

func cost(p []byte) int64 { return min(int64(cap(p))+entryOverhead, math.MaxUint32) }

func (c *Cache) get(k cacheKey) ([]byte, bool) { return c.blocks.GetIfPresent(k) }

// peek is get without a trace in counters and policy, for readers that must
// not make blocks look wanted.
func (c *Cache) peek(k cacheKey) ([]byte, bool) {
	e, ok := c.blocks.GetEntryQuietly(k)
	return e.Value, ok
}

func (c *Cache) put(k cacheKey, p []byte) {
	if cost(p) <= c.budget.Load()/blockShareMax {
		c.blocks.Set(k, p)
	}
}

func (c *Cache) drop(k cacheKey) { c.blocks.Invalidate(k) }

// load returns the block of k, which was not in the cache, and puts it
// there. Callers who miss the same block at once wait for one read. read runs
// outside of all locks of the cache, with the caller's goroutine.
func (c *Cache) load(k cacheKey, read func() ([]byte, error)) ([]byte, error) {
	s := &c.flights[mix(uint64(k.off)^k.file)%flightShards]
	s.mu.Lock()
	if f, ok := s.calls[k]; ok {
		s.mu.Unlock()
		<-f.done
		return f.block, f.err
	}
	f := &flight{done: make(chan struct{}), err: errFlight}
	s.calls[k] = f
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.calls, k)
		s.mu.Unlock()
		close(f.done)
	}()
	f.block, f.err = read()
	if f.err == nil {
		c.put(k, f.block)
	}
	return f.block, f.err
}

// flightShards spreads the reads under way over as many locks. 16: a read
// takes tens of microseconds, a lock tens of nanoseconds.
const flightShards = 16

type flightShard struct {
	// mu guards calls. Never held across a read.
	mu    sync.Mutex
	calls map[cacheKey]*flight
}

// flight is one read that others wait for. Its fields are set before done is
// closed.
type flight struct {
	done  chan struct{}
	block []byte
	err   error
}

// errFlight is what waiters get if the read they waited for panicked.
var errFlight = errors.New("read by another iterator was cut short")
