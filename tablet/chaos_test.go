package tablet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/sortedrun"
)

// A chaosWorker changes its own rows, all over the table, and reads them. Acknowledged changes must
// be present, changes of unknown outcome completely or not at all.
type chaosWorker struct {
	run   *chaosRun
	id    int
	r     *rand.Rand
	m     *model
	last  map[string]int64 // last server timestamp of each row
	count int
}

const chaosRows = 12

func (w *chaosWorker) row() string { return fmt.Sprintf("%02d-w%d", w.r.IntN(chaosRows), w.id) }

func (w *chaosWorker) mutations() []table.Mutation {
	var ms []table.Mutation
	for range 1 + w.r.IntN(3) {
		w.count++
		fam, q := []string{"all", "three"}[w.r.IntN(2)], []byte([]string{"a", "b"}[w.r.IntN(2)])
		switch w.r.IntN(14) {
		case 0:
			ms = append(ms, table.DeleteColumn(fam, q))
		case 10:
			ms = append(ms, table.DeleteColumn("sum", q))
		case 11, 12, 13:
			ms = append(ms, table.Add("sum", q, w.r.Int64N(3), 1+w.r.Int64N(1000)))
		case 1:
			ms = append(ms, table.DeleteFamily(fam))
		case 2:
			ms = append(ms, table.DeleteRow())
		default:
			ts := int64(table.ServerTimestamp)
			if w.r.IntN(3) == 0 {
				ts = int64(1 + w.r.IntN(1000))
			}
			ms = append(ms, table.Set(fam, q, ts, append(fmt.Appendf(nil, "w%d-%d-", w.id, w.count), make([]byte, w.r.IntN(2000))...)))
		}
	}
	return ms
}

// step makes one change and sometimes a read.
func (w *chaosWorker) step() {
	if w.r.IntN(30) == 0 {
		w.clear(w.row())
		return
	}
	row, ms := w.row(), w.mutations()
	for {
		ts, err := applySync(w.run.route(row), row, ms...)
		var unsure *UnknownOutcomeError
		switch {
		case err == nil:
			if ts != 0 && ts <= w.last[row] {
				w.run.fail("I8: row %s: timestamp %d after %d", row, ts, w.last[row])
			}
			w.last[row] = max(ts, w.last[row])
			w.m.apply(row, ts, ms)
			if w.r.IntN(4) == 0 {
				w.check(row)
			}
			return
		case errors.As(err, &unsure):
			w.settle(row, ms)
			return
		case errors.Is(err, api.ErrNotServing), errors.Is(err, api.ErrUnavailable):
			if w.run.over() {
				return
			}
			time.Sleep(time.Millisecond)
		default:
			w.run.fail("write row %s: %v", row, err)
			return
		}
	}
}

// clear clears a row as a range, and repeats that until it succeeds: after an error the row may be cleared later.
func (w *chaosWorker) clear(row string) {
	for {
		err := clearRows(context.Background(), w.run.route(row), []byte(row), []byte(row+"\x00"))
		switch {
		case err == nil:
			w.m.clear([]byte(row), []byte(row+"\x00"))
			w.check(row)
			return
		case w.run.failed():
			return
		case expected(err), errors.Is(err, ErrMetaLost), errors.Is(err, api.ErrUnavailable), errors.Is(err, api.ErrOverloaded):
			time.Sleep(time.Millisecond)
		default:
			w.run.fail("clear row %s: %v", row, err)
			return
		}
	}
}

// settle determines whether a change was made. Its server timestamp is unknown, so possible ones
// are taken from the cells that are present.
func (w *chaosWorker) settle(row string, ms []table.Mutation) {
	got, ok := w.read(row)
	if !ok || slices.Equal(got, cellStrings(w.m.read(row, 0))) {
		return
	}
	for _, ts := range w.run.stamps(got) {
		try := newModel(w.m.rules)
		for c, versions := range w.m.rows[row] {
			for at, v := range versions {
				try.apply(row, 0, []table.Mutation{table.Set(c.family, []byte(c.qualifier), at, []byte(v))})
			}
		}
		try.apply(row, ts, ms)
		if slices.Equal(got, cellStrings(try.read(row, 0))) {
			w.m.apply(row, ts, ms)
			if ts != noStamp {
				w.last[row] = max(w.last[row], ts)
			}
			return
		}
	}
	w.run.fail("I3: row %s after a change of unknown fate: got %.300q, want %.300q, with or without the change", row, got, cellStrings(w.m.read(row, 0)))
}

const noStamp = 1 << 60

// stamps returns the timestamps in cells, and one that is in none.
func (c *chaosRun) stamps(cells []string) []int64 {
	all := []int64{noStamp}
	for _, text := range cells {
		var ts int64
		for i := range text {
			if text[i] == '@' {
				fmt.Sscanf(text[i+1:], "%d", &ts)
				break
			}
		}
		all = append(all, ts)
	}
	return all
}

func (w *chaosWorker) check(row string) {
	got, ok := w.read(row)
	if want := cellStrings(w.m.read(row, 0)); ok && !slices.Equal(got, want) {
		w.run.fail("I1: row %s: got %.300q, want %.300q", row, got, want)
	}
}

// read reads a row from its server, also after the master has ended: a change of unknown outcome
// must be settled. It returns false if the run has failed.
func (w *chaosWorker) read(row string) (out []string, ok bool) {
	for {
		out = nil
		err := w.run.route(row).ReadRow(context.Background(), testTable, []byte(row), nil, func(_ []byte, cells []table.Cell) error {
			out = cellStrings(cells)
			return nil
		})
		if err == nil {
			return out, true
		}
		if !errors.Is(err, api.ErrNotServing) && !errors.Is(err, api.ErrUnavailable) {
			w.run.fail("read row %s: %v", row, err)
			return nil, false
		}
		if w.run.failed() {
			return nil, false
		}
		time.Sleep(time.Millisecond)
	}
}

// chaosRun is a cluster whose tablets are split, merged, moved and recovered by one goroutine, the
// master, while workers write.
type chaosRun struct {
	*cluster
	r    *rand.Rand
	mu   sync.Mutex // guards servers, failure, ended
	fate struct {
		failure string
		ended   bool
	}
	pending map[string][]sortedrun.Run // by end: runs that a tablet's server has not written out yet
	pendMu  sync.Mutex
	did     map[string]int

	follower *follower // of a table with a change stream
}

func (c *chaosRun) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fate.failure == "" {
		c.fate.failure = fmt.Sprintf(format, args...)
	}
}

func (c *chaosRun) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fate.ended || c.fate.failure != ""
}

func (c *chaosRun) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fate.failure != ""
}

// route returns the server of a row, or any if there is none now: it rejects the request.
func (c *chaosRun) route(row string) *Server {
	ends, owners := c.ranges()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, end := range ends {
		if len(end) == 0 || row <= string(end) {
			if s := c.server(owners[i]); s != nil {
				return s.Server
			}
			break
		}
	}
	return c.servers[0].Server
}

// some returns a tablet in METADATA and its server.
func (c *chaosRun) some() (end []byte, s *clusterServer) {
	ends, owners := c.ranges()
	i := c.r.IntN(len(ends))
	return ends[i], c.server(owners[i])
}

func (c *chaosRun) other(s *clusterServer) *clusterServer {
	for {
		if o := c.servers[c.r.IntN(len(c.servers))]; o != s {
			return o
		}
	}
}

// load loads a tablet with its remaining runs.
func (c *chaosRun) load(s *clusterServer, end []byte, runs []sortedrun.Run) {
	key := metaKey(1, end)
	c.pendMu.Lock()
	runs = append(c.pending[key], runs...)
	c.pending[key] = runs
	c.pendMu.Unlock()
	c.meta.assign(key, s.name)
	all, err := c.meta.loads()
	if err != nil {
		c.fail("read METADATA: %v", err)
		return
	}
	for _, l := range all {
		if string(l.Meta.End) != string(end) {
			continue
		}
		l.Schema, l.Runs = c.schema, runs
		l.OnRecovered = func() {
			c.pendMu.Lock()
			delete(c.pending, key)
			c.pendMu.Unlock()
		}
		err := s.Load(context.Background(), l)
		if errors.Is(err, errDisconnected) && s.lease.Load() { // memory was short, so METADATA had to change
			c.load(s, end, nil)
		} else if err != nil {
			c.fail("load tablet that ends at %q: %v", end, err)
		}
	}
}

// expected reports whether an operation of the master may fail with err.
func expected(err error) bool {
	for _, is := range []error{ErrClosed, ErrNoSplitRow, ErrBadSplitRow, ErrNotNeighbours, ErrMetaChanged, api.ErrNotServing, errDisconnected, ErrSplitPending, errUnloaded, context.Canceled} {
		if errors.Is(err, is) {
			return true
		}
	}
	return err == nil
}

func (c *chaosRun) act() {
	ctx := context.Background()
	end, s := c.some()
	name, err := "", error(nil)
	switch k := c.r.IntN(20); {
	case k < 5:
		_, _, err = s.Split(ctx, refTo(end), c.splitAt())
		name = "split"
	case k < 9:
		name, err = "merge", c.join(s, end)
	case k < 14:
		name = "move"
		if err = s.Unload(ctx, refTo(end)); err == nil {
			c.load(c.other(s), end, nil)
		}
	case k < 16:
		name, err = "compact", s.Compact(ctx, testTable, c.r.IntN(2) == 0)
	case k < 17:
		name = "clock"
		s.clock.micros.Store(c.clock.micros.Load() - c.r.Int64N(3_600_000_000))
	default:
		name = "kill"
		c.killDuring(s, end)
	}
	if !expected(err) {
		c.fail("%s: %v", name, err)
	}
	if err == nil {
		c.did[name]++
	}
}

// splitAt returns a row to split at, or nil for the middle.
func (c *chaosRun) splitAt() []byte {
	if c.r.IntN(2) == 0 {
		return nil
	}
	return fmt.Appendf(nil, "%02d-w%d", c.r.IntN(chaosRows), c.r.IntN(4))
}

// join merges the tablet with the one below it, which is moved to the same server.
func (c *chaosRun) join(s *clusterServer, end []byte) error {
	ends, owners := c.ranges()
	i := slices.IndexFunc(ends, func(e []byte) bool { return string(e) == string(end) })
	if i == 0 {
		return nil
	}
	if low := c.server(owners[i-1]); low != s {
		if err := low.Unload(context.Background(), refTo(ends[i-1])); err != nil {
			return err
		}
		c.load(s, ends[i-1], nil)
	}
	return s.Merge(context.Background(), refTo(ends[i-1]), refTo(end))
}

// killDuring disconnects a server from METADATA at some change during an operation, and kills it.
// Its tablets, according to METADATA, go to the others.
func (c *chaosRun) killDuring(s *clusterServer, end []byte) {
	c.meta.disconnectAfter(s.name, 1+c.r.IntN(4))
	what, at, later := c.r.IntN(4), c.splitAt(), time.Duration(c.r.IntN(20))*time.Millisecond
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		switch what {
		case 0:
			_, _, err = s.Split(context.Background(), refTo(end), at)
		case 1:
			ends, owners := c.ranges()
			i := slices.IndexFunc(ends, func(e []byte) bool { return string(e) == string(end) })
			if i > 0 && owners[i-1] == s.name {
				err = s.Merge(context.Background(), refTo(ends[i-1]), refTo(end))
			}
		case 2:
			err = s.Unload(context.Background(), refTo(end))
		}
		if !expected(err) {
			c.fail("amidst a kill: %v", err)
		}
	})
	time.Sleep(later)
	s.lease.Store(false)
	s.Close()
	wg.Wait()
	c.mu.Lock()
	c.cluster.servers = slices.DeleteFunc(c.servers, func(x *clusterServer) bool { return x == s })
	c.mu.Unlock()
	runs := c.readLogs(s)
	fresh := c.start()
	c.mu.Lock()
	c.cluster.servers = append(c.servers, fresh)
	c.mu.Unlock()
	ends, owners := c.ranges()
	for i, end := range ends {
		if owners[i] == s.name {
			c.load(c.servers[c.r.IntN(len(c.servers))], end, runs)
		}
	}
}

// I1, I3, I4, I5, I8, and no deleted cell reappears: tablets are split, merged and moved under
// load, and servers killed during such a change, whose outcome is unknown.
func TestSplitMergeMoveKill(t *testing.T) {
	seed := testseed.New(t)
	for run := range uint64(soakRuns(4)) {
		chaos(t, seed+run)
	}
}

// TestChangesOfSplitMergeMoveKill (CS1, CS2, CS3): a reader that follows the change stream of such a table meanwhile gets each mutation once, in the
// order of its row, and nothing that is not in the table.
func TestChangesOfSplitMergeMoveKill(t *testing.T) {
	seed := testseed.New(t)
	for run := range uint64(soakRuns(4)) {
		chaos(t, seed+run, streamed)
	}
}

func chaos(t *testing.T, seed uint64, options ...string) {
	cfg := Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10, FilesMerge: 3, CompactionBytesPerSecond: -1}
	c := &chaosRun{r: rand.New(rand.NewPCG(seed, 1)), pending: map[string][]sortedrun.Run{}, did: map[string]int{},
		cluster: newCluster(t, cfg, 3, append(options, "all", "three:versions=3,group=g2", "sum:aggregate=sum")...)}
	if len(options) > 0 {
		c.follower = newFollower()
	}
	lost := rand.New(rand.NewPCG(seed, 2))
	c.meta.setFaults(func() (before, after error) { // metadata's lock guards lost
		switch lost.IntN(16) {
		case 0:
			before = fmt.Errorf("request lost: %w", errDisconnected)
		case 1:
			after = fmt.Errorf("answer lost: %w", errDisconnected)
		}
		return before, after
	}, nil)
	var workers []*chaosWorker
	var wg sync.WaitGroup
	for id := range 4 {
		w := &chaosWorker{run: c, id: id, r: rand.New(rand.NewPCG(seed, uint64(10+id))), last: map[string]int64{},
			m: newModel(map[string]rule{"three": {versions: 3}})}
		workers = append(workers, w)
		wg.Go(func() {
			for !c.over() {
				w.step()
			}
		})
	}
	if c.follower != nil {
		wg.Go(func() {
			for r := rand.New(rand.NewPCG(seed, 3)); !c.over(); {
				_, _ = c.follower.step(c.route, r)
			}
		})
	}
	for range 60 {
		if c.over() {
			break
		}
		c.act()
		c.clock.micros.Add(c.r.Int64N(1000))
	}
	c.mu.Lock()
	c.fate.ended = true
	c.mu.Unlock()
	wg.Wait()
	total := 0
	c.mu.Lock()
	c.fate.ended = false // so that reads wait from here on
	c.mu.Unlock()
	for _, w := range workers {
		total += w.count
		for i := range chaosRows {
			w.check(fmt.Sprintf("%02d-w%d", i, w.id))
		}
	}
	if c.fate.failure == "" {
		c.checkScan(workers)
	}
	if c.fate.failure == "" && c.follower != nil {
		c.follower.drain(t, c.route)
		c.follower.check(c.fail, c.scan())
		again := newFollower() // from the beginning, once all is quiet
		again.drain(t, c.route)
		again.check(c.fail, c.scan())
		t.Logf("%d changes and %d clears by %d positions", c.follower.changes, c.follower.clears, len(c.follower.positions))
	}
	if c.fate.failure != "" {
		t.Fatalf("seed %d, after %v: %s", seed, c.did, c.fate.failure)
	}
	t.Logf("seed %d: %d mutations, %v", seed, total, c.did)
	for _, s := range c.servers {
		s.Close()
	}
}

func (c *chaosRun) checkScan(workers []*chaosWorker) {
	got, rows := c.scan(), 0
	for _, w := range workers {
		for row := range w.m.rows {
			if want := cellStrings(w.m.read(row, 0)); len(want) > 0 {
				rows++
				if !slices.Equal(got[row], want) {
					c.fail("scan: row %s: got %.300q, want %.300q", row, got[row], want)
				}
			}
		}
	}
	if len(got) != rows {
		c.fail("scan: %d rows, want %d", len(got), rows)
	}
}
