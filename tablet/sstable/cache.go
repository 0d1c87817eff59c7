package sstable

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
)

// Cache is a cache of blocks of any number of tables, and of entries of rows that are read
// repeatedly (the scan cache), within one budget of bytes. Its policy weighs frequency and recency
// (W-TinyLFU), so one long scan does not evict everything. It is safe for concurrent use.
type Cache struct {
	blocks, rows level
	nextNum      atomic.Uint64
	budget       atomic.Int64
	door         *doorkeeper // of rows
	flights      [flightShards]flightShard
}

// level is one of the two levels of a cache.
type level struct {
	*otter.Cache[cacheKey, []byte]
	counter *stats.Counter
}

// cacheKey identifies a block by its file and its offset in the file.
type cacheKey struct {
	file uint64
	off  int64
}

// ownNumBit separates the file numbers assigned by the cache from those of its users.
const ownNumBit = 1 << 63

// Assumed sizes of a block and a row, and the limits of a level's initial capacity in entries.
const (
	blockSizeEstimate = 16 << 10
	rowSizeEstimate   = 1 << 10
	entriesMin        = 64
	entriesMax        = 1 << 20
)

// newLevel returns a level with a budget of bytes, for entries of about guess bytes.
func newLevel(bytes, guess int64) level {
	counter := stats.NewCounter()
	return level{otter.Must(&otter.Options[cacheKey, []byte]{
		MaximumWeight: uint64(max(bytes, 1)), // 1 fits no entry
		// The policy loses its frequency counts when the number of entries grows beyond this.
		InitialCapacity: int(min(max(bytes/guess, entriesMin), entriesMax)),
		Weigher:         func(_ cacheKey, p []byte) uint32 { return uint32(cost(p)) },
		StatsRecorder:   counter,
	}), counter}
}

func (l *level) resize(bytes int64) {
	l.SetMaximum(uint64(bytes))
	l.CleanUp()
}

// rowShare is the divisor of the budget for rows: a quarter. Hot rows of 1 KiB need a 64th of the
// memory of their blocks. If all rows are equally hot, blocks are worth more.
const rowShare = 4

// blockShareMax is the divisor of the budget for one block. 8: a huge value must not evict
// everything else.
const blockShareMax = 8

// NewCache returns a cache of at most budget bytes, which includes the overhead per block. A budget
// of 0 or less caches nothing.
func NewCache(budget int64) *Cache {
	budget = max(budget, 0)
	c := &Cache{
		blocks: newLevel(budget-budget/rowShare, blockSizeEstimate), rows: newLevel(budget/rowShare, rowSizeEstimate),
		door: newDoorkeeper(budget / rowShare),
	}
	c.budget.Store(budget)
	for i := range c.flights {
		c.flights[i].calls = map[cacheKey]*flight{}
	}
	return c
}

// Resize sets the budget in bytes and evicts what exceeds it.
func (c *Cache) Resize(budget int64) {
	budget = max(budget, 0)
	c.budget.Store(budget)
	c.blocks.resize(budget - budget/rowShare)
	c.rows.resize(budget / rowShare)
}

// CacheStats are counters and current figures of a cache.
type CacheStats struct {
	Hits, Misses uint64 // lookups of blocks, without those with NoCacheFill
	// RowHits and RowMisses are lookups in the scan cache, for files of which it has had entries.
	RowHits, RowMisses uint64
	Evictions          uint64 // blocks and rows evicted for lack of space
	Blocks, Rows       int
	Bytes              int64
	Budget             int64
}

// Add adds the figures of another cache.
func (s *CacheStats) Add(o *CacheStats) {
	s.Hits, s.Misses, s.Evictions = s.Hits+o.Hits, s.Misses+o.Misses, s.Evictions+o.Evictions
	s.RowHits, s.RowMisses = s.RowHits+o.RowHits, s.RowMisses+o.RowMisses
	s.Blocks, s.Rows, s.Bytes, s.Budget = s.Blocks+o.Blocks, s.Rows+o.Rows, s.Bytes+o.Bytes, s.Budget+o.Budget
}

// Stats returns the counters since the cache was created.
func (c *Cache) Stats() CacheStats {
	b, r := c.blocks.counter.Snapshot(), c.rows.counter.Snapshot()
	return CacheStats{
		Hits: b.Hits, Misses: b.Misses, RowHits: r.Hits, RowMisses: r.Misses, Evictions: b.Evictions + r.Evictions,
		Blocks: c.blocks.EstimatedSize(), Rows: c.rows.EstimatedSize(),
		Bytes:  int64(c.blocks.WeightedSize() + c.rows.WeightedSize()),
		Budget: c.budget.Load(),
	}
}

// entryOverhead is the memory of a cached block beside its bytes: its node of 88 bytes, and its
// share of the hash table and of the policy's sketch.
const entryOverhead = 160

func cost(p []byte) int64 { return min(int64(cap(p))+entryOverhead, math.MaxUint32) }

func (c *Cache) get(k cacheKey) ([]byte, bool) { return c.blocks.GetIfPresent(k) }

// peek is get without updating counters and policy, for readers that must not make blocks look hot.
func (c *Cache) peek(k cacheKey) ([]byte, bool) {
	e, ok := c.blocks.GetEntryQuietly(k)
	return e.Value, ok
}

func (c *Cache) put(k cacheKey, p []byte) {
	if cost(p) <= c.budget.Load()/blockShareMax {
		c.blocks.Set(k, p)
	}
}

// inheritSets is how often a block is set that replaces blocks of other files. The policy admits a
// new entry only if it was requested more often than its victim; this one is as hot as the blocks
// that it replaces.
const inheritSets = 3

// inherit adds a block that has not been requested, in place of blocks that were.
func (c *Cache) inherit(k cacheKey, p []byte) {
	for range inheritSets {
		c.put(k, p)
	}
}

// hasSpace reports whether a block of the given size fits without evicting others.
func (c *Cache) hasSpace(bytes int) bool {
	return c.blocks.WeightedSize()+uint64(bytes)+entryOverhead <= c.blocks.GetMaximum()
}

// newNum returns an unused file number.
func (c *Cache) newNum() uint64 { return c.nextNum.Add(1) | ownNumBit }

func (c *Cache) drop(k cacheKey) { c.blocks.Invalidate(k) }

// load reads the block of k after a cache miss and adds it to the cache. Concurrent misses of the
// same block share one read. read runs in the caller's goroutine without locks of the cache.
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

// flightShards is the number of locks for reads in progress. 16: a read takes tens of microseconds,
// a lock tens of nanoseconds.
const flightShards = 16

type flightShard struct {
	// mu guards calls. Never held across a read.
	mu    sync.Mutex
	calls map[cacheKey]*flight
}

// flight is a read that other callers wait for. Its fields are set before done is closed.
type flight struct {
	done  chan struct{}
	block []byte
	err   error
}

// errFlight is the result for waiters if the read panicked.
var errFlight = errors.New("read by another iterator was aborted")
