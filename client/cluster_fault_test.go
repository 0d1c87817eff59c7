package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/rpc"
)

// soakRuns returns n, or n times STELE_SOAK.
func soakRuns(n int) int {
	if m, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil && m > 0 {
		return n * m
	}
	return n
}

const stormRows = 300

// A storm changes the tablets of a table and of METADATA while they are in use.
type storm struct {
	*fake
	rng     *rand.Rand
	servers int
	stop    chan struct{}
}

// run makes changes until stop.
func (s *storm) run() {
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(time.Duration(s.rng.IntN(8)) * time.Millisecond):
		}
		name := "t"
		if s.rng.IntN(4) == 0 {
			name = metadata.Name
		}
		switch s.rng.IntN(12) {
		case 0, 1, 2:
			s.split(name)
		case 3, 4, 5:
			s.merge(name)
		case 6:
			s.die()
		default:
			s.shift(name)
		}
	}
}

// pick returns the index of a tablet that may change: METADATA's first may only move.
func (s *storm) pick(name string, all []*fakeTablet) int {
	if name == metadata.Name {
		return 1 + s.rng.IntN(len(all)-1)
	}
	return s.rng.IntN(len(all))
}

// split is one change of METADATA: a new row. Both parts stay on their server.
func (s *storm) split(name string) {
	at := key(s.rng.IntN(stormRows))
	if name == metadata.Name {
		at = s.metadataKey("t", at)
	}
	s.change(name, func(all []*fakeTablet) []*fakeTablet {
		t, i := s.cluster.tablet(name, []byte(at))
		if t.end == at || len(all) > 40 {
			return all
		}
		return slices.Insert(all, i, &fakeTablet{at, t.published, t.serves})
	})
}

// merge merges a tablet with the one before it, if they are on one server.
func (s *storm) merge(name string) {
	s.change(name, func(all []*fakeTablet) []*fakeTablet {
		i := s.pick(name, all)
		if i == 0 || name == metadata.Name && i == 1 {
			return all
		}
		if all[i-1].serves != all[i].serves {
			all[i-1].published, all[i-1].serves = all[i].published, all[i].serves
		}
		return slices.Delete(all, i-1, i)
	})
}

// shift moves a tablet: it is unserved for a while, and METADATA is updated early, in time or late.
func (s *storm) shift(name string) {
	to := s.rng.IntN(s.servers)
	var t *fakeTablet
	s.change(name, func(all []*fakeTablet) []*fakeTablet {
		if t = all[s.pick(name, all)]; name == metadata.Name && s.rng.IntN(3) == 0 {
			t = all[0]
		}
		t.serves = noServer
		t.published = []int{to, t.published, noServer}[s.rng.IntN(3)]
		return all
	})
	time.Sleep(time.Duration(s.rng.IntN(20)) * time.Millisecond)
	s.change(name, func(all []*fakeTablet) []*fakeTablet {
		t.published, t.serves = to, to
		return all
	})
}

// die kills a server. Its tablets move to the others, and then it is restarted.
func (s *storm) die() {
	dead := 1 + s.rng.IntN(s.servers-1) // not the one that the client was given
	s.kill(dead)
	all := func(f func(*fakeTablet)) {
		for _, name := range []string{metadata.Name, "t"} {
			s.change(name, func(all []*fakeTablet) []*fakeTablet {
				for _, t := range all {
					f(t)
				}
				return all
			})
		}
	}
	all(func(t *fakeTablet) {
		if t.serves == dead {
			t.serves = noServer
		}
	})
	time.Sleep(time.Duration(s.rng.IntN(30)) * time.Millisecond)
	all(func(t *fakeTablet) {
		if t.serves == noServer {
			t.serves = s.rng.IntN(dead)
			t.published = t.serves
		}
	})
	s.revive(dead)
}

// use is a workload, run by one goroutine each.
type use func(ctx context.Context, tb *Table, rng *rand.Rand, id int) error

// Invariants C1 to C3: the storm has no visible effect except on latency.
func TestStorms(t *testing.T) {
	seed := testseed.New(t)
	for run := range soakRuns(2) {
		f := newFakeCluster(newFake(t), 4)
		f.cluster.ignorant = run%2 == 1
		s := &storm{fake: f, rng: rand.New(rand.NewPCG(seed, uint64(run))), servers: 4, stop: make(chan struct{})}
		c := f.open(Config{RetriesPerSecond: 10_000, BatchRows: 20, Conns: 1 + run%2})
		tb := c.Table("t")
		var ms []*RowMutation
		for i := range stormRows {
			ms = append(ms, put(key(i)))
		}
		check(t, tb.ApplyAll(t.Context(), ms))
		var storm, users sync.WaitGroup
		storm.Go(s.run)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		until := time.Now().Add(900 * time.Millisecond)
		var done atomic.Int64
		for i, use := range []use{useScan, useScan, useIncrement, useIncrement, useBatches, useBatches, useSamples, useCheck} {
			users.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(1000*run+i+1)))
				for n := 0; time.Now().Before(until); n++ {
					if err := use(ctx, tb, rng, 10_000*i+n); err != nil {
						t.Errorf("run %d, use %d, time %d: %v", run, i, n, err)
						return
					}
					done.Add(1)
				}
			})
		}
		users.Wait()
		close(s.stop)
		storm.Wait()
		cancel()
		t.Logf("%d operations, %+v", done.Load(), c.Stats())
		if c.Stats().Stale == 0 {
			t.Error("nothing moved")
		}
		check(t, c.Close())
	}
}

func useScan(ctx context.Context, tb *Table, rng *rand.Rand, _ int) error {
	from, limit := rng.IntN(stormRows), 1+rng.IntN(stormRows)
	to := from + rng.IntN(stormRows-from+1)
	s := tb.Scan(ctx, Start(key(from)), End(key(to)), Limit(int64(limit)), BatchRows(1+rng.IntN(60)), Families("f"))
	defer s.Close()
	to = min(to, from+limit)
	for i := from; i < to; i++ {
		if !s.Next() {
			return fmt.Errorf("scan ended before row %d of %d to %d: %w", i, from, to, s.Err())
		}
		if got := string(s.Row().Key); got != key(i) {
			return fmt.Errorf("scan has %q instead of %q", got, key(i))
		}
		if rng.IntN(20) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if s.Next() {
		return fmt.Errorf("scan of %d to %d continues with %q", from, to, s.Row().Key)
	}
	return s.Err()
}

// useIncrement increments its own number and checks the sum against the acknowledged and ambiguous
// increments.
func useIncrement(ctx context.Context, tb *Table, rng *rand.Rand, id int) error {
	row := fmt.Sprintf("%s-n%d", key(rng.IntN(stormRows)), id)
	sure, unsure := int64(0), int64(0)
	for range 10 {
		n, err := tb.Increment(ctx, row, "g:n", 1)
		switch {
		case errors.Is(err, ErrAmbiguous):
			unsure++
		case err != nil:
			return fmt.Errorf("increment: %w", err)
		default:
			if sure++; n < sure || n > sure+unsure {
				return fmt.Errorf("the number is %d after %d increments, %d of unknown outcome", n, sure, unsure)
			}
		}
	}
	return tb.deleteRows(ctx, row)
}

// deleteRows removes rows, so that scans do not pass over more and more of them.
func (t *Table) deleteRows(ctx context.Context, rows ...string) error {
	for _, row := range rows {
		if err := t.Apply(ctx, NewRowMutation(row).DeleteRow(), WithReplay(ReplayAll)); err != nil && !errors.Is(err, ErrAmbiguous) {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return nil
}

// useBatches writes and reads rows of many tablets.
func useBatches(ctx context.Context, tb *Table, rng *rand.Rand, id int) error {
	var ms []*RowMutation
	var rows []string
	for _, i := range rng.Perm(stormRows)[:1+rng.IntN(60)] {
		row := key(i)
		rows = append(rows, row)
		ms = append(ms, put(row))
	}
	if err := tb.ApplyAll(ctx, ms, WithReplay(ReplayIdempotent)); err != nil {
		return fmt.Errorf("apply all: %w", err)
	}
	found, err := tb.GetAll(ctx, rows)
	if err != nil {
		return fmt.Errorf("get all: %w", err)
	}
	for i, row := range found {
		if row == nil || string(row.Key) != rows[i] {
			return fmt.Errorf("get all has %v instead of %q", row, rows[i])
		}
	}
	return nil
}

func useSamples(ctx context.Context, tb *Table, _ *rand.Rand, _ int) error {
	samples, err := tb.SampleRowKeys(ctx)
	if err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	for i, s := range samples {
		last := i == len(samples)-1
		if last != (len(s.Key) == 0) || i > 0 && (s.Offset <= samples[i-1].Offset || !last && string(s.Key) <= string(samples[i-1].Key)) {
			return fmt.Errorf("sample %d of %d is %q at %d", i, len(samples), s.Key, s.Offset)
		}
	}
	return nil
}

// useCheck takes a lock without contention.
func useCheck(ctx context.Context, tb *Table, rng *rand.Rand, id int) error {
	row := fmt.Sprintf("%s-c%d", key(rng.IntN(stormRows)), id)
	held, err := tb.CheckAndMutate(ctx, row, nil, nil, NewRowMutation(row).SetAt("g:c", 1, nil))
	if errors.Is(err, ErrAmbiguous) {
		return tb.deleteRows(ctx, row)
	}
	if err != nil || held {
		return fmt.Errorf("check: matched %v, %w", held, err)
	}
	got, err := tb.Get(ctx, row)
	if err != nil || got == nil || !strings.HasPrefix(string(got.Key), row) {
		return fmt.Errorf("get: %v, %w", got, err)
	}
	return tb.deleteRows(ctx, row)
}

// METADATA's server waits for the lock service for a moment, for example on a busy machine. Many
// calls of a client with an empty cache wait with it, and none fails for lack of retries.
func TestLookupsWaitForMetadata(t *testing.T) {
	f := newFakeCluster(newFake(t), 4)
	var ends []string
	servers := []int{2}
	for i := range 60 {
		ends, servers = append(ends, key(i*5+4)), append(servers, 2+i%2)
	}
	f.layout("t", ends, servers...)
	c := f.open(Config{RetriesPerSecond: 1})
	resumed := time.Now().Add(2 * time.Second)
	f.on(func(when moment, method string) error {
		if when == before && method == api.MethodScanOpen && time.Now().Before(resumed) {
			return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true, Message: "the lock service does not answer"}
		}
		return nil
	})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := c.Table("t").Apply(t.Context(), put(key(i*6))); err != nil {
				t.Errorf("apply %d: %v", i, err)
			}
		})
	}
	var all []*RowMutation
	for i := range 300 {
		all = append(all, put(key(i)))
	}
	check(t, c.Table("t").ApplyAll(t.Context(), all))
	wg.Wait()
	if n := f.count(f.requests, api.MethodScanOpen); n > 500 {
		t.Errorf("%d lookups reached METADATA's server in two seconds", n)
	}
}
