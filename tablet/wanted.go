package tablet

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"
)

// SplitWanted says that a tablet has grown larger than a tablet should, or that it has
// more to do than the others.
type SplitWanted struct {
	Ref          Ref
	ID           uint64 // of the tablet, for logs
	Bytes        int64
	OpsPerSecond int64
	// At is a row that parts the load; nil if it is the bytes that are to be parted.
	At []byte
}

// load is how much there is to do in a tablet.
type load struct {
	ops    atomic.Int64
	rate   atomic.Int64 // operations per second, of the last period
	rows   atomic.Pointer[lateRows]
	before int64 // ops at the end of the last period; timerLoop's own
	busy   int   // periods in a row with more than its share; timerLoop's own
}

// lateRows are rows of late operations.
type lateRows [loadRows]atomic.Pointer[[]byte]

const (
	// loadRows is how many rows of late operations are kept, one in loadSample: at
	// 1,000 operations a second they are those of a minute.
	loadRows, loadSample = 64, 1024

	// busyPeriods is for how many periods a tablet must have more to do than its share
	// before it is to be split: half a minute, so that a burst is none.
	busyPeriods = 3
)

// note counts an operation on a row.
func (l *load) note(row []byte) {
	if n := l.ops.Add(1); n%loadSample == 0 && len(row) > 0 {
		kept := bytes.Clone(row) // not row itself: its address would cost every call an allocation
		if l.rows.Load() == nil {
			l.rows.CompareAndSwap(nil, new(lateRows))
		}
		l.rows.Load()[n/loadSample%loadRows].Store(&kept)
	}
}

// middle returns a row that parts the late operations, so that each half has a quarter of
// them at least, or nil: if there were too few to tell, or most were about one row.
func (l *load) middle() []byte {
	var rows [][]byte
	late := l.rows.Load()
	if late == nil {
		return nil
	}
	for i := range late {
		if row := late[i].Load(); row != nil {
			rows = append(rows, *row)
		}
	}
	if len(rows) < loadRows/4 {
		return nil
	}
	slices.SortFunc(rows, bytes.Compare)
	mid := rows[(len(rows)-1)/2]
	above := len(rows) - upper(rows, mid)
	if below := rowBelow(mid); above < len(rows)/4 {
		// Much of it is about mid itself: that may go up.
		if n := upper(rows, below); len(below) == 0 || n < len(rows)/4 {
			return nil
		}
		return below
	}
	return mid
}

// upper returns how many of the sorted rows are at or below row.
func upper(rows [][]byte, row []byte) int {
	n, found := slices.BinarySearchFunc(rows, row, bytes.Compare)
	for found && n < len(rows) && bytes.Equal(rows[n], row) {
		n++
	}
	return n
}

// lookForSplits tells the node of the tablets that should be split. elapsed is the
// time since it was called last.
func (s *Server) lookForSplits(elapsed time.Duration) {
	all := s.allTablets()
	total := int64(0)
	for _, t := range all {
		ops := t.load.ops.Load()
		rate := int64(float64(ops-t.load.before) / elapsed.Seconds())
		t.load.before = ops
		t.load.rate.Store(rate)
		total += rate
	}
	if s.cfg.OnSplitWanted == nil {
		return
	}
	for _, t := range all {
		rate := t.load.rate.Load()
		w := SplitWanted{Ref: t.ref(), ID: t.id, Bytes: t.bytes(), OpsPerSecond: rate}
		if s.cfg.SplitBytes > 0 && w.Bytes >= s.cfg.SplitBytes {
			s.cfg.OnSplitWanted(w)
			continue
		}
		// Its share is twice that of the mean; among few tablets any is.
		if s.cfg.SplitOps <= 0 || rate < s.cfg.SplitOps || len(all) > 3 && rate*int64(len(all)) < 2*total {
			t.load.busy = 0
			continue
		}
		if t.load.busy++; t.load.busy < busyPeriods {
			continue
		}
		if w.At = t.load.middle(); w.At != nil && s.checkEnd(w.At) == nil && t.holds(w.At) && !bytes.Equal(w.At, t.end) {
			t.load.busy = 0
			s.cfg.OnSplitWanted(w)
		}
	}
}

// bytes returns about how much the tablet has, in files and memtables.
func (t *Tablet) bytes() int64 {
	v, _, err := t.acquire()
	if err != nil {
		return 0
	}
	defer v.release()
	n := v.memtableBytes()
	for _, g := range v.groups {
		for _, f := range g.files {
			n += f.bytes
		}
	}
	return n
}
