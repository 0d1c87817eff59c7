package tablet

import (
	"context"
	"errors"
	"math"

	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/tablet/sstable"
)

// ReserveCache reserves bytes of CacheBytes for purposes other than reads, and replaces the previous
// reservation. The block cache shrinks accordingly, by seven eighths at most.
func (s *Server) ReserveCache(bytes int64) { s.readMemory.SetReserved(bytes) }

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
		sources = append(sources, boundedSource(f.numbered(it), f.meta.Start, f.meta.End))
	}
	return sources, large
}

// mergeableRange returns the range [from, to) of files that a compaction may read at once in the given
// memory (I13). If that does not suffice for all, it is the range of two or more files for which the fewest bytes
// are rewritten per file removed. Huge values are then not rewritten whenever a file is added.
func mergeableRange(files []*file, memory int64) (from, to int) {
	if len(files) <= 2 || mergeBytes(files) <= memory {
		return 0, len(files)
	}
	least := math.Inf(1)
	for i := range len(files) - 1 {
		left, bytes, j := memory, int64(0), i
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
// compaction could not read its input at once in the given memory: the files of each group or, if families move, of all
// groups. The group is nil if it can, or if no group has two files.
func oversizedGroup(v *view, move bool, memory int64) (most *group, from, to int) {
	sum := int64(0)
	for i := range v.groups {
		g := &v.groups[i]
		sum += mergeBytes(g.files)
		if from, to := mergeableRange(g.files, memory); to-from < len(g.files) {
			return g, from, to
		}
		if most == nil || len(g.files) > len(most.files) {
			most = g
		}
	}
	if move && sum > memory && len(most.files) > 1 {
		return most, 0, len(most.files)
	}
	return nil, 0, 0
}

// acquireMergeable acquires a view whose files a major compaction can read at once, after merging
// files where there were too many. mu is held.
func (c *mergeCompactor) acquireMergeable(ctx context.Context) (*view, error) {
	t := c.tablet
	for {
		v, err := t.views.acquireFiles()
		if err != nil {
			return nil, errUnloaded
		}
		g, from, to := oversizedGroup(v, v.hasMovedFamilies(t.schema.Load()), t.server.cfg.CompactionMemory)
		if g == nil {
			return v, nil
		}
		err = c.mergeFiles(ctx, v, g, from, to)
		v.release()
		if err != nil {
			return nil, err
		}
	}
}

// Enter implements sstable.Gate for a read. If several files have a large entry next, they hold as
// many in memory as fit the reservation for the largest. The others keep only the key, and load the
// entry again when its turn comes.
func (r *rows) Enter(bytes int) error {
	if err := r.hold(bytes); err != nil {
		return err
	}
	if int64(bytes)+r.largeBytes() > r.reserved {
		for _, it := range r.iters {
			it.ReleaseValue()
		}
	}
	return nil
}

// largeBytes returns the memory of the blocks of large entries that the iterators hold.
func (r *rows) largeBytes() (held int64) {
	for _, it := range r.iters {
		held += int64(it.LargeBytes())
	}
	return held
}

// hold extends the reservation to that of a read of the given bytes. Errors: errNoMemory, those of
// reserve.
func (r *rows) hold(bytes int) (err error) {
	more := r.gate.Needs(bytes) - r.reserved
	switch {
	case more <= 0:
	case r.gate.TryReserve(more):
		r.reserved += more
	case r.yields:
		r.lacking = bytes
		return errNoMemory
	default:
		// two reads that held a part each would wait for each other
		r.releaseMemory()
		if r.turns != nil {
			r.turns.End() // reads that hold the memory may wait for a turn
		}
		if r.reserved, err = r.reserve(r.ctx, bytes); err != nil {
			return err
		}
	}
	r.covered = max(r.covered, int64(bytes))
	return nil
}

// holdRow is hold for a row of which the given bytes are kept. Up to the size of a usual block it
// reserves nothing.
func (r *rows) holdRow(bytes int64) error {
	if bytes <= r.covered+sstable.GateBytes {
		return nil
	}
	err := r.hold(int(bytes) + sstable.GateBytes)
	if err == errNoMemory {
		r.lacking *= 2 // the row may have more: do not start over for each part
	}
	return err
}

// emitted releases the reservation of a scan for a finished row, unless it has reached large cells
// of the next.
func (r *rows) emitted() {
	if r.reserved > 0 && r.largeBytes() == 0 {
		r.releaseMemory()
	}
}

// errNoMemory ends an attempt of a read that yields: it waits for memory in awaitMemory and starts
// over. Meanwhile it holds no view, and so no memtables that are written out while it waits.
var errNoMemory = errors.New("no memory for a large cell")

// lacksMemory reports whether err is errNoMemory.
func lacksMemory(err error) bool { return err != nil && errors.Is(err, errNoMemory) }

// awaitMemory waits for the memory that the last attempt lacked, and keeps it for the next. Errors:
// as reserve.
func (r *rows) awaitMemory(ctx context.Context) (err error) {
	if r.reserved, err = r.reserve(ctx, r.lacking); err == nil {
		r.covered = int64(r.lacking)
	}
	return err
}

// reserve waits for memory. Errors: those of the gate.
func (r *rows) reserve(ctx context.Context, bytes int) (int64, error) {
	defer r.trace.Since(trace.ReadSpace, r.trace.Now())
	return r.gate.Reserve(ctx, bytes)
}

// releaseMemory releases the read's reservation.
func (r *rows) releaseMemory() {
	if r.reserved > 0 {
		r.gate.Release(r.reserved)
	}
	r.reserved, r.covered = 0, 0
}
