package tablet

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/table"
)

// SplitCandidate describes a tablet that should be split because of its size or its load.
type SplitCandidate struct {
	Ref          Ref
	ID           uint64 // of the tablet, for logs
	Bytes        int64
	OpsPerSecond int64
	// At is a row that divides the load; nil if the tablet should be split by size.
	At []byte
}

// load measures the operations on a tablet.
type load struct {
	ops    atomic.Int64
	rate   atomic.Int64 // operations per second in the last period
	rows   atomic.Pointer[recentRows]
	before int64 // ops at the end of the last period; used by timerLoop only
	busy   int   // consecutive periods with more than its share; used by timerLoop only
}

// recentRows are sampled rows of recent operations.
type recentRows [loadRows]atomic.Pointer[[]byte]

const (
	// loadRows is the number of sampled rows, one of every loadSample operations: those of a minute
	// at 1,000 operations a second.
	loadRows, loadSample = 64, 1024

	// busyPeriods is the number of consecutive periods in which a tablet must have more than its
	// share before it is split. Half a minute, so that a burst does not split a tablet.
	busyPeriods = 3
)

// note counts an operation on a row.
func (l *load) note(row []byte) {
	if n := l.ops.Add(1); n%loadSample == 0 && len(row) > 0 {
		// not row itself: taking its address would cost every call an allocation
		kept := bytes.Clone(row)
		if l.rows.Load() == nil {
			l.rows.CompareAndSwap(nil, new(recentRows))
		}
		l.rows.Load()[n/loadSample%loadRows].Store(&kept)
	}
}

// middle returns a row that divides the recent operations so that each half has at least a quarter
// of them. It returns nil if there were too few, or most were on one row.
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
		// Many of them are on mid itself, which may belong to the upper half.
		if n := upper(rows, below); len(below) == 0 || n < len(rows)/4 {
			return nil
		}
		return below
	}
	return mid
}

// upper returns the number of sorted rows at or below row.
func upper(rows [][]byte, row []byte) int {
	n, found := slices.BinarySearchFunc(rows, row, bytes.Compare)
	for found && n < len(rows) && bytes.Equal(rows[n], row) {
		n++
	}
	return n
}

// splitter finds tablets that should be split.
type splitter struct {
	cfg    *Config
	limits *table.Limits
	served *TabletMap
}

// check passes the tablets that should be split to OnSplitCandidate. elapsed is the time since
// the last call.
func (p *splitter) check(elapsed time.Duration) {
	all := p.served.all()
	total := int64(0)
	for _, t := range all {
		ops := t.load.ops.Load()
		rate := int64(float64(ops-t.load.before) / elapsed.Seconds())
		t.load.before = ops
		t.load.rate.Store(rate)
		total += rate
	}
	if p.cfg.OnSplitCandidate == nil {
		return
	}
	for _, t := range all {
		rate := t.load.rate.Load()
		w := SplitCandidate{Ref: t.ref(), ID: t.id, Bytes: t.views.bytes(), OpsPerSecond: rate}
		if p.cfg.SplitBytes > 0 && w.Bytes >= p.cfg.SplitBytes {
			p.cfg.OnSplitCandidate(w)
			continue
		}
		// A tablet's share is twice the mean. With three tablets or fewer there is no such limit.
		if p.cfg.SplitOps <= 0 || rate < p.cfg.SplitOps || len(all) > 3 && rate*int64(len(all)) < 2*total {
			t.load.busy = 0
			continue
		}
		if t.load.busy++; t.load.busy < busyPeriods {
			continue
		}
		if w.At = t.load.middle(); w.At != nil && p.checkEnd(w.At) == nil && t.holds(w.At) && !bytes.Equal(w.At, t.end) {
			t.load.busy = 0
			p.cfg.OnSplitCandidate(w)
		}
	}
}

// checkEnd checks that a tablet may end at a row.
func (p *splitter) checkEnd(row []byte) error {
	if limit := p.cfg.SplitRowBytes; limit > 0 && int64(len(row)) > limit {
		return &table.LimitError{What: "split row bytes", Limit: limit, Got: int64(len(row))}
	}
	return p.limits.CheckRowKey(row)
}
