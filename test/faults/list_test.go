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

// The linked list is what HBase's ITBLL writes: rounds of rows, each of which names a row of
// the round before. The last round of a loop is named by its first, so that in the end each
// row is named by exactly one other: a row that was lost is missed by the one that names it,
// and takes along what it names itself.

// loopRounds is how many rounds make a loop.
const loopRounds = 20

// listBuckets are the first bytes of keys, by which parts of the list are read.
const listBuckets = 256

// listWriter is a user that writes its part of the list.
type listWriter struct {
	*user
	rand *rand.Rand
	keys [listBuckets][]string // that were acknowledged
	rows int
}

func (u *user) writeList(r *rand.Rand) {
	w := &listWriter{user: u, rand: r}
	for !w.over() {
		w.loop()
	}
	u.put(userEntry{At: now(), Listed: w.rows})
}

// over tells whether the user is to end, and has written as many rows as it should.
func (w *listWriter) over() bool { return w.ctx.Err() != nil && w.rows >= w.ListRows }

// loop writes a loop, or what it has come to when the user is told to end.
func (w *listWriter) loop() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	defer cancel()
	// What is begun is brought to its end.
	stop := context.AfterFunc(w.ctx, func() { time.AfterFunc(w.Farewell, cancel) })
	defer stop()
	first := w.round(ctx, nil)
	last := first
	for n := 1; n < loopRounds && !w.over(); n++ {
		last = w.round(ctx, last)
		w.look()
		pause(w.ctx, w.ListPause)
	}
	// Turned by one, so that all chains are one.
	w.apply(ctx, first, append(slices.Clone(last[1:]), last[0]))
	w.rows += len(first)
}

// round writes rows that name those of the round before, and returns their keys.
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

// apply writes rows until all are acknowledged. To write the same twice does no harm.
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

// look reads a part of the list: all that this user was acknowledged before must come, once, in
// order, whoever serves it and however it is split meanwhile.
func (w *listWriter) look() {
	from := w.rand.IntN(listBuckets)
	to := min(listBuckets, from+1+w.rand.IntN(4))
	var want []string
	for b := from; b < to; b++ {
		want = append(want, w.keys[b]...)
	}
	slices.Sort(want)
	want = slices.Compact(want) // a first round's may have been written twice
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

// listCheck looks at the whole list.
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

// check tells what is wrong, if so many rows should be there.
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
