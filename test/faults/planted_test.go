package faults

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/testseed"
)

// bugEnv selects the bugs of programs that are built with the tag plantedbugs.
const bugEnv = "STELE_BUG"

// plant is a planted bug with the faults that expose it. They are repeated while users are at work,
// and then the users' findings are judged as in TestCluster.
type plant struct {
	bugs   planted.Bug
	with   planted.Bug // another bug, without which the first has no effect
	nodes  int
	rounds int
	do     func(r *wholeRun, round int)
	change func(*userConfig)
	finds  string // pattern of the expected violations
	client bool   // only in the users' programs
	// schemas is set if the faults of TestSchemas are used instead.
	schemas bool
}

const (
	lostRows = `is not there|is named by none|in the end after|is missing|rows are missing|rows, want|accounts, want|audit: account \d+ is|not linearizable`
	lostAcks = `rows, want|in the end after`
	anything = ``
)

var plants = []plant{
	{bugs: planted.CheckWithoutLatch, rounds: 1, do: (*wholeRun).wait, finds: `two increments came to|made twice|not linearizable`},
	{bugs: planted.LoadWithoutRuns, rounds: 2, do: (*wholeRun).crashOne, finds: lostRows},
	{bugs: planted.UnloadWhileWritten, rounds: 3, do: (*wholeRun).moveAll, finds: lostRows + `|it is \d+ after it was`},
	{bugs: planted.ClockOnly, rounds: 3, do: (*wholeRun).moveBetweenClocks, finds: `timestamp \d+ is given after|not linearizable`},
	{bugs: planted.ScanRepeats, rounds: 6, do: crashServer(rowsTable), finds: `comes after`, client: true},
	{bugs: planted.CacheForEver, rounds: 2, do: (*wholeRun).moveAll, finds: `could not be written`, client: true,
		change: func(u *userConfig) { u.Farewell = 5 * time.Second }},
	{bugs: planted.SplitWithoutBounds, rounds: 5, do: (*wholeRun).splitAndMerge, finds: `not linearizable`},
	{bugs: planted.RedoTooFar, rounds: 3, do: (*wholeRun).crashInCompaction, finds: lostRows},
	{bugs: planted.AckBeforeSync, rounds: 3, do: (*wholeRun).crashSlowDisks, finds: lostRows},
	{bugs: planted.AckOneReplica, rounds: 5, do: (*wholeRun).crashBehind, finds: lostRows},
	{bugs: planted.IncrementAgain, rounds: 8, do: crashServer(countTable), finds: `in the end after|two increments|not linearizable`, client: true,
		change: func(u *userConfig) { u.Pace = 2 * time.Millisecond }},
	{bugs: planted.LeaseNotChecked, rounds: 3, do: (*wholeRun).isolateServer, finds: `it is \d+ after it was|not linearizable`},
	{bugs: planted.LeaseFromAnswer, rounds: 4, do: (*wholeRun).sleepingServer, finds: `it is \d+ after it was|not linearizable`},
	{bugs: planted.NotFenced, with: planted.LeaseNotChecked, nodes: 5, rounds: 5, do: (*wholeRun).cutFromMaster, finds: lostAcks},
	{bugs: planted.SchemaNotChecked, schemas: true, finds: `no t\S+ was there|what was dropped is there|is lost`},
	{bugs: planted.MetadataUnchecked, nodes: 5, rounds: 6, do: (*wholeRun).cutWhileWriting, finds: anything},
}

// TestPlantedBugs plants one bug at a time into the program, and expects the users and the checks
// of TestCluster to find it. It is a part of soaks.
func TestPlantedBugs(t *testing.T) {
	seed := testseed.New(t)
	if soakRuns() <= 1 {
		t.Logf("skipped: only in soaks; TestBugsAreFound of test/simulation plants bugs in each run")
		return
	}
	until := soakShare(3)
	nodes, users := plantedPrograms(t)
	t.Run("none", func(t *testing.T) { runUnplanted(t, seed) })
	for i := range plants {
		p := &plants[i]
		if time.Now().After(until) {
			break
		}
		t.Run(string(p.bugs), func(t *testing.T) {
			for try := range uint64(3) {
				found := p.run(t, seed+try, nodes, users)
				if found != "" {
					t.Logf("found: %.300s", found)
					return
				}
				t.Logf("not found in try %d", try+1)
			}
			t.Errorf("bug not found")
		})
	}
}

// plantedPrograms builds the program, and that of users, with selectable bugs.
func plantedPrograms(t *testing.T) (nodes, users string) {
	t.Helper()
	dir := t.TempDir()
	clock, err := overlay(dir)
	if err != nil {
		t.Fatal(err)
	}
	nodes, users = filepath.Join(dir, "stele"), filepath.Join(dir, "users")
	for _, args := range [][]string{
		{"build", "-buildvcs=false", "-tags", "plantedbugs", "-overlay", clock, "-o", nodes, programDir},
		{"test", "-c", "-tags", "plantedbugs", "-o", users, "."},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	return nodes, users
}

// run returns the violation that was found.
func (p *plant) run(t *testing.T, seed uint64, program, users string) string {
	if p.schemas {
		return p.found(t, schemaViolations(t, seed, string(p.bugs), program))
	}
	cfg := wholeConfig{
		nodes: max(3, p.nodes), users: []int{0, 0, 0}, bugs: string(p.bugs), program: program, userProgram: users,
		user: userConfig{ListWidth: 10, Pace: 10 * time.Millisecond, ListPause: 20 * time.Millisecond, Farewell: 30 * time.Second, Watch: 2},
	}
	if p.with != "" {
		cfg.bugs += "," + string(p.with)
	}
	cfg.plantUsersOnly = p.client
	if p.change != nil {
		p.change(&cfg.user)
	}
	r := newWholeRun(t, seed, cfg)
	r.shaker.rand = rand.New(rand.NewPCG(seed, 5))
	time.Sleep(time.Second)
	for round := range p.rounds {
		p.do(r, round)
		if r.noticed() {
			break
		}
	}
	time.Sleep(time.Second)
	r.stopUsers()
	bad := r.verdict()
	r.abandon()
	return p.found(t, bad)
}

// found returns the first expected violation.
func (p *plant) found(t *testing.T, bad []string) string {
	for _, b := range bad {
		if regexp.MustCompile(p.finds).MatchString(b) {
			return b
		}
	}
	for i, b := range bad {
		if i < 3 {
			t.Logf("unexpected violation: %.300s", b)
		}
	}
	return ""
}

// runUnplanted makes all those faults with the unmodified program: no violation may be found.
func runUnplanted(t *testing.T, seed uint64) {
	r := newWholeRun(t, seed, wholeConfig{
		nodes: 5, users: []int{0, 0, 0},
		user: userConfig{ListWidth: 10, Pace: 20 * time.Millisecond, ListPause: 50 * time.Millisecond, Farewell: time.Minute, Watch: 2},
	})
	for i := range plants {
		for round := range 2 {
			if plants[i].schemas {
				continue
			}
			plants[i].do(r, round)
			r.awaitServed()
		}
		if r.noticed() {
			t.Errorf("a user found a violation without %q planted", plants[i].bugs)
			break
		}
	}
	r.finish()
}

// noticed reports whether a user has recorded a violation.
func (r *wholeRun) noticed() bool {
	for _, u := range r.users {
		if b, err := os.ReadFile(u.history); err == nil && strings.Contains(string(b), `,"Bad":"`) {
			return true
		}
	}
	return false
}

// abandon ends a cluster that is no longer needed.
func (r *wholeRun) abandon() {
	for _, n := range r.nodes {
		n.kill()
	}
}

// awaitServed waits until all tables are served.
func (r *wholeRun) awaitServed() {
	_ = await(30*time.Second, func() error { // violations are reported in the end
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
		defer cancel()
		return r.probe(ctx)
	})
}

func (r *wholeRun) wait(int) { time.Sleep(4 * time.Second) }

// crashOne kills a node and starts it again.
func (r *wholeRun) crashOne(round int) {
	n := r.nodes[round%len(r.nodes)]
	n.kill()
	r.awaitServed()
	n.start()
	r.settled(30*time.Second, len(r.nodes))
	r.awaitServed()
}

// serverOf returns the node that has a table's first tablet.
func (r *wholeRun) serverOf(name string) *node {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	info, err := r.db.Tables().Describe(ctx, name)
	if err == nil && len(info.Tablets) > 0 {
		for _, n := range r.nodes {
			if info.Tablets[0].Node == n.String() || info.Tablets[0].Node == n.id {
				return n
			}
		}
	}
	return r.nodes[0]
}

// crashServer kills the node that has a table.
func crashServer(name string) func(*wholeRun, int) {
	return func(r *wholeRun, _ int) {
		n := r.serverOf(name)
		n.kill()
		n.start()
		r.awaitServed()
		time.Sleep(500 * time.Millisecond)
	}
}

// moveAll moves the first tablet of each table to the next node. It does not return to its first
// node in fewer moves than there are nodes.
func (r *wholeRun) moveAll(int) {
	var moves sync.WaitGroup
	for _, name := range userTables {
		moves.Go(func() {
			ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
			defer cancel()
			next := r.nodes[(slices.Index(r.nodes, r.serverOf(name))+1)%len(r.nodes)]
			_, _ = r.db.Tablets().Move(ctx, name, client.TabletRef{}, next.String())
		})
	}
	moves.Wait()
	time.Sleep(500 * time.Millisecond)
}

func (r *wholeRun) moveBetweenClocks(round int) {
	for i, n := range r.nodes {
		n.setClock(time.Duration(i-1) * time.Hour)
	}
	r.moveAll(round)
}

// splitAndMerge deletes rows in one part of a tablet whose files the other part shares.
func (r *wholeRun) splitAndMerge(int) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	at := rowKey(rowGroups/2, 0)
	_ = r.db.Tables().Compact(ctx, rowsTable, false)
	_, _ = r.db.Tablets().Split(ctx, rowsTable, at)
	time.Sleep(1500 * time.Millisecond)
	_ = r.db.Tablets().Compact(ctx, rowsTable, client.TabletRef{}, true)
	_, _ = r.db.Tablets().Merge(ctx, rowsTable, client.TabletRef{})
}

// crashInCompaction kills all nodes while memtables are written out continuously.
func (r *wholeRun) crashInCompaction(int) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
	var busy sync.WaitGroup
	for _, name := range userTables {
		busy.Go(func() {
			for ctx.Err() == nil {
				_ = r.db.Tables().Compact(ctx, name, false)
			}
		})
	}
	time.Sleep(1900 * time.Millisecond)
	r.crashAll()
	cancel()
	busy.Wait()
	r.awaitServed()
}

func (r *wholeRun) crashAll() {
	for _, n := range r.nodes {
		n.kill()
	}
	for _, n := range r.nodes {
		n.start()
	}
}

// crashSlowDisks cuts the power of all nodes before any of them has synced its recent writes. If
// disks cannot lose power, unsynced data is kept.
func (r *wholeRun) crashSlowDisks(int) {
	for _, n := range r.nodes {
		r.slow = append(r.slow, n.trace("pwrite64,"+syncs, "delay_enter=50000"))
	}
	time.Sleep(1500 * time.Millisecond)
	r.losePower(r.nodes...)
	for _, n := range r.nodes {
		n.start()
	}
	r.speedUp(fault{})
	r.awaitServed()
	time.Sleep(500 * time.Millisecond)
}

// crashBehind kills a node just when another one has fallen behind with its log.
func (r *wholeRun) crashBehind(round int) {
	n := r.serverOf(listTable)
	behind := r.nodes[(n.number)%len(r.nodes)] // the next
	behind.pause()
	time.Sleep(time.Duration(40+20*round) * time.Millisecond)
	n.kill()
	behind.resume()
	n.start()
	r.awaitServed()
	time.Sleep(500 * time.Millisecond)
}

// cutOff disconnects a node from the other nodes, not from users.
func (r *wholeRun) cutOff(n *node) {
	for _, o := range r.nodes {
		if o != n {
			r.lab.Partition(hosts([]*node{n}), hosts([]*node{o}))
		}
	}
}

// isolateServer disconnects the node that has the counters from the other nodes, not from users.
func (r *wholeRun) isolateServer(int) {
	r.cutOff(r.serverOf(countTable))
	time.Sleep(6 * time.Second)
	r.lab.Heal()
	r.awaitServed()
}

// sleepingServer pauses the node that has the counters for longer than its lease, with an answer to
// its last lease request in transit, and resumes it where no other node can correct it.
func (r *wholeRun) sleepingServer(int) {
	n := r.serverOf(countTable)
	n.pause()
	time.Sleep(2500 * time.Millisecond)
	r.cutOff(n)
	time.Sleep(1500 * time.Millisecond)
	n.resume()
	time.Sleep(1500 * time.Millisecond)
	r.lab.Heal()
	r.awaitServed()
}

// cutFromMaster cuts the connection between a node and the leader. It loses its lease but can still
// write to its log on the others.
func (r *wholeRun) cutFromMaster(round int) {
	l := r.leader()
	n := r.serverOf(userTables[round%len(userTables)])
	if l == nil || l == n {
		r.moveAll(round)
		return
	}
	r.lab.Cut(hosts([]*node{l}), hosts([]*node{n}))
	r.lab.Cut(hosts([]*node{n}), hosts([]*node{l}))
	time.Sleep(6 * time.Second)
	r.lab.Heal()
	r.awaitServed()
}

// cutWhileWriting isolates a node while it changes rows of METADATA continuously.
func (r *wholeRun) cutWhileWriting(round int) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	var busy sync.WaitGroup
	for _, name := range userTables {
		busy.Go(func() {
			for ctx.Err() == nil {
				_ = r.db.Tables().Compact(ctx, name, false)
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	n := r.serverOf(userTables[round%len(userTables)])
	r.cutOff(n)
	time.Sleep(4 * time.Second)
	r.lab.Heal()
	time.Sleep(time.Second)
	cancel()
	busy.Wait()
	r.awaitServed()
}
