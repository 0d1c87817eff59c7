package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// Fates of a row. Rows are written once, by one writer, and may be deleted once.
type fate string

const (
	rowUnderWay fate = "under way"
	rowAcked    fate = "acknowledged"
	rowRefused  fate = "refused" // certainly not written
	rowUnknown  fate = "unknown"
	rowDeleting fate = "deleting" // or of unknown outcome
	rowDeleted  fate = "deleted"
)

// The columns of a row, and of a counter.
const (
	family        = "f"
	valueColumn   = family + ":value"
	counterColumn = family + ":n"
)

// rowWriter writes rows to a table and records the fate of each. Its history is a file of these
// records, in order.
type rowWriter struct {
	table  string
	number int
	ledger *ledger
	file   *os.File

	mu      sync.Mutex
	fates   map[string]fate
	keys    []string
	counted struct{ acked, requested int64 } // increments of the counter
}

// ledger collects the findings of all clients of a run for the test.
type ledger struct {
	mu     sync.Mutex
	counts map[string]int
	bad    []string
}

func (l *ledger) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.counts[what]++
}

func (l *ledger) violation(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.bad) < 20 {
		l.bad = append(l.bad, fmt.Sprintf(format, args...))
	}
}

func (l *ledger) violations() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.bad)
}

func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(l.counts)) {
		fmt.Fprintf(&b, " %s %d,", k, l.counts[k])
	}
	return b.String()
}

// settle records the fate of a row from now on.
func (w *rowWriter) settle(key string, f fate, err error) {
	line := struct {
		At    int64
		Row   string
		Fate  fate
		Error string `json:",omitempty"`
	}{now(), key, f, ""}
	if err != nil {
		line.Error = err.Error()
	}
	b, jerr := json.Marshal(line)
	if jerr != nil {
		panic("BUG: " + jerr.Error())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.fates[key]; !known {
		w.keys = append(w.keys, key)
	}
	w.fates[key] = f
	if _, err := w.file.Write(append(b, '\n')); err != nil {
		panic("write history: " + err.Error())
	}
}

// key returns the key of the writer's nth row: they come in random order.
func (w *rowWriter) key(n int) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d.%d", w.number, n)
	return fmt.Sprintf("%04x-%d-%d", h.Sum32()&0xffff, w.number, n)
}

func (w *rowWriter) counterKey() string { return fmt.Sprintf("counter-%d", w.number) }

// valueOf returns the contents of a row: all are distinct, and each follows from its key.
func valueOf(key string) []byte {
	h := fnv.New64a()
	h.Write([]byte(key))
	r := rand.New(rand.NewPCG(h.Sum64(), 7))
	length := 100 + r.IntN(1900)
	switch n := r.IntN(200); {
	case n == 0:
		length = 100_000 + r.IntN(200_000)
	case n < 20:
		length = 4000 + r.IntN(8000)
	}
	b := make([]byte, length)
	for i := 0; i < len(b); i += 8 {
		v := r.Uint64()
		for j := i; j < min(i+8, len(b)); j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
	return b
}

// outcomeOf returns what an error means for a change, and its kind for the statistics.
func outcomeOf(err error) (fate, string) {
	switch {
	case err == nil:
		return rowAcked, "acknowledged"
	case errors.Is(err, client.ErrAmbiguous):
		return rowUnknown, "unknown"
	case errors.Is(err, client.ErrDiskFull):
		return rowRefused, "refused: disk full"
	case errors.Is(err, client.ErrUnreachable):
		return rowRefused, "refused: unreachable"
	case errors.Is(err, client.ErrUnavailable):
		return rowRefused, "refused: unavailable"
	case errors.Is(err, client.ErrOverloaded):
		return rowRefused, "refused: overloaded"
	case errors.Is(err, client.ErrNotServing):
		return rowRefused, "refused: not serving"
	case errors.Is(err, context.DeadlineExceeded):
		return rowUnknown, "late"
	}
	return rowUnknown, "failed"
}

// write writes a row.
func (w *rowWriter) write(ctx context.Context, c *client.Client, key string) error {
	w.settle(key, rowUnderWay, nil)
	err := c.Table(w.table).Apply(ctx, client.NewRowMutation(key).Set(valueColumn, valueOf(key)))
	f, kind := outcomeOf(err)
	w.settle(key, f, err)
	w.ledger.count("writes " + kind)
	if kind == "failed" {
		w.ledger.count(fmt.Sprintf("%q", err))
	}
	return err
}

func (w *rowWriter) remove(ctx context.Context, c *client.Client, key string) {
	w.settle(key, rowDeleting, nil)
	err := c.Table(w.table).Apply(ctx, client.NewRowMutation(key).DeleteRow())
	f, kind := outcomeOf(err)
	switch f {
	case rowAcked:
		w.settle(key, rowDeleted, nil)
	case rowRefused:
		w.settle(key, rowAcked, err)
	}
	w.ledger.count("deletes " + kind)
}

// increment adds one to the writer's counter.
func (w *rowWriter) increment(ctx context.Context, c *client.Client) {
	w.mu.Lock()
	w.counted.requested++
	w.mu.Unlock()
	_, err := c.Table(w.table).Increment(ctx, w.counterKey(), counterColumn, 1)
	f, kind := outcomeOf(err)
	w.mu.Lock()
	switch f {
	case rowAcked:
		w.counted.acked++
	case rowRefused:
		w.counted.requested--
	}
	w.mu.Unlock()
	w.ledger.count("increments " + kind)
}

// work writes until the context ends.
func (w *rowWriter) work(ctx context.Context, c *client.Client, r *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		call, cancel := context.WithTimeout(ctx, 500*time.Millisecond+time.Duration(r.Int64N(int64(4*time.Second))))
		switch old, f := w.any(r); {
		case n%17 == 5 && f == rowAcked:
			w.remove(call, c, old)
		case n%11 == 3:
			w.increment(call, c)
		case n%3 == 1 && old != "":
			w.read(call, c, old)
		default:
			_ = w.write(call, c, w.key(n)) // it is recorded
		}
		cancel()
		pause(ctx, time.Duration(r.Int64N(int64(30*time.Millisecond))))
	}
}

// any returns one of the rows, and its fate.
func (w *rowWriter) any(r *rand.Rand) (string, fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.keys) == 0 {
		return "", ""
	}
	key := w.keys[r.IntN(len(w.keys))]
	return key, w.fates[key]
}

// read reads a row, which does not change meanwhile, and checks it.
func (w *rowWriter) read(ctx context.Context, c *client.Client, key string) {
	row, err := c.Table(w.table).Get(ctx, key)
	switch {
	case errors.Is(err, client.ErrCorrupt):
		w.ledger.violation("read %s: %v", key, err)
	case err != nil:
		_, kind := outcomeOf(err)
		w.ledger.count("reads " + kind)
		if kind == "failed" {
			w.ledger.count(fmt.Sprintf("%q", err))
		}
	default:
		w.ledger.count("reads")
		w.judge(key, row)
	}
}

// judge compares a row that was read, or nil, with what must exist.
func (w *rowWriter) judge(key string, row *table.Row) {
	w.mu.Lock()
	f, known := w.fates[key]
	w.mu.Unlock()
	there := row != nil && len(row.Cells) > 0
	switch {
	case !known:
		w.ledger.violation("%s: row %s was never written", w.table, key)
	case f == rowAcked && !there:
		w.ledger.violation("%s: row %s, which was acknowledged, is lost", w.table, key)
	case (f == rowRefused || f == rowDeleted) && there:
		w.ledger.violation("%s: row %s is there, which was %s", w.table, key, f)
	}
	if !there {
		return
	}
	want := valueOf(key)
	if len(row.Cells) != 1 || row.Cells[0].Family != family || !bytes.Equal(row.Cells[0].Value, want) {
		got := row.Cells[0].Value
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		w.ledger.violation("%s: row %s has %d cells; the first, of %d bytes, differs at %d from the %d that were written", w.table, key, len(row.Cells), len(got), at, len(want))
	}
}

// judgeCounter checks the counter.
func (w *rowWriter) judgeCounter(row *table.Row) {
	var n int64
	if row != nil && len(row.Cells) > 0 {
		if v := row.Cells[0].Value; len(v) == 8 {
			n = int64(binary.BigEndian.Uint64(v))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n < w.counted.acked || n > w.counted.requested {
		w.ledger.violation("%s: counter of writer %d is %d after %d acknowledged increments of %d", w.table, w.number, n, w.counted.acked, w.counted.requested)
	}
}

// pause waits for d or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
