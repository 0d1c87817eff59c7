package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/netlab"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/table"
)

const (
	// wholeFaultsShort, wholeFaultsLong and wholeFaultsSoak are the numbers of faults of one run.
	wholeFaultsShort, wholeFaultsLong, wholeFaultsSoak = 3, 14, 30
	// wholeLengthMax and wholeLengthMaxSoak bound the length of a fault.
	wholeLengthMax, wholeLengthMaxSoak = 6 * time.Second, 60 * time.Second
	// listRowsSoak is the minimum final size of the linked list in a soak's run.
	listRowsSoak = 1_000_000
	// listRowsSecond is the number of its rows per second, in a run that has less time.
	listRowsSecond = 1000
	// wholeManyFaults is the number of faults from which on a run is long: disks are larger, and
	// users slower, since their histories could not be judged in time otherwise.
	wholeManyFaults = 100
	// wholeRunMin is the minimum remaining time to begin another run of a soak; wholeChecksMax is
	// for the checks after the faults.
	wholeRunMin, wholeChecksMax = 4 * time.Minute, 4 * time.Minute
	// probeTable has rows that only the test writes.
	probeTable = "probe"
)

// wholeRun is one run of a cluster whose tablets have faults.
type wholeRun struct {
	*cluster
	seed      uint64
	cfg       wholeConfig
	lib       *session.Client
	db        *client.Client // of the whole cluster, with long retries
	users     []*userProcess
	probed    int
	slowest   time.Duration
	slow      []*netlab.Process // that slow down syncs
	shaker    *shaker
	end       func() // ends the test's own operations on tablets
	h         userHistories
	kinds     map[string]int // faults done, by kind
	drained   []*drained     // nodes that are or were drained
	onlyFault bool           // the current fault is the only one
	quiet     []period       // intervals without a fault
}

// userProcess is a user on a host.
type userProcess struct {
	host    *netlab.Host
	proc    *netlab.Process
	stdin   io.WriteCloser
	history string
	// mortal is set if it may be killed: it does not write the list, since a chain that ends is a
	// lost row.
	mortal, killed, paused bool
}

// TestCluster runs five nodes through random faults of machines, networks, disks and clocks, while
// tablets are split, merged and moved (FW1 to FW7).
func TestCluster(t *testing.T) {
	seed := testseed.New(t)
	until := soakShare(1)
	faults, longest := wholeFaultsLong, wholeLengthMax
	runs := soakRuns()
	switch requested := faultsRequested(t); {
	case requested > 0:
		faults, runs = requested, 1
	case runs > 1:
		faults, longest = wholeFaultsSoak, wholeLengthMaxSoak
	case testing.Short():
		faults = wholeFaultsShort
	}
	if runs == 1 {
		t.Parallel() // mostly waiting
	}
	for i := 0; i < runs && (i == 0 || time.Until(until) > wholeRunMin); i++ {
		if runs == 1 {
			runWhole(t, seed, faults, longest, until)
			break
		}
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("this run alone: STELE_SOAK=2 STELE_SEED=%d go test ./test/faults -count=1 -timeout 0 -v -run '^TestCluster$/^0$'", seed+uint64(i))
			runWhole(t, seed+uint64(i), faults, longest, until)
		})
		if !ok {
			break
		}
	}
}

func runWhole(t *testing.T, seed uint64, faults int, longest time.Duration, until time.Time) {
	cfg := wholeConfig{
		nodes: 5, users: []int{0, 1, 2}, mortals: []int{0, 3}, shake: true, // two of them reach all nodes, three are on hosts of nodes
		user: userConfig{ListWidth: 20, Pace: 60 * time.Millisecond, ListPause: 100 * time.Millisecond, Farewell: time.Minute},
	}
	left := time.Until(until)
	until = until.Add(-min(wholeChecksMax, left/4))
	switch {
	case longest > wholeLengthMax: // a soak
		cfg.largeDisks = true
		cfg.user.ListWidth, cfg.user.ListPause = 500, 50*time.Millisecond
		cfg.user.ListRows = int(min(listRowsSoak, listRowsSecond*left.Seconds())) / len(cfg.users)
		cfg.user.Farewell = 10 * time.Minute
	case faults >= wholeManyFaults:
		cfg.largeDisks, cfg.user.Pace, cfg.user.Farewell = true, 200*time.Millisecond, 5*time.Minute
	}
	r := newWholeRun(t, seed, cfg)
	start, done := time.Now(), 0
	for _, step := range wholePlan(rand.New(rand.NewPCG(seed, 1)), wholeChoice(t), faults, len(r.nodes), longest) {
		if time.Now().After(until) {
			break
		}
		done += len(step)
		r.step(start, step)
	}
	t.Logf("faults:%s", summary(r.kinds))
	t.Logf("%d faults in %v; slowest recovery %v; %v", done, time.Since(start).Round(time.Second), r.slowest.Round(time.Millisecond), r.shaker)
	r.finish()
}

// wholeConfig configures a run.
type wholeConfig struct {
	nodes int
	// users and mortals, which do not write the list, are on these hosts: 0 is that of the test,
	// which has no faults.
	users, mortals []int
	user           userConfig
	largeDisks     bool // larger disks
	shake          bool
	// bugs are planted into the program; users run a separate program.
	bugs                 string
	plantUsersOnly       bool // only into the users' program
	program, userProgram string
}

// newWholeRun starts a cluster, tables and users.
func newWholeRun(t *testing.T, seed uint64, cfg wholeConfig) *wholeRun {
	t.Helper()
	c := newCluster(t, cfg.nodes)
	if cfg.bugs != "" && !cfg.plantUsersOnly {
		c.bugs, c.program = cfg.bugs, cfg.program
	}
	disk, more := int64(diskBytes), int64(moreDiskBytes)
	if cfg.largeDisks {
		// A node that is away keeps some extents of each finished log, which no sweep finds within
		// the run: 1 GB in twenty minutes of faults.
		disk, more = 10*disk, 10*more
	}
	c.settings = []string{"--extent-size", "4MiB", "--reserve", fmt.Sprint(storeReserve)}
	for _, n := range c.nodes {
		n.addPoweredDisk("disk", disk)
		n.addPoweredDisk("more", more)
	}
	if err := canLosePower(); err != nil {
		t.Logf("power cuts lose nothing here, no disk can lose power: %v", err)
	}
	c.form()
	r := &wholeRun{cluster: c, cfg: cfg, seed: seed, lib: c.service(), h: userHistories{counts: map[string]int{}}, kinds: map[string]int{}}
	var err error
	r.db, err = client.Open(t.Context(), strings.Join(c.addresses(), ","), c.keys.as(client.Config{DialTimeout: time.Second, RetryTimeMax: time.Minute}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() }) // always nil
	r.makeTables()
	hosts := append([]*netlab.Host{c.lab.Here}, c.lab.Hosts()...)
	for _, host := range cfg.users {
		r.startUser(hosts[host], false)
	}
	for _, host := range cfg.mortals {
		r.startUser(hosts[host], true)
	}
	r.shaker = &shaker{db: r.db, rand: rand.New(rand.NewPCG(seed, 3)), counts: map[string]int{}}
	for _, n := range c.nodes {
		r.shaker.nodes = append(r.shaker.nodes, n.String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	var shaking sync.WaitGroup
	if cfg.shake {
		shaking.Go(func() { r.shaker.run(ctx) })
	}
	r.end = sync.OnceFunc(func() {
		cancel()
		shaking.Wait()
	})
	t.Cleanup(r.end)
	return r
}

// makeTables creates the tables and the accounts.
func (r *wholeRun) makeTables() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	var families []table.FamilySpec
	for _, text := range userFamilies {
		spec, err := table.ParseFamilySpec(text)
		if err != nil {
			r.t.Fatal(err)
		}
		families = append(families, spec)
	}
	for _, name := range append(slices.Clone(userTables), probeTable) {
		if _, err := r.db.Tables().Create(ctx, name, families...); err != nil {
			r.t.Fatal(err)
		}
	}
	for i := range accounts {
		if err := r.db.Table(bankTable).Apply(ctx, account(i, accountTotal/2, accountTotal/2, 0)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// probe reads every part of every table, and writes to one.
func (r *wholeRun) probe(ctx context.Context) error {
	r.probed++
	for i := range 16 {
		row := fmt.Sprintf("%x", i)
		m := client.NewRowMutation(row).Set("a:p", []byte(fmt.Sprint(r.probed)))
		if err := r.db.Table(probeTable).Apply(ctx, m); err != nil && !errors.Is(err, client.ErrAmbiguous) {
			return fmt.Errorf("write row %s: %w", row, err)
		}
		for _, name := range userTables {
			if _, err := r.db.Table(name).Get(ctx, row); err != nil {
				return fmt.Errorf("read row %s of %s: %w", row, name, err)
			}
		}
	}
	return nil
}

// recovers waits until all tables are served after a fault (FW6).
func (r *wholeRun) recovers() {
	r.t.Helper()
	start := time.Now()
	err := await(recoverTime, func() error {
		ctx, cancel := context.WithTimeout(r.t.Context(), recoverTime)
		defer cancel()
		return r.probe(ctx)
	})
	if err != nil {
		r.t.Errorf("not served %v after the fault's end: %v", recoverTime, err)
		r.diagnose()
		r.t.FailNow()
	}
	if err := r.ended(); err != nil {
		r.t.Fatal(err)
	}
	took := time.Since(start)
	r.slowest = max(r.slowest, took)
	if took > 3*time.Second {
		r.t.Logf("          recovered after %v", took.Round(10*time.Millisecond))
	}
}

func (r *wholeRun) diagnose() {
	for _, n := range r.nodes {
		s, err := n.status()
		r.t.Logf("%v: %+v %v", n, s, err)
	}
}

// finish ends the users and checks everything (FW1 to FW5, FW7).
func (r *wholeRun) finish() {
	r.t.Helper()
	r.end()
	r.stopUsers()
	r.losePower(r.nodes...)
	for _, n := range r.nodes {
		n.start()
	}
	r.settled(90*time.Second, len(r.nodes))
	r.recovers()
	for _, bad := range r.verdict() {
		r.t.Error(bad)
	}
	if r.t.Failed() {
		r.t.FailNow()
	}
	r.checkWhole()
	r.stopAll()
	r.checkFolders()
	r.t.Logf("%d operations on rows, a list of %d rows;%s", len(r.h.ops), r.h.listed, summary(r.h.counts))
	if n := r.h.counts["put"] + r.h.counts["cas"]; n < 100 {
		r.t.Errorf("only %d rows were written, too few to be conclusive", n)
	}
}

// verdict returns the violations in the users' histories and in the final state.
func (r *wholeRun) verdict() (bad []string) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Minute)
	defer cancel()
	final := map[string]int64{}
	each := func(name string, one func(*table.Row)) {
		s := r.db.Table(name).Scan(ctx)
		for s.Next() {
			one(s.Row())
		}
		if err := s.Err(); err != nil {
			bad = append(bad, fmt.Sprintf("scan %s in the end: %v", name, err))
		}
	}
	each(countTable, func(row *table.Row) { final[string(row.Key)] = number(row, "b:n") })
	l := listCheck{names: make(map[string]string, r.h.listed)}
	each(listTable, func(row *table.Row) {
		c, _ := client.Latest(row, "a:names")
		l.add(string(row.Key), string(c.Value))
	})
	last := rowOp{rowCall: rowCall{Kind: "scan"}, from: now()}
	each(rowsTable, func(row *table.Row) {
		a, _ := client.Latest(row, "a:v")
		last.Rows = append(last.Rows, rowSeen{string(row.Key), string(a.Value), number(row, "b:n")})
	})
	last.Whole, last.to = true, now()
	r.h.ops = append(r.h.ops, last)
	bad = append(bad, l.check(r.h.listed)...)
	bad = append(bad, r.h.judge(final)...)
	bad = append(bad, r.h.refused(r.quiet)...)
	return append(bad, r.linear()...)
}

// linear returns rows that no order explains (FW1).
func (r *wholeRun) linear() (bad []string) {
	ops := r.h.rowOps()
	patience := time.Minute + time.Duration(len(ops))*100*time.Microsecond
	if porcupine.CheckOperationsTimeout(rowModel, withoutUnseenRows(ops), patience) == porcupine.Ok {
		return nil
	}
	result, info := porcupine.CheckOperationsVerbose(rowModel, ops, 3*patience)
	if result == porcupine.Ok {
		return nil
	}
	path := filepath.Join(r.dir, "rows.html")
	if err := porcupine.VisualizePath(rowModel, info, path); err != nil {
		r.t.Log(err)
	}
	bad = append(bad, fmt.Sprintf("rows of %d operations are not linearizable (%v): %s", len(ops), result, path))
	for _, part := range rowModel.Partition(ops) {
		if porcupine.CheckOperationsTimeout(rowModel, part, 10*time.Second) == porcupine.Illegal && len(bad) < 4 {
			bad = append(bad, fmt.Sprintf("row %s:\n%s", part[0].Input.(rowCall).Row, shortestRow(part)))
		}
	}
	return bad
}
