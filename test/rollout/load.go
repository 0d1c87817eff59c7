package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

const (
	// operationTimeout is what the program's own commands give an operation.
	operationTimeout = 30 * time.Second
	// valueBytes is the size of a value: of a few hundred thousand, all fit in the memory of small nodes' machines.
	valueBytes = 200
	// failuresShown is the maximum number of failed operations that each worker reports.
	failuresShown = 5
)

// load is workers that write and read a table.
type load struct {
	t       *client.Table
	workers []*worker
	stopped context.CancelFunc
	running sync.WaitGroup
	began   time.Time // of the phase
}

// worker writes rows of its own, and reads them.
type worker struct {
	l     *load
	id    int
	pause time.Duration

	mu      sync.Mutex
	next    int64          // number of the row that is written next
	unsure  map[int64]bool // writes that were not acknowledged
	done    int64          // operations of this phase
	failed  int64
	slowest time.Duration
}

func newLoad(t *client.Table, workers int, pause time.Duration) *load {
	l := &load{t: t, began: time.Now()}
	for i := range workers {
		l.workers = append(l.workers, &worker{l: l, id: i, pause: pause, unsure: map[int64]bool{}})
	}
	return l
}

func (l *load) start(ctx context.Context) {
	ctx, l.stopped = context.WithCancel(ctx)
	for _, w := range l.workers {
		l.running.Go(func() { w.run(ctx) })
	}
}

// stop ends the load once operations under way have ended.
func (l *load) stop() {
	l.stopped()
	l.running.Wait()
}

// prefix is how a worker's rows begin.
func prefix(worker int) string { return fmt.Sprintf("w%03d-", worker) }

// row is a worker's row of a number: its digits from the last to the first, so that a worker writes to all of its tablets.
func row(worker int, n int64) string {
	digits := []byte(fmt.Sprintf("%09d", n))
	slices.Reverse(digits)
	return prefix(worker) + string(digits)
}

// value is what stands in a row: it is known from the row alone.
func value(row string) []byte {
	sum := fmt.Sprintf("%s %08x ", row, crc32.ChecksumIEEE([]byte(row)))
	return []byte(strings.Repeat(sum, valueBytes/len(sum)+1)[:valueBytes])
}

func sorted(rows []string) []string {
	slices.Sort(rows)
	return slices.Compact(rows)
}

// run writes until ctx ends; each third operation is a read.
func (w *worker) run(ctx context.Context) {
	for i := int64(0); ctx.Err() == nil; i++ {
		began := time.Now()
		var err error
		if i%3 == 2 {
			err = w.read(ctx)
		} else {
			err = w.write(ctx)
		}
		w.note(time.Since(began), err)
		select {
		case <-ctx.Done():
		case <-time.After(w.pause):
		}
	}
}

// write writes the next row. What is under way when the load ends is waited for.
func (w *worker) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operationTimeout)
	defer cancel()
	r := row(w.id, w.next)
	err := w.l.t.Apply(ctx, client.NewRowMutation(r).SetAt(family+":v", 1000, value(r)))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.unsure[w.next] = true
		err = fmt.Errorf("write %s: %w", r, err)
	}
	w.next++
	return err
}

// read reads a row that was acknowledged.
func (w *worker) read(ctx context.Context) error {
	w.mu.Lock()
	n := rand.Int64N(max(w.next, 1))
	known := n < w.next && !w.unsure[n]
	w.mu.Unlock()
	if !known {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operationTimeout)
	defer cancel()
	r := row(w.id, n)
	got, err := w.l.t.Get(ctx, r)
	if err != nil {
		return fmt.Errorf("read %s: %w", r, err)
	}
	return check(r, got)
}

// check returns an error if a row is not what was written.
func check(key string, got *table.Row) error {
	switch {
	case got == nil:
		return fmt.Errorf("row %s was acknowledged, and is not there", key)
	case len(got.Cells) != 1 || string(got.Cells[0].Value) != string(value(key)):
		return fmt.Errorf("row %s is not what was written: %d cells, %q", key, len(got.Cells), got.Cells[0].Value)
	}
	return nil
}

func (w *worker) note(took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done++
	w.slowest = max(w.slowest, took)
	if err == nil {
		return
	}
	if w.failed++; w.failed <= failuresShown {
		fmt.Fprintf(os.Stderr, "%s FAILED after %v: %v\n", time.Now().Format(time.TimeOnly), took.Round(time.Millisecond), err)
	}
}

// phase returns the counts of the present phase, and begins the next one.
func (l *load) phase() string {
	var done, failed int64
	var slowest time.Duration
	for _, w := range l.workers {
		w.mu.Lock()
		done, failed, slowest = done+w.done, failed+w.failed, max(slowest, w.slowest)
		w.done, w.failed, w.slowest = 0, 0, 0
		w.mu.Unlock()
	}
	took := time.Since(l.began)
	l.began = time.Now()
	return fmt.Sprintf("failed %d of %d operations in %.0f s, the slowest took %.2f s", failed, done, took.Seconds(), slowest.Seconds())
}

// verify reads the whole table, and returns how many rows it has. Each that was acknowledged must be there, as it was written.
func (l *load) verify(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	there, err := l.scan(ctx)
	if err != nil {
		return 0, err
	}
	acknowledged, lost := 0, []string{}
	for _, w := range l.workers {
		for n := range w.next {
			if w.unsure[n] {
				continue
			}
			acknowledged++
			if r := row(w.id, n); !there[r] {
				lost = append(lost, r)
			}
		}
	}
	if len(lost) > 0 {
		return 0, fmt.Errorf("%d of %d acknowledged rows are gone: %s", len(lost), acknowledged, strings.Join(lost[:min(len(lost), failuresShown)], ", "))
	}
	return acknowledged, nil
}

// scan checks all rows and returns their keys.
func (l *load) scan(ctx context.Context) (map[string]bool, error) {
	keys := map[string]bool{}
	s := l.t.Scan(ctx)
	defer s.Close()
	for s.Next() {
		r := s.Row()
		if err := check(string(r.Key), r); err != nil {
			return nil, err
		}
		keys[string(r.Key)] = true
	}
	return keys, s.Err()
}
