package sstable

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
)

// Cache holds blocks of any number of tables in memory, and the entries of
// rows that are asked for again and again (the scan cache), within one budget of
// bytes. It keeps what is asked for often and recently (W-TinyLFU), so one
// long scan does not empty it. It is safe for concurrent use.
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

// cacheKey names a block: its file and its offset there.
type cacheKey struct {
	file uint64
	off  int64
}

// ownNumBit sets the file numbers that the cache gives out apart from those
// that its users do.
const ownNumBit = 1 << 63

// The size that a block and a row of a cache are taken to have, and how many a level is made for at least and at most.
const (
	blockGuess   = 16 << 10
	rowGuess     = 1 << 10
	entriesLeast = 64
	entriesMost  = 1 << 20
)

// newLevel returns a level of so many bytes, of entries of about guess bytes.
func newLevel(bytes, guess int64) level {
	counter := stats.NewCounter()
	return level{otter.Must(&otter.Options[cacheKey, []byte]{
		MaximumWeight: uint64(max(bytes, 1)), // 1 is room for none
		// It forgets what was asked for often whenever it finds that it counts more entries than this.
		InitialCapacity: int(min(max(bytes/guess, entriesLeast), entriesMost)),
		Weigher:         func(_ cacheKey, p []byte) uint32 { return uint32(cost(p)) },
		StatsRecorder:   counter,
	}), counter}
}

func (l *level) resize(bytes int64) {
	l.SetMaximum(uint64(bytes))
	l.CleanUp()
}

// rowShare is the part of the budget that rows have: a quarter. Rows of a kilobyte that are hot need a 64th of
// what their blocks do, and if all rows are alike, blocks are worth more.
const rowShare = 4

// blockShareMax is the part of the budget that one block may have. 8: a huge
// value must not push out everything else.
const blockShareMax = 8

// NewCache returns a cache of at most budget bytes, counted as the blocks'
// memory and what it takes to keep them. A budget of 0 or less caches
// nothing.
func NewCache(budget int64) *Cache {
	budget = max(budget, 0)
	c := &Cache{
		blocks: newLevel(budget-budget/rowShare, blockGuess), rows: newLevel(budget/rowShare, rowGuess),
		door: newDoorkeeper(budget / rowShare),
	}
	c.budget.Store(budget)
	for i := range c.flights {
		c.flights[i].calls = map[cacheKey]*flight{}
	}
	return c
}

// Resize sets the budget in bytes. What is above it goes at once.
func (c *Cache) Resize(budget int64) {
	budget = max(budget, 0)
	c.budget.Store(budget)
	c.blocks.resize(budget - budget/rowShare)
	c.rows.resize(budget / rowShare)
}

// CacheStats is what a cache did and what it holds.
type CacheStats struct {
	Hits, Misses uint64 // look-ups of blocks, but for those with NoCacheFill
	// RowHits and RowMisses are look-ups in the scan cache, of files of which it has had something.
	RowHits, RowMisses uint64
	Evictions          uint64 // blocks and rows that went for lack of room
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

// Stats returns the counters since the cache was made.
func (c *Cache) Stats() CacheStats {
	b, r := c.blocks.counter.Snapshot(), c.rows.counter.Snapshot()
	return CacheStats{
		Hits: b.Hits, Misses: b.Misses, RowHits: r.Hits, RowMisses: r.Misses, Evictions: b.Evictions + r.Evictions,
		Blocks: c.blocks.EstimatedSize(), Rows: c.rows.EstimatedSize(),
		Bytes:  int64(c.blocks.WeightedSize() + c.rows.WeightedSize()),
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

// inheritSets is how often a block is set that takes over from others. One that comes for the first time must be asked for more often than
// one that it would push out; this one is as good as those were.
const inheritSets = 3

// inherit puts a block there that nobody has asked for, in the place of others that were asked for.
func (c *Cache) inherit(k cacheKey, p []byte) {
	for range inheritSets {
		c.put(k, p)
	}
}

// hasRoom tells whether a block of so many bytes pushes out none.
func (c *Cache) hasRoom(bytes int) bool {
	return c.blocks.WeightedSize()+uint64(bytes)+entryOverhead <= c.blocks.GetMaximum()
}

// newNum returns a file number that no other table has.
func (c *Cache) newNum() uint64 { return c.nextNum.Add(1) | ownNumBit }

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
