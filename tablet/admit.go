package tablet

import (
	"bytes"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/memtable"
)

// overloadRetry is the retry-after of a rejected write: about the duration of one minor compaction.
const overloadRetry = 500 * time.Millisecond

// rowMutationBytes returns the approximate memory of rm in the memtable. Every entry there has a
// whole key, including the row's, in which zero bytes are escaped as two.
func rowMutationBytes(rm *table.RowMutation) int64 {
	const entry = 96 // rest of the key, node, alignment
	row := escapedLen(rm.Row)
	n := int64(0)
	for i := range rm.Mutations {
		m := &rm.Mutations[i]
		n += row + escapedLen(m.Qualifier) + int64(len(m.Family)+len(m.Value)) + entry
	}
	return n
}

// chargeBytes returns the memory that rm is charged until it is in the memtable. It is its size
// there and its encoded form, plus the part above LogBatchBytes, since a mutation larger than a log
// batch has a batch to itself. The additional charges leave half of the memory to others; otherwise
// rm would wait forever while they write.
func (s *Server) chargeBytes(rm *table.RowMutation) int64 {
	n := rowMutationBytes(rm)
	return n + max(0, min(n+max(0, n-s.cfg.LogBatchBytes), s.cfg.MemtablesBytesMax/2-n))
}

func escapedLen(b []byte) int64 { return int64(len(b) + bytes.Count(b, []byte{0})) }

// checked returns the mutation as a caller with that access may make it.
func (s *Server) checked(sc *schema, rm *table.RowMutation, a Access) (*table.RowMutation, error) {
	if a != nil {
		return a.Write(sc.table, rm)
	}
	return rm, rm.Validate(sc.table, s.limits)
}

// admit waits until there is memory for a checked mutation, and charges it. An admitted mutation
// must be uncharged. admit does not wait while the tablet accepts no writes: the error is errFenced
// then.
func (s *Server) admit(t *Tablet, rm *table.RowMutation) error {
	n := rowMutationBytes(rm)
	if n > s.mutationMax() {
		return &table.LimitError{What: "row mutation bytes in memory (each mutation counts the row key)", Limit: s.mutationMax(), Got: n}
	}
	n = s.chargeBytes(rm)
	if s.tryCharge(t, n) {
		return nil
	}
	s.stats.stalls.Add(1)
	s.waiters.Add(1)
	defer s.waiters.Add(-1)
	deadline := time.NewTimer(s.cfg.OverloadWait)
	defer deadline.Stop()
	for {
		freed := s.memorySignal()
		if s.tryCharge(t, n) {
			return nil
		}
		if t.fence.Load() != nil {
			return errFenced
		}
		select {
		case <-freed:
		case <-s.closing:
			return ErrClosed
		case <-deadline.C:
			s.stats.overloads.Add(1)
			if err := s.writesBlocked(); err != nil {
				return err
			}
			return &api.OverloadedError{Reason: s.overloadReason(t), RetryAfter: overloadRetry}
		}
	}
}

// mutationMax is the largest memory of one row mutation. It is held by one memtable, so it is
// bounded by the size of a memtable and by the memory for all of them.
func (s *Server) mutationMax() int64 {
	return min(max(s.cfg.MemtablesBytesMax, 2*s.limits.ValueBytes), memtable.BytesMax/2)
}

// tryCharge reserves n bytes of the write memory if they are free. A mutation larger than all of it
// is admitted when nothing else is charged.
func (s *Server) tryCharge(t *Tablet, n int64) bool {
	if t.highPriority {
		s.charged.Add(n)
		return true
	}
	if t.stalled.Load() {
		return false
	}
	// At most half, so that writes continue however long a read takes.
	lingering := min(s.lingering.Load(), s.cfg.MemtablesBytesMax/2)
	used := s.memtables.Load() + s.charged.Load() + lingering
	if used > 0 && used+n > s.cfg.MemtablesBytesMax {
		s.pressed.Store(true)
		s.minorQueue.WakeUp()
		return false
	}
	s.charged.Add(n)
	return true
}

func (s *Server) uncharge(n int64) {
	s.charged.Add(-n)
	if s.waiters.Load() > 0 {
		s.signalMemory()
	}
}

func (s *Server) overloadReason(t *Tablet) string {
	if t.stalled.Load() {
		return fmt.Sprintf("compactions are behind: a locality group of tablet %d has %d files", t.id, s.cfg.FilesMax)
	}
	return fmt.Sprintf("memtables use %d of %d bytes and are being written out, and reads hold %d bytes of written ones",
		s.memtables.Load(), s.cfg.MemtablesBytesMax, s.lingering.Load())
}

// memorySignal returns a channel that is closed when memory may have become free.
func (s *Server) memorySignal() <-chan struct{} {
	s.memoryFreed.Lock()
	defer s.memoryFreed.Unlock()
	return s.memoryFreed.c
}

// signalMemory wakes the writers that wait for memory.
func (s *Server) signalMemory() {
	s.memoryFreed.Lock()
	close(s.memoryFreed.c)
	s.memoryFreed.c = make(chan struct{})
	s.memoryFreed.Unlock()
}

// memtablesGrew adds n bytes to the memory of memtables. Above five eighths of the limit it has the
// largest memtable written out, so that the remaining memory fills while the disk works.
func (s *Server) memtablesGrew(n int64) {
	if n > 0 && s.memtables.Add(n) > s.cfg.MemtablesBytesMax*5/8 {
		s.minorQueue.WakeUp()
	}
}
