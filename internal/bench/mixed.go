package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// mixed is a set of clients that do operations of several kinds on records.
type mixed struct {
	pace
	records    *records
	blend      *blend
	operations int64

	// The distributions of records, copied by each client.
	scrambled *scrambled
	latest    *latest

	began time.Time
	taken atomic.Int64 // operations started
	done  atomic.Int64
}

// insertFactor is the space for inserts in the distribution of records, as a multiple of the
// expected number of inserts. If a record is drawn that does not exist yet, the draw is repeated.
const insertFactor = 2

func newMixed(r *records, b *blend, cfg Config) *mixed {
	m := &mixed{pace: cfg.pace(1), records: r, blend: b, operations: cfg.Operations}
	if b.latest {
		m.latest = &latest{newZipf(r.inserted.existing())}
		return m
	}
	inserts := uint64(float64(cfg.Operations) * b.parts[opInsert] * insertFactor)
	m.scrambled = newScrambled(r.loaded + inserts)
	return m
}

// run does the operations. An error of any client ends it.
func (m *mixed) run(ctx context.Context) (measure, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var merging sync.Mutex
	var group sync.WaitGroup
	all := newTally()
	m.began = time.Now()
	for id := range m.clients {
		group.Go(func() {
			u := m.newUser(id)
			if err := u.run(ctx); err != nil {
				cancel(err)
			}
			merging.Lock()
			defer merging.Unlock()
			all.add(&u.tally)
		})
	}
	group.Wait()
	took := time.Since(m.began)
	r := all.measure()
	r.took = took
	return r, context.Cause(ctx)
}

// tally counts operations by kind.
type tally struct {
	ops, bad [operations]int64
	latency  [operations]*hdrhistogram.Histogram // allocated on first use
}

func newTally() *tally { return &tally{} }

func (t *tally) record(o operation, d time.Duration, good bool) {
	if t.latency[o] == nil {
		t.latency[o] = newHistogram()
	}
	record(t.latency[o], d)
	t.ops[o]++
	if !good {
		t.bad[o]++
	}
}

func (t *tally) add(u *tally) {
	for o := range operations {
		if u.latency[o] == nil {
			continue
		}
		if t.latency[o] == nil {
			t.latency[o] = newHistogram()
		}
		t.latency[o].Merge(u.latency[o])
		t.ops[o] += u.ops[o]
		t.bad[o] += u.bad[o]
	}
}

func (t *tally) measure() measure {
	m := measure{latency: newHistogram()}
	for o := range operations {
		if h := t.latency[o]; h != nil {
			m.latency.Merge(h)
			m.ops += t.ops[o]
			m.bad += t.bad[o]
			m.kinds = append(m.kinds, Kind{Name: o.String(), Ops: t.ops[o], Bad: t.bad[o], Latency: latencyOf(h)})
		}
	}
	return m
}

// A user is one client of a mixed with its buffers.
type user struct {
	*mixed
	id     int
	tally  tally
	rand   *rand.Rand
	latest latest
	key    []byte
	change client.RowMutation
	value  [fieldBytes]byte
}

func (m *mixed) newUser(id int) *user {
	u := &user{mixed: m, id: id, rand: rand.New(rand.NewPCG(m.records.seed, uint64(id)))}
	if m.latest != nil {
		u.latest = *m.latest
	}
	return u
}

func (u *user) run(ctx context.Context) error {
	for calls := int64(0); u.taken.Add(1) <= u.operations; calls++ {
		o := u.choose()
		begin := u.due(ctx, u.began, u.id, calls)
		good, err := u.do(ctx, o)
		if err != nil {
			return err
		}
		u.tally.record(o, time.Since(begin), good)
		u.done.Add(1)
	}
	return ctx.Err()
}

// choose draws the kind of the next operation.
func (u *user) choose() operation {
	at := u.rand.Float64()
	last := opRead
	for o, part := range u.blend.parts {
		if part == 0 {
			continue
		}
		if last = operation(o); at < part {
			break
		}
		at -= part
	}
	return last
}

// pick draws an existing record.
func (u *user) pick() uint64 {
	existing := u.records.inserted.existing()
	if u.blend.latest {
		return u.latest.draw(u.rand, existing)
	}
	for {
		if record := u.scrambled.draw(u.rand); record < existing {
			return record
		}
	}
}

// do does an operation and reports whether the data read is correct.
func (u *user) do(ctx context.Context, o operation) (good bool, err error) {
	switch o {
	case opInsert:
		return true, u.insert(ctx)
	case opUpdate:
		return true, u.update(ctx, u.pick())
	case opScan:
		return u.records.scanFrom(ctx, u.pick(), 1+u.rand.IntN(scanMax))
	}
	record := u.pick()
	if good, err = u.read(ctx, record); err != nil || o == opRead {
		return good, err
	}
	return good, u.update(ctx, record)
}

func (u *user) read(ctx context.Context, record uint64) (good bool, err error) {
	least := u.records.floorsOf(record)
	u.key = appendRecordKey(u.key[:0], record)
	row, err := u.records.table.Get(ctx, string(u.key))
	if err != nil {
		return false, err
	}
	return row != nil && string(row.Key) == string(u.key) && u.records.good(row, record, &least), nil
}

// noReplay disables retries of updates. A retried update's first attempt might be applied late and
// overwrite newer updates, which would look like lost updates.
var noReplay = []client.ApplyOption{client.WithReplay(client.ReplayNever)}

// update writes one field of a loaded record.
func (u *user) update(ctx context.Context, record uint64) error {
	r, field := u.records, u.rand.IntN(recordFields)
	stamp, floor := r.stamps.begin(u.id)
	defer r.stamps.end(u.id)
	r.fillField(u.value[:], record, field, stamp)
	u.key = appendRecordKey(u.key[:0], record)
	u.change.Reset(string(u.key))
	u.change.Add(table.Set(family, fieldNames[field], table.ServerTimestamp, u.value[:]))
	if err := r.table.Apply(ctx, &u.change, noReplay...); err != nil {
		return err
	}
	r.raise(record, field, floor)
	return nil
}

func (u *user) insert(ctx context.Context) error {
	record := u.records.inserted.next()
	u.records.mutation(&u.change, record)
	if err := u.records.table.Apply(ctx, &u.change); err != nil {
		return err
	}
	u.records.inserted.inserted(record)
	return nil
}

// Loading is not measured. Its batches have 100 KB.
const (
	loaders   = 4
	loadBatch = 100
)

// loading is the clients that write the initial records.
type loading struct {
	records *records
	ranges  *ranges
	done    atomic.Int64
}

func (l *loading) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for range loaders {
		group.Go(func() {
			if err := l.write(ctx); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// write writes ranges of records until none are left.
func (l *loading) write(ctx context.Context) error {
	batch := make([]*client.RowMutation, loadBatch)
	for i := range batch {
		batch[i] = &client.RowMutation{}
	}
	for {
		pass, from, to := l.ranges.take()
		if pass > 0 {
			return nil
		}
		for from < to {
			n := min(loadBatch, to-from)
			for i := range n {
				l.records.mutation(batch[i], from+i)
			}
			if err := l.records.table.ApplyAll(ctx, batch[:n]); err != nil {
				return err
			}
			l.done.Add(int64(n))
			from += n
		}
	}
}
