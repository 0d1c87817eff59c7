package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/steledb/stele/client"
)

// The linked list is that of HBase's ITBLL: rounds of rows, each of which names a row of the
// preceding round. The first round of a loop names the last one, so that in the end each row is
// named by exactly one other. If a row is lost, the row that names it points nowhere, and the row
// that it named is named by none.

// loopRounds is the number of rounds of a loop.
const loopRounds = 20

// listBuckets is the number of first bytes of keys; parts of the list are read by these.
const listBuckets = 256

// listWriter is a user that writes its part of the list.
type listWriter struct {
	*user
	rand *rand.Rand
	keys [listBuckets][]string // acknowledged keys
	rows int
}

func (u *user) writeList(r *rand.Rand) {
	w := &listWriter{user: u, rand: r}
	for !w.over() {
		w.loop()
	}
	u.put(userEntry{At: now(), Listed: w.rows})
}

// over reports whether the user is ending and has written its minimum of rows.
func (w *listWriter) over() bool { return w.ctx.Err() != nil && w.rows >= w.ListRows }

// loop writes a loop, which is shorter if the user is ending.
func (w *listWriter) loop() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	defer cancel()
	// A loop that was begun is completed.
	stop := context.AfterFunc(w.ctx, func() { time.AfterFunc(w.Farewell, cancel) })
	defer stop()
	first := w.round(ctx, nil)
	last := first
	for n := 1; n < loopRounds && !w.over(); n++ {
		last = w.round(ctx, last)
		w.look()
		pause(w.ctx, w.ListPause)
	}
	// Rotated by one, so that all chains are one.
	w.apply(ctx, first, append(slices.Clone(last[1:]), last[0]))
	w.rows += len(first)
}

// round writes rows that name those of the preceding round, and returns their keys.
func (w *listWriter) round(ctx context.Context, before []string) (keys []string) {
	for range w.ListWidth {
		keys = append(keys, fmt.Sprintf("%016x", w.rand.Uint64()))
	}
	if before == nil {
		return keys // written last
	}
	w.apply(ctx, keys, before)
	w.rows += len(keys)
	return keys
}

// apply writes rows until all are acknowledged. Writing the same row twice is harmless.
func (w *listWriter) apply(ctx context.Context, keys, names []string) {
	todo := map[string]string{}
	for i, k := range keys {
		todo[k] = names[i]
	}
	for n := 0; len(todo) > 0; n++ {
		var ms []*client.RowMutation
		for k, name := range todo {
			ms = append(ms, client.NewRowMutation(k).Set("a:names", []byte(name)))
		}
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := w.db.Table(listTable).ApplyAll(call, ms)
		cancel()
		var each *client.BatchError
		if err != nil && !errors.As(err, &each) {
			u := w.user
			u.bad("list: %v", err)
			return
		}
		for i, m := range ms {
			one := error(nil)
			if each != nil {
				one = each.Errs[i]
			}
			if w.result("list row", one); one == nil {
				delete(todo, m.Row())
				w.keys[bucketOf(m.Row())] = append(w.keys[bucketOf(m.Row())], m.Row())
			}
		}
		if ctx.Err() != nil && len(todo) > 0 {
			w.bad("list: %d rows could not be written: %v", len(todo), err)
			return
		}
		if err != nil {
			pause(ctx, 50*time.Millisecond)
		}
	}
}

func bucketOf(key string) int {
	n, err := strconv.ParseUint(key[:2], 16, 8)
	if err != nil {
		panic("BUG: list key " + key)
	}
	return int(n)
}

// look scans a part of the list. It must return all rows acknowledged to this user before, once and
// in order, whatever servers and tablets are involved.
func (w *listWriter) look() {
	from := w.rand.IntN(listBuckets)
	to := min(listBuckets, from+1+w.rand.IntN(4))
	var want []string
	for b := from; b < to; b++ {
		want = append(want, w.keys[b]...)
	}
	slices.Sort(want)
	want = slices.Compact(want) // those of a first round may have been written twice
	opts := []client.ScanOption{client.Start(fmt.Sprintf("%02x", from)), client.BatchRows(1 + w.rand.IntN(200))}
	if to < listBuckets {
		opts = append(opts, client.End(fmt.Sprintf("%02x", to)))
	}
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	s := w.db.Table(listTable).Scan(ctx, opts...)
	defer s.Close()
	last, at := "", 0
	for s.Next() {
		key := string(s.Row().Key)
		if key <= last {
			w.bad("scan of the list: %s comes after %s", key, last)
		}
		last = key
		for ; at < len(want) && want[at] < key; at++ {
			w.bad("scan of the list from %02x to %02x: %s is missing, which was acknowledged", from, to, want[at])
		}
		if at < len(want) && want[at] == key {
			at++
		}
	}
	if w.result("list scan", s.Err()); s.Err() == nil && at < len(want) {
		w.bad("scan of the list from %02x to %02x ends at %q: %d rows are missing, the first %s", from, to, last, len(want)-at, want[at])
	}
}

// listCheck checks the whole list.
type listCheck struct {
	names map[string]string // by key
	order string
	bad   []string
}

func (l *listCheck) add(key, name string) {
	if key <= l.order {
		l.wrong("row %s comes after %s", key, l.order)
	}
	l.order = key
	l.names[key] = name
}

func (l *listCheck) wrong(format string, args ...any) {
	if len(l.bad) < 20 {
		l.bad = append(l.bad, fmt.Sprintf("list: "+format, args...))
	}
}

// check returns the errors of a list that should have the given number of rows.
func (l *listCheck) check(rows int) []string {
	if len(l.names) != rows {
		l.wrong("%d rows, want %d", len(l.names), rows)
	}
	named := make(map[string]string, len(l.names))
	for key, name := range l.names {
		if _, ok := l.names[name]; !ok {
			l.wrong("row %s names %s, which is not there", key, name)
		}
		if other, ok := named[name]; ok {
			l.wrong("rows %s and %s both name %s", key, other, name)
		}
		named[name] = key
	}
	for key := range l.names {
		if _, ok := named[key]; !ok {
			l.wrong("row %s is named by none", key)
		}
	}
	return l.bad
}
