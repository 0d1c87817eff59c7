package tablet

import (
	"bytes"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/memtable"
)

// overloadRetry is what a refused writer is told to wait: about the time that
// a minor compaction of one memtable takes.
const overloadRetry = 500 * time.Millisecond

// rowMutationBytes is about the memory that rm takes in the memtable. Every entry
// there has a whole key, with the row's, in which zero bytes count double.
func rowMutationBytes(rm *table.RowMutation) int64 {
	const entry = 96 // rest of the key, node, and what is lost to alignment
	row := escapedLen(rm.Row)
	n := int64(0)
	for i := range rm.Mutations {
		m := &rm.Mutations[i]
		n += row + escapedLen(m.Qualifier) + int64(len(m.Family)+len(m.Value)) + entry
	}
	return n
}

// chargeBytes is what rm is charged until it is in the memtable: its place there, its coded form, and, as it has a batch of the log to
// itself if it is larger than those are (see Config.LogBatchBytes), that too. What this adds is at most what leaves half of
// the memory to others: it would wait for ever otherwise while they write.
func (s *Server) chargeBytes(rm *table.RowMutation) int64 {
	n := rowMutationBytes(rm)
	return n + max(0, min(n+max(0, n-s.cfg.LogBatchBytes), s.cfg.MemtablesBytesMax/2-n))
}

func escapedLen(b []byte) int64 { return int64(len(b) + bytes.Count(b, []byte{0})) }

// checked returns a mutation as it may be made by one who has that access.
func (s *Server) checked(sc *schema, rm *table.RowMutation, a Access) (*table.RowMutation, error) {
	if a != nil {
		return a.Write(sc.table, rm)
	}
	return rm, rm.Validate(sc.table, s.limits)
}

// admit lets a mutation that was checked in when there is memory for it, and charges it.
// Whatever is admitted must be uncharged. It does not wait while the tablet takes no
// writes: the error is errHalted then.
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
		room := s.roomSignal()
		if s.tryCharge(t, n) {
			return nil
		}
		if t.halted.Load() != nil {
			return errHalted
		}
		select {
		case <-room:
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

// mutationMax is the most memory that one row mutation may take: a memtable holds
// it whole, so it can be no more than a memtable can, nor than there is for all.
func (s *Server) mutationMax() int64 {
	return min(max(s.cfg.MemtablesBytesMax, 2*s.limits.ValueBytes), memtable.BytesMax/2)
}

// tryCharge takes n bytes of the write memory if they are to be had. A mutation
// larger than all of it is let in when nothing else is there.
func (s *Server) tryCharge(t *Tablet, n int64) bool {
	if t.vital {
		s.charged.Add(n)
		return true
	}
	if t.stalled.Load() {
		return false
	}
	// At most half, so that writes go on however long some read takes.
	lingering := min(s.lingering.Load(), s.cfg.MemtablesBytesMax/2)
	used := s.memtables.Load() + s.charged.Load() + lingering
	if used > 0 && used+n > s.cfg.MemtablesBytesMax {
		s.pressed.Store(true)
		s.minorQueue.wakeUp()
		return false
	}
	s.charged.Add(n)
	return true
}

func (s *Server) uncharge(n int64) {
	s.charged.Add(-n)
	if s.waiters.Load() > 0 {
		s.signalRoom()
	}
}

func (s *Server) overloadReason(t *Tablet) string {
	if t.stalled.Load() {
		return fmt.Sprintf("a locality group of tablet %d has %d files and compaction is behind", t.id, s.cfg.FilesMax)
	}
	return fmt.Sprintf("memtables hold %d of %d bytes and are being written out, and reads hold %d of those that were",
		s.memtables.Load(), s.cfg.MemtablesBytesMax, s.lingering.Load())
}

// roomSignal returns a channel that is closed when memory may be had again.
func (s *Server) roomSignal() <-chan struct{} {
	s.room.Lock()
	defer s.room.Unlock()
	return s.room.c
}

// signalRoom wakes the writers that wait for memory.
func (s *Server) signalRoom() {
	s.room.Lock()
	close(s.room.c)
	s.room.c = make(chan struct{})
	s.room.Unlock()
}

// memtablesGrew counts memory that memtables took, and has the largest written
// out before writers must wait: at five eighths, so that the rest of the budget
// fills while the disk works.
func (s *Server) memtablesGrew(n int64) {
	if n > 0 && s.memtables.Add(n) > s.cfg.MemtablesBytesMax*5/8 {
		s.minorQueue.wakeUp()
	}
}
