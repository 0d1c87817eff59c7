package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/table"
)

const (
	// storeFaultsShort, storeFaultsLong and storeFaultsSoak are the numbers of faults of one run.
	storeFaultsShort, storeFaultsLong, storeFaultsSoak = 4, 20, 25
	// storeLengthMax and storeLengthMaxSoak bound the length of a fault.
	storeLengthMax, storeLengthMaxSoak = 2500 * time.Millisecond, 20 * time.Second
	// Sizes of each node: extents are so small that logs begin new ones all the time.
	diskBytes, moreDiskBytes = 192 << 20, 96 << 20
	storeReserve             = 8 << 20
	storeTables              = 3
	writersEach              = 2
)

// storeRun is one run of a cluster whose block store has faults.
type storeRun struct {
	*cluster
	seed    uint64
	lib     *session.Client
	ledger  ledger
	writers []*rowWriter
	probes  []*rowWriter // one for each table, used by the test
	blobs   *blobWriter
	served  []*node          // nodes that serve the tables
	conns   []*client.Client // to these nodes
	all     []*client.Client // to all nodes
	patient *client.Client   // of the whole cluster, for reads during a fault
	probed  int
	slowest time.Duration
	rand    *rand.Rand // for choices that depend on the state and are not planned
	injured *injury    // while a process cannot sync
	end     func()     // of clients
}

// TestBlockStore runs five nodes through random faults of machines and disks (FB1 to FB6).
func TestBlockStore(t *testing.T) {
	seed := testseed.New(t)
	until := soakShare(4)
	faults, longest := storeFaultsLong, storeLengthMax
	runs := soakRuns()
	switch {
	case runs > 1:
		faults, longest = storeFaultsSoak, storeLengthMaxSoak
	case testing.Short():
		faults = storeFaultsShort
	}
	if runs == 1 {
		t.Parallel() // mostly waiting
	}
	for i := 0; i < runs && time.Now().Before(until); i++ {
		if runs == 1 {
			runStore(t, seed, faults, longest, until)
			break
		}
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("this run alone: STELE_SOAK=2 STELE_SEED=%d go test ./test/faults -count=1 -timeout 0 -v -run '^TestBlockStore$/^0$'", seed+uint64(i))
			runStore(t, seed+uint64(i), faults, longest, until)
		})
		if !ok {
			break
		}
	}
}

func runStore(t *testing.T, seed uint64, faults int, longest time.Duration, until time.Time) {
	r := newStoreRun(t, seed)
	start, done := time.Now(), 0
	for _, step := range storePlan(rand.New(rand.NewPCG(seed, 1)), faults, len(r.nodes), longest) {
		if time.Now().After(until) {
			break
		}
		done += len(step)
		r.step(start, step)
	}
	t.Logf("%d faults in %v; slowest recovery %v;%v", done, time.Since(start).Round(time.Second), r.slowest.Round(time.Millisecond), &r.ledger)
	r.finish()
}

// newStoreRun starts a cluster, tables on some of its nodes, and clients.
func newStoreRun(t *testing.T, seed uint64) *storeRun {
	c := newCluster(t, 5)
	c.settings = []string{"--extent-size", "4MiB", "--reserve", fmt.Sprint(storeReserve)}
	for _, n := range c.nodes {
		n.addDisk("disk", diskBytes)
		n.addDisk("more", moreDiskBytes)
	}
	c.form()
	r := &storeRun{cluster: c, seed: seed, lib: c.service(), rand: rand.New(rand.NewPCG(seed, 2))}
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	r.end = sync.OnceFunc(func() {
		cancel()
		clients.Wait()
		for _, w := range slices.Concat(r.writers, r.probes) {
			_ = w.file.Close()
		}
		_ = r.blobs.file.Close()
	})
	r.blobs = &blobWriter{number: 1, ledger: &r.ledger, file: r.history("blobs"), fates: map[string]fate{}, ids: map[string]string{}}
	t.Cleanup(r.end)
	spec, err := table.ParseFamilySpec(family)
	if err != nil {
		t.Fatal(err)
	}
	for i := range storeTables {
		n, name := c.nodes[i], fmt.Sprintf("t%d", i)
		conn := r.client(n)
		if _, err := conn.Tables().Create(ctx, name, spec); err != nil {
			t.Fatal(err)
		}
		r.served, r.conns = append(r.served, n), append(r.conns, conn)
		r.probes = append(r.probes, r.writer(name, 100+i))
		for j := range writersEach {
			w, conn := r.writer(name, 10*i+j), r.client(n)
			r.writers = append(r.writers, w)
			clients.Go(func() { w.work(ctx, conn, rand.New(rand.NewPCG(seed, uint64(w.number)))) })
		}
	}
	clients.Go(func() { r.compactNowAndThen(ctx) })
	for _, n := range c.nodes {
		r.all = append(r.all, r.client(n))
	}
	r.patient, err = client.Open(ctx, strings.Join(c.addresses(), ","), c.keys.as(client.Config{DialTimeout: time.Second, RetryTimeMax: time.Minute}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.patient.Close() }) // always nil
	clients.Go(func() { r.blobs.work(ctx, r.all, rand.New(rand.NewPCG(seed, 4))) })
	return r
}

// client returns a client of one node only, which keeps its connection.
func (r *storeRun) client(n *node) *client.Client {
	r.t.Helper()
	c, err := client.Open(context.Background(), n.address(), r.keys.as(client.Config{DialTimeout: time.Second, RetryTimeMax: time.Second}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() }) // always nil
	return c
}

func (r *storeRun) writer(table string, number int) *rowWriter {
	r.t.Helper()
	return &rowWriter{table: table, number: number, ledger: &r.ledger, file: r.history(fmt.Sprintf("rows-%d", number)), fates: map[string]fate{}}
}

func (r *storeRun) history(name string) *os.File {
	r.t.Helper()
	f, err := os.OpenFile(filepath.Join(r.dir, name+".jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// compactNowAndThen writes and merges SSTables from time to time.
func (r *storeRun) compactNowAndThen(ctx context.Context) {
	rnd := rand.New(rand.NewPCG(r.seed, 3))
	for pause(ctx, time.Second); ctx.Err() == nil; pause(ctx, time.Duration(rnd.Int64N(int64(5*time.Second)))) {
		i := rnd.IntN(storeTables)
		_ = r.compact(ctx, i, rnd.IntN(3) == 0) // errors are counted
	}
}

// compact compacts a table.
func (r *storeRun) compact(ctx context.Context, table int, major bool) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := r.conns[table].Tables().Compact(ctx, r.probes[table].table, major)
	_, kind := outcomeOf(err)
	r.ledger.count("compactions " + kind)
	if errors.Is(err, client.ErrCorrupt) {
		r.ledger.violation("compact table %d: %v", table, err)
	}
	return err
}

// probe writes a row to each table and reads it and another.
func (r *storeRun) probe(atMost time.Duration) error {
	r.probed++
	for i, w := range r.probes {
		n := 0
		if err := await(atMost, func() error {
			n++
			ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
			defer cancel()
			key := w.key(1_000_000*r.probed + n)
			if err := w.write(ctx, r.conns[i], key); err != nil {
				return fmt.Errorf("table on %v: %w", r.served[i], err)
			}
			for key := range maps.Keys(w.fates) { // any row
				row, err := r.conns[i].Table(w.table).Get(ctx, key)
				if err != nil {
					return fmt.Errorf("read row %s of the table on %v: %w", key, r.served[i], err)
				}
				w.judge(key, row)
				break
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// recovers waits until all tables can be written and read after a fault (FB5).
func (r *storeRun) recovers() {
	r.t.Helper()
	start := time.Now()
	if err := r.probe(recoverTime); err != nil {
		r.t.Errorf("not served %v after the fault's end: %v", recoverTime, err)
		r.diagnose()
		r.t.FailNow()
	}
	if err := r.ended(); err != nil {
		r.t.Fatal(err)
	}
	if bad := r.ledger.violations(); len(bad) > 0 {
		r.t.Fatal(strings.Join(bad, "\n"))
	}
	took := time.Since(start)
	r.slowest = max(r.slowest, took)
	if took > 3*time.Second {
		r.t.Logf("          recovered after %v", took.Round(10*time.Millisecond))
	}
}

func (r *storeRun) diagnose() {
	for _, n := range r.nodes {
		s, err := n.status()
		r.t.Logf("%v: %+v %v", n, s, err)
	}
}

// finish checks all rows twice: as they are, and after a power cut of all nodes (FB1 to FB4).
func (r *storeRun) finish() {
	r.t.Helper()
	r.end()
	r.settled(60*time.Second, len(r.nodes))
	r.checkRows("in the end")
	for _, n := range r.nodes {
		n.kill()
	}
	for _, n := range r.nodes {
		n.start()
	}
	r.settled(90*time.Second, len(r.nodes))
	r.checkRows("after a restart of all nodes")
	r.checkReplicas()
	r.stopAll()
	if n := r.ledger.counts["writes acknowledged"]; n < 100 {
		r.t.Errorf("only %d rows were written, too few to be conclusive", n)
	}
}

// checkRows reads all tables and compares them with the writers' records.
func (r *storeRun) checkRows(when string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	rows := 0
	for i, name := range r.tables() {
		found := map[string]*table.Row{}
		if err := await(recoverTime, func() error {
			clear(found)
			scan := r.conns[i].Table(name).Scan(ctx)
			for scan.Next() {
				row := scan.Row()
				found[string(row.Key)] = row
			}
			return scan.Err()
		}); err != nil {
			r.t.Fatalf("scan %s %s: %v", name, when, err)
		}
		rows += len(found)
		for _, w := range slices.Concat(r.writers, r.probes) {
			if w.table != name {
				continue
			}
			w.judgeCounter(found[w.counterKey()])
			delete(found, w.counterKey())
			for _, key := range w.keys {
				w.judge(key, found[key])
				delete(found, key)
			}
		}
		for key := range found {
			r.ledger.violation("%s: row %s was never written", name, key)
		}
	}
	blobs, err := r.blobs.check(ctx, r.all[r.rand.IntN(len(r.all))])
	if err != nil {
		r.t.Errorf("%s: %v", when, err)
	}
	for _, bad := range r.ledger.violations() {
		r.t.Errorf("%s: %s", when, bad)
	}
	if r.t.Failed() {
		r.t.FailNow()
	}
	r.t.Logf("%s: %d rows and %d blobs, all correct", when, rows, blobs)
}

func (r *storeRun) tables() (all []string) {
	for _, w := range r.probes {
		all = append(all, w.table)
	}
	return all
}

// restoreTime bounds the time until damaged data is repaired: nodes exchange lists of their
// replicas when they return, and corruption is searched for.
const restoreTime = 2 * time.Minute

// checkReplicas waits until all extents in use have their replicas again (FB6). Corruption is found
// by reads, or by the scrub within days; here by a requested check.
func (r *storeRun) checkReplicas() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), restoreTime)
	defer cancel()
	start, last := time.Now(), ""
	err := await(restoreTime, func() error {
		err := verifyAll(ctx, r.all[0])
		if err == nil {
			err = r.short(ctx, r.lib, r.patient)
		}
		if err != nil && err.Error() != last {
			last = err.Error()
			r.t.Logf("          %5.1f s: %v", time.Since(start).Seconds(), err)
		}
		return err
	})
	if err != nil {
		r.t.Errorf("replicas not restored after %v: %v", restoreTime, err)
		r.diagnose()
		return
	}
	r.t.Logf("all replicas restored after %v", time.Since(start).Round(100*time.Millisecond))
}
