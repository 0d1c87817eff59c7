package tablet

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/steledb/stele/tablet/sstable"
)

// propLargest is the property of an SSTable that has the bytes of its largest value, as a
// uvarint. A file that was written before there was such a property has none.
const propLargest = "tablet.largest"

// largestValue returns the bytes of the largest value in a file, 0 if it does not tell.
func largestValue(t *sstable.Table) (int64, error) {
	p, ok := t.Properties()[propLargest]
	if !ok {
		return 0, nil
	}
	largest, n := binary.Uvarint(p)
	if n != len(p) || largest > 1<<32 {
		return 0, fmt.Errorf("sstable %s: property %s is malformed", t.Name(), propLargest)
	}
	return int64(largest), nil
}

// mergeBytes is about what a compaction has of the file in memory: its largest block, as it is stored and
// decoded, and what is read ahead.
func (f *file) mergeBytes() int64 { return 2*f.largest + min(readAheadBytes, f.bytes) }

func mergeBytes(files []*file) (n int64) {
	for _, f := range files {
		n += f.mergeBytes()
	}
	return n
}

// writeBytes is what a compaction has in memory of the largest value that it writes: the block and its compressed form.
func writeBytes(largest int64) int64 { return 2 * largest }

// rewriteBytes is what a compaction of the files has in memory, about, and room the bytes of large values of them that it
// keeps at a time: all if limit, in bytes, is enough for that, one at least.
func rewriteBytes(files []*file, limit int64) (n, room int64) {
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

// letGo is the gate of iterators that together keep room bytes of large blocks, one block at least. What they let go of is read
// again when its turn comes.
type letGo struct {
	room  int64
	iters []*sstable.Iter
}

// Enter implements sstable.Gate.
func (g *letGo) Enter(bytes int) error {
	held := int64(bytes)
	for _, it := range g.iters {
		held += int64(it.LargeBytes())
	}
	if held > g.room {
		for _, it := range g.iters {
			it.LetGo()
		}
	}
	return nil
}

func (g *letGo) close() {
	for _, it := range g.iters {
		it.Close()
	}
}

// rewriteSources returns the entries of the files for a compaction, which keeps room bytes of large values at a time. step is told of what is
// read.
func rewriteSources(files []*file, room int64, step func(bytes int)) (sources []source, large *letGo) {
	large = &letGo{room: room}
	for _, f := range files {
		it := f.table.NewIter(sstable.IterOptions{NoCacheFill: true, ReadAheadBytes: readAheadBytes, Loaded: step, Gate: large})
		large.iters = append(large.iters, it)
		sources = append(sources, boundedSource(it, f.meta.Start, f.meta.End))
	}
	return sources, large
}

// compactionMemory acquires the memory of a compaction that takes so many bytes. The block cache gives way to what CompactionMemory is
// not enough for.
func (s *Server) compactionMemory(ctx context.Context, bytes int64) (release func(), err error) {
	share := min(bytes, s.cfg.CompactionMemory)
	if err := s.merging.Acquire(ctx, share); err != nil {
		return nil, err
	}
	s.memory.borrow(bytes - share)
	return func() {
		s.memory.borrow(share - bytes)
		s.merging.Release(share)
	}, nil
}

// recoveryMemory acquires the memory of a load that has so many bytes of sorted runs in memory; one of more than RecoveryMemory is
// alone. The block cache gives way to all of it.
func (s *Server) recoveryMemory(ctx context.Context, bytes int64) (release func(), err error) {
	share := min(bytes, s.cfg.RecoveryMemory)
	if err := s.recovering.Acquire(ctx, share); err != nil {
		return nil, context.Cause(ctx)
	}
	s.memory.borrow(bytes)
	return func() {
		s.memory.borrow(-bytes)
		s.recovering.Release(share)
	}, nil
}

// together returns which of the files, a run [from, to) of them, a compaction may read at once (I13): all, if there is memory
// for that, or else two or more of which the fewest bytes are rewritten for each file that goes, so that huge values
// are not rewritten whenever a file joins.
func (s *Server) together(files []*file) (from, to int) {
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

// tooMany returns a group of v and which of its files are to be merged first, as a major compaction could not
// read what it reads at once: the files of each group or, if families are to move, of all. The group is nil if it can, or if
// no group has two files.
func (s *Server) tooMany(v *view, move bool) (most *group, from, to int) {
	sum := int64(0)
	for i := range v.groups {
		g := &v.groups[i]
		sum += mergeBytes(g.files)
		if from, to := s.together(g.files); to-from < len(g.files) {
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

// acquireFew acquires a view of which a major compaction can read the files at once, after it has merged
// those that were too many. mergeMu is held.
func (t *Tablet) acquireFew(ctx context.Context) (*view, error) {
	for {
		v, err := t.acquireFiles()
		if err != nil {
			return nil, errUnloaded
		}
		g, from, to := t.server.tooMany(v, v.hasStrays(t.schema.Load()))
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
