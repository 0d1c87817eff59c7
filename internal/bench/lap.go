package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// family is the family of the values, whose qualifier is empty.
const family = "data"

// scanUnit is the number of rows of a scan per latency sample. A node sends some hundreds at a
// time, so most single rows arrive without a wait.
const scanUnit = 1000

// A dataset is a table of rows.
type dataset struct {
	table     *client.Table
	rows      uint64
	values    values
	inMemory  bool
	written   bool // completely
	compacted bool // compacted into SSTables
}

// action is the operation of a lap.
type action int

const (
	write action = iota
	read
	scan
)

// A lap is one or more passes of all clients over the rows of a dataset. Passes repeat until
// atLeast has elapsed.
type lap struct {
	pace
	data    *dataset
	do      action
	order   func(pass uint64) order
	atLeast time.Duration

	ranges *ranges
	began  time.Time
	ops    atomic.Int64
	bad    atomic.Int64
}

func (l *lap) progress() *progress { return &progress{&l.ops, int64(l.data.rows)} }

// A measure is the result of a lap.
type measure struct {
	ops, bad int64
	took     time.Duration
	latency  *hdrhistogram.Histogram // in ns
	kinds    []Kind
}

// newHistogram returns a histogram for latencies of 1 ns to 10 minutes with a precision of 1%. With
// another digit, the histograms of 64 clients exceed the processor's cache, and counting took 7% of
// the clients' time.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(10*time.Minute), 2) }

// run runs the lap. An error of any client ends it.
func (l *lap) run(ctx context.Context) (measure, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unit := uint64(l.batch)
	if l.do == scan {
		unit = scanUnit
	}
	l.ranges = newRanges(l.data.rows, l.clients, unit)
	m := measure{latency: newHistogram()}
	var merging sync.Mutex
	var group sync.WaitGroup
	l.began = time.Now()
	for id := range l.clients {
		group.Go(func() {
			w := l.newWorker(id)
			if err := w.run(ctx); err != nil {
				cancel(err)
			}
			merging.Lock()
			defer merging.Unlock()
			m.latency.Merge(w.latency)
		})
	}
	group.Wait()
	m.took = time.Since(l.began)
	m.ops, m.bad = l.ops.Load(), l.bad.Load()
	return m, context.Cause(ctx)
}

// take returns the next range and its pass, or ok=false at the end of the lap.
func (l *lap) take() (pass, from, to uint64, ok bool) {
	pass, from, to = l.ranges.take()
	return pass, from, to, pass == 0 || time.Since(l.began) < l.atLeast
}

// A worker is one client of a lap with its buffers.
type worker struct {
	lap     *lap
	id      int
	calls   int64
	latency *hdrhistogram.Histogram
	place   []uint64 // row numbers of the current call
	key     []byte
	rows    []string
	changes []*client.RowMutation
	values  [][]byte
}

func (l *lap) newWorker(id int) *worker {
	w := &worker{lap: l, id: id, latency: newHistogram(), place: make([]uint64, l.batch), rows: make([]string, l.batch)}
	if l.do == write {
		for range l.batch {
			w.changes = append(w.changes, &client.RowMutation{})
			w.values = append(w.values, make([]byte, l.data.values.size))
		}
	}
	return w
}

func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		pass, from, to, ok := w.lap.take()
		if !ok {
			return nil
		}
		var err error
		if w.lap.do == scan {
			err = w.scan(ctx, from, to)
		} else {
			err = w.visit(ctx, w.lap.order(pass), from, to)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// visit processes the rows at [from, to) of an order, one batch per call.
func (w *worker) visit(ctx context.Context, o order, from, to uint64) error {
	for from < to && ctx.Err() == nil {
		n := min(uint64(w.lap.batch), to-from)
		for i := range n {
			w.place[i] = o.at(from + i)
			w.prepare(int(i))
		}
		begin := w.lap.due(ctx, w.lap.began, w.id, w.calls)
		w.calls++
		if err := w.call(ctx, int(n)); err != nil {
			return err
		}
		w.record(time.Since(begin))
		w.lap.ops.Add(int64(n))
		from += n
	}
	return ctx.Err()
}

// prepare builds the i-th row of a call.
func (w *worker) prepare(i int) {
	w.key = appendKey(w.key[:0], w.place[i])
	w.rows[i] = string(w.key)
	if w.lap.do == write {
		w.lap.data.values.fill(w.values[i], w.place[i])
		w.changes[i].Reset(w.rows[i])
		w.changes[i].Add(table.Set(family, nil, table.ServerTimestamp, w.values[i]))
	}
}

func (w *worker) record(d time.Duration) { record(w.latency, d) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(int64(d), h.HighestTrackableValue()))
}

// call makes a call with the first n rows.
func (w *worker) call(ctx context.Context, n int) error {
	t := w.lap.data.table
	switch {
	case w.lap.do == write && n == 1:
		return t.Apply(ctx, w.changes[0])
	case w.lap.do == write:
		return t.ApplyAll(ctx, w.changes[:n])
	case n == 1:
		row, err := t.Get(ctx, w.rows[0])
		if err == nil {
			w.check(row, 0)
		}
		return err
	}
	rows, err := t.GetAll(ctx, w.rows[:n])
	if err == nil {
		for i, row := range rows {
			w.check(row, i)
		}
	}
	return err
}

// check counts the i-th row of a call as bad if it differs from the one written (BN4).
func (w *worker) check(row *table.Row, i int) {
	if row == nil || string(row.Key) != w.rows[i] || !w.lap.data.goodCells(row, w.place[i]) {
		w.lap.bad.Add(1)
	}
}

func (d *dataset) goodCells(row *table.Row, i uint64) bool {
	return len(row.Cells) == 1 && row.Cells[0].Family == family && d.values.good(row.Cells[0].Value, i)
}

// scan scans the rows [from, to).
func (w *worker) scan(ctx context.Context, from, to uint64) error {
	s := w.lap.data.table.Scan(ctx, client.Start(string(appendKey(nil, from))), client.End(string(appendKey(nil, to))))
	defer s.Close()
	begin, next := time.Now(), from
	for ; s.Next(); next++ {
		row := s.Row()
		w.key = appendKey(w.key[:0], next)
		if string(row.Key) != string(w.key) {
			return fmt.Errorf("scan from row %016d: got row %q, want %q", from, row.Key, w.key)
		}
		if !w.lap.data.goodCells(row, next) {
			w.lap.bad.Add(1)
		}
		if (next-from+1)%scanUnit == 0 {
			now := time.Now()
			w.record(now.Sub(begin))
			w.lap.ops.Add(scanUnit)
			begin = now
		}
	}
	if rest := int64((next - from) % scanUnit); rest > 0 {
		w.lap.ops.Add(rest)
		if next-from < scanUnit {
			w.record(time.Since(begin)) // the dataset is smaller than a unit
		}
	}
	w.lap.bad.Add(int64(to - next))
	return s.Err()
}
