package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/netlab"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/table"
)

const (
	// wholeFaultsShort, wholeFaultsLong and wholeFaultsSoak are the faults of one run.
	wholeFaultsShort, wholeFaultsLong, wholeFaultsSoak = 3, 14, 30
	// wholeLengthMax and wholeLengthMaxSoak bound the length of a fault.
	wholeLengthMax, wholeLengthMaxSoak = 6 * time.Second, 60 * time.Second
	// listRowsSoak is how many rows the linked list has at least in the end of a soak's run.
	listRowsSoak = 1_000_000
	// probeTable has rows that only the test writes.
	probeTable = "probe"
)

// wholeRun is one life of a cluster whose tablets meet faults.
type wholeRun struct {
	*cluster
	seed    uint64
	cfg     wholeConfig
	lib     *session.Client
	db      *client.Client // of the whole cluster, patient
	users   []*userProcess
	probed  int
	slowest time.Duration
	slow    []*netlab.Process // that slow syncs down
	shaker  *shaker
	end     func() // of what the test itself does to tablets
	h       userHistories
}

// userProcess is a user on a host.
type userProcess struct {
	host    *netlab.Host
	proc    *netlab.Process
	stdin   io.WriteCloser
	history string
}

// TestCluster runs five nodes through random faults of machines, networks, disks and clocks, while
// tablets are split, merged and moved (W1 to W7).
func TestCluster(t *testing.T) {
	seed := testSeed(t)
	until := soakShare(1)
	faults, longest := wholeFaultsLong, wholeLengthMax
	runs := soakRuns()
	switch {
	case runs > 1:
		faults, longest = wholeFaultsSoak, wholeLengthMaxSoak
	case testing.Short():
		faults = wholeFaultsShort
	}
	if runs == 1 {
		t.Parallel() // it waits much
	}
	for i := 0; i < runs && time.Now().Before(until); i++ {
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
		nodes: 5, users: []int{0, 0, 1, 2}, shake: true, // two users hear everybody, two are on hosts of nodes
		user: userConfig{ListWidth: 20, Pace: 60 * time.Millisecond, ListPause: 100 * time.Millisecond, Farewell: time.Minute},
	}
	if longest > wholeLengthMax { // a soak
		cfg.roomy = true
		cfg.user.ListWidth, cfg.user.ListPause, cfg.user.ListRows = 500, 50*time.Millisecond, listRowsSoak/len(cfg.users)
		cfg.user.Farewell = 10 * time.Minute
	}
	r := newWholeRun(t, seed, cfg)
	start, done := time.Now(), 0
	for _, step := range wholePlan(rand.New(rand.NewPCG(seed, 1)), faults, len(r.nodes), longest) {
		if time.Now().After(until) {
			break
		}
		done += len(step)
		r.step(start, step)
	}
	t.Logf("%d faults in %v; slowest recovery %v; %v", done, time.Since(start).Round(time.Second), r.slowest.Round(time.Millisecond), r.shaker)
	r.finish()
}

// wholeConfig says what a run begins with.
type wholeConfig struct {
	nodes int
	users []int // the host of each: 0 is that of the test, which no fault meets
	user  userConfig
	roomy bool // disks
	shake bool
	// bugs are planted into the program, and the users' program is another.
	bugs                 string
	soundNodes           bool // and not into those of nodes
	program, userProgram string
}

// newWholeRun brings up a cluster, tables and users.
func newWholeRun(t *testing.T, seed uint64, cfg wholeConfig) *wholeRun {
	t.Helper()
	c := newCluster(t, cfg.nodes)
	if cfg.bugs != "" && !cfg.soundNodes {
		c.bugs, c.program = cfg.bugs, cfg.program
	}
	disk, more := int64(diskBytes), int64(moreDiskBytes)
	if cfg.roomy {
		disk, more = 4*disk, 4*more
	}
	c.settings = []string{"--extent-size", "4MiB", "--reserve", fmt.Sprint(storeReserve)}
	for _, n := range c.nodes {
		n.addDisk("disk", disk)
		n.addDisk("more", more)
	}
	c.form()
	r := &wholeRun{cluster: c, cfg: cfg, seed: seed, lib: c.service(), h: userHistories{counts: map[string]int{}}}
	var err error
	r.db, err = client.Open(t.Context(), strings.Join(c.addresses(), ","), client.Config{DialTimeout: time.Second, RetryTimeMax: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() }) // always nil
	r.makeTables()
	hosts := append([]*netlab.Host{c.lab.Here}, c.lab.Hosts()...)
	user := cfg.user
	user.Seed, user.Servers = seed, c.addresses()
	for i, host := range cfg.users {
		r.startUser(hosts[host], i+1, user)
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

// makeTables makes the tables, and the accounts.
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
		if _, err := r.db.CreateTable(ctx, name, families...); err != nil {
			r.t.Fatal(err)
		}
	}
	for i := range accounts {
		if err := r.db.Table(bankTable).Apply(ctx, account(i, accountTotal/2, accountTotal/2, 0)); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *wholeRun) startUser(host *netlab.Host, number int, cfg userConfig) {
	r.t.Helper()
	cfg.Number, cfg.History = number, filepath.Join(r.dir, fmt.Sprintf("user-%d.jsonl", number))
	b, err := json.Marshal(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(cfg.History, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(r.dir, fmt.Sprintf("user-%d.log", number)))
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Close()
	u := &userProcess{host: host, history: cfg.History}
	cmd := exec.Command(cmp.Or(r.cfg.userProgram, os.Args[0]))
	cmd.Env = append(os.Environ(), roleEnv+"=user", userEnv+"="+string(b), bugEnv+"="+r.cfg.bugs)
	cmd.Stdout, cmd.Stderr = out, out
	if u.stdin, err = cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	if u.proc, err = host.Start(cmd); err != nil {
		r.t.Fatal(err)
	}
	r.users = append(r.users, u)
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

// recovers waits until all tables are served after a fault (W6).
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

// finish ends the users and looks at everything (W1 to W5, W7).
func (r *wholeRun) finish() {
	r.t.Helper()
	r.end()
	r.dismiss()
	for _, n := range r.nodes {
		n.kill()
	}
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
		r.t.Errorf("only %d rows were written, which shows little", n)
	}
}

// dismiss has the users end, and waits until they have.
func (r *wholeRun) dismiss() {
	r.t.Helper()
	for _, u := range r.users {
		if err := u.stdin.Close(); err != nil {
			r.t.Errorf("user: %v", err)
		}
	}
	for i, u := range r.users {
		select {
		case <-u.proc.Done():
			if err := u.proc.Err(); err != nil {
				said, _ := os.ReadFile(strings.TrimSuffix(u.history, "jsonl") + "log")
				r.t.Errorf("user %d: %v: %s", i+1, err, tail(string(said), 20))
			}
		case <-time.After(r.cfg.user.Farewell + 30*time.Second):
			r.t.Errorf("user %d does not end", i+1)
			_ = u.proc.Signal(15)
		}
		if err := r.h.read(i+1, u.history); err != nil {
			r.t.Error(err)
		}
	}
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// verdict tells what is wrong with what the users have seen, and with what is there in the end.
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
	return append(bad, r.linear()...)
}

// linear tells of rows that no order explains (W1).
func (r *wholeRun) linear() (bad []string) {
	ops := r.h.rowOps()
	if porcupine.CheckOperationsTimeout(rowModel, withoutUnseenRows(ops), time.Minute) == porcupine.Ok {
		return nil
	}
	result, info := porcupine.CheckOperationsVerbose(rowModel, ops, 3*time.Minute)
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
