package faults

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

const (
	// schemaFaults... are the numbers of faults of one run, schemaLength... bound their length.
	schemaFaultsShort, schemaFaults, schemaFaultsSoak = 1, 5, 60
	schemaLengthMax, schemaLengthMaxSoak              = 3 * time.Second, 20 * time.Second
	// schemaTime is the latest begin of a fault in a run that is not a soak: a busy machine has
	// fewer faults.
	schemaTime = 20 * time.Second
	// schemaOwners is the number of goroutines that change schemas, each of its own tables.
	schemaOwners = 3
	// schemaPace bounds the pause of writers and readers after each operation.
	schemaPace = 25 * time.Millisecond
	// schemaCall bounds one change of a schema.
	schemaCall = 30 * time.Second
	// schemaTables is the number of tables of each owner that are written to, including dropped
	// ones.
	schemaTables = 2
)

// schemaFamilies are the families of each table. They are dropped and added again.
var schemaFamilies = []string{"a", "b"}

// schemaKinds are the faults of TestSchemas, a subset of wholeKinds.
var schemaKinds = []string{"kill one", "kill master", "pause one", "pause master", "isolate one"}

// schemaRun is one run of a cluster whose tables are created and dropped.
type schemaRun struct {
	*cluster
	db     *client.Client // for changes, moves and scans
	ledger *schemaLedger
	seed   uint64
	rows   atomic.Int64
	ctx    context.Context // of all goroutines that use the cluster

	// calm is closed when the current fault is over and tables are served again.
	calm struct {
		sync.Mutex
		c chan struct{}
	}
}

// TestSchemas drops, creates and alters tables while they are written, read, moved, split and
// merged, and nodes are killed, paused and disconnected (FS1 to FS4).
func TestSchemas(t *testing.T) {
	seed := testseed.New(t)
	until := soakShare(4)
	faults, longest := schemaFaults, schemaLengthMax
	runs := soakRuns()
	switch {
	case runs > 1:
		faults, longest = schemaFaultsSoak, schemaLengthMaxSoak
	case testing.Short():
		faults = schemaFaultsShort
	}
	if runs == 1 {
		t.Parallel() // mostly waiting
		runSchemas(t, seed, faults, longest, time.Time{})
		return
	}
	for i := 0; i < runs && time.Now().Before(until); i++ {
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("this run alone: STELE_SOAK=2 STELE_SEED=%d go test ./test/faults -count=1 -timeout 0 -v -run '^TestSchemas$/^0$'", seed+uint64(i))
			runSchemas(t, seed+uint64(i), faults, longest, until)
		})
		if !ok {
			break
		}
	}
}

func runSchemas(t *testing.T, seed uint64, faults int, longest time.Duration, until time.Time) {
	r := newSchemaRun(newCluster(t, 3), seed)
	for _, bad := range r.run(faults, longest, until) {
		t.Error(bad)
	}
	if t.Failed() {
		t.FailNow()
	}
	r.stopAll()
}

// schemaViolations returns the violations of a run with a planted bug.
func schemaViolations(t *testing.T, seed uint64, bugs, program string) []string {
	c := newCluster(t, 3)
	c.bugs, c.program = bugs, program
	bad := newSchemaRun(c, seed).run(schemaFaults, schemaLengthMax, time.Time{})
	for _, n := range c.nodes {
		n.kill()
	}
	return bad
}

// run makes faults while schemas change, and returns the violations. A zero until means schemaTime
// from now.
func (r *schemaRun) run(faults int, longest time.Duration, until time.Time) []string {
	r.t.Helper()
	stop := r.begin()
	start := time.Now()
	if until.IsZero() {
		until = start.Add(schemaTime)
	}
	for _, f := range plan(rand.New(rand.NewPCG(r.seed, 1)), schemaKinds, faults, len(r.nodes), longest) {
		if time.Now().After(until) || len(r.ledger.violations()) > 0 {
			break
		}
		r.t.Logf("%6.1f s: %s for %v", time.Since(start).Seconds(), f.kind, f.length)
		r.fault(f)
	}
	// Short faults leave a busy machine little time for changes.
	enough := await(recoverTime, func() error {
		if lacks := r.lacks(); len(lacks) > 0 && len(r.ledger.violations()) == 0 {
			return fmt.Errorf("%v", lacks)
		}
		return nil
	})
	if enough != nil {
		r.ledger.violation("%v after the last fault's end, still too few: %v", recoverTime, enough)
	}
	stop()
	bad := r.finish()
	r.t.Logf("%.0f s of faults:%v", time.Since(start).Seconds(), &r.ledger.ledger)
	return bad
}

// newSchemaRun starts the cluster, and creates the table that shows the end of each fault.
func newSchemaRun(c *cluster, seed uint64) *schemaRun {
	c.t.Helper()
	c.form()
	r := &schemaRun{cluster: c, seed: seed, ledger: newSchemaLedger()}
	r.db = r.open()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	if _, err := r.db.Tables().Create(ctx, probeTable, table.FamilySpec{Name: "a"}); err != nil {
		c.t.Fatal(err)
	}
	return r
}

// open returns a client with its own cache.
func (r *schemaRun) open() *client.Client {
	r.t.Helper()
	db, err := client.Open(r.t.Context(), strings.Join(r.addresses(), ","),
		r.keys.as(client.Config{DialTimeout: time.Second, RetryTimeMax: 10 * time.Second}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = db.Close() }) // always nil
	return db
}

// begin starts all goroutines that use the cluster; stop ends them.
func (r *schemaRun) begin() (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.ctx = ctx
	var owners, others sync.WaitGroup
	stream := uint64(10)
	start := func(group *sync.WaitGroup, do func(*rand.Rand)) {
		stream++
		random := rand.New(rand.NewPCG(r.seed, stream))
		group.Go(func() { do(random) })
	}
	for i := range schemaOwners {
		start(&owners, (&schemaOwner{schemaRun: r, number: i}).run)
	}
	for range 3 {
		db := r.open()
		start(&others, func(random *rand.Rand) { r.write(random, db) })
	}
	for range 2 {
		start(&others, r.writePlain)
	}
	for range 2 {
		db := r.open()
		start(&others, func(random *rand.Rand) { r.read(random, db) })
	}
	start(&others, r.shake)
	stop = sync.OnceFunc(func() {
		cancel()
		owners.Wait()
		others.Wait()
	})
	r.t.Cleanup(stop)
	return stop
}

// fault does one fault, and waits until tables are served again.
func (r *schemaRun) fault(f fault) {
	r.t.Helper()
	r.ledger.count("faults: " + f.kind)
	r.calm.Lock()
	r.calm.c = make(chan struct{})
	r.calm.Unlock()
	switch f.kind {
	case "kill one":
		r.kill(f, 1)
	case "kill master":
		r.killLeader(f)
	case "pause one":
		r.pause(f, 1)
	case "pause master":
		r.pauseLeader(f)
	case "isolate one":
		r.split(f, 1, false)
	}
	time.Sleep(f.length)
	r.lab.Heal()
	r.resumeAll(f)
	r.startAll(f)
	r.recovers()
	r.calm.Lock()
	close(r.calm.c)
	r.calm.c = nil
	r.calm.Unlock()
	time.Sleep(f.rest)
}

// awaitCalm waits for the end of the current fault, when pending requests have ended too.
func (r *schemaRun) awaitCalm() {
	r.calm.Lock()
	c := r.calm.c
	r.calm.Unlock()
	if c == nil {
		return
	}
	select {
	case <-c:
	case <-r.ctx.Done():
	}
}

// recovers waits until a table is served after a fault (FS4).
func (r *schemaRun) recovers() {
	r.t.Helper()
	err := await(recoverTime, func() error {
		ctx, cancel := context.WithTimeout(r.t.Context(), recoverTime)
		defer cancel()
		m := client.NewRowMutation("r").Set("a:p", []byte("v"))
		if err := r.db.Table(probeTable).Apply(ctx, m); err != nil && !errors.Is(err, client.ErrAmbiguous) {
			return err
		}
		_, err := r.db.Tables().List(ctx)
		return err
	})
	if err == nil {
		err = r.ended()
	}
	if err != nil {
		r.t.Fatalf("not served %v after the fault's end: %v", recoverTime, err)
	}
}

// finish returns the violations, after a last scan of all tables.
func (r *schemaRun) finish() []string {
	r.t.Helper()
	r.ctx = r.t.Context()
	tables, err := r.db.Tables().List(r.ctx)
	if err != nil {
		r.ledger.violation("list tables in the end: %v", err)
	}
	for _, s := range tables {
		if s.Name != probeTable {
			r.scan(s.Name)
		}
	}
	return r.ledger.violations()
}

// lacks returns what a run has not done often enough to show anything.
func (r *schemaRun) lacks() (all []string) {
	if testing.Short() {
		return nil
	}
	for what, least := range map[string]int{"writes " + string(rowAcked): 50, "scans": 1, "drops": 1, "family drops": 1} {
		if n := r.ledger.counted(what); n < least {
			all = append(all, fmt.Sprintf("%s: %d of %d", what, n, least))
		}
	}
	return all
}

// row returns a new row key; keys are spread over the table.
func (r *schemaRun) row() string {
	n := r.rows.Add(1)
	h := fnv.New32a()
	fmt.Fprint(h, n)
	return fmt.Sprintf("%02x-%d", h.Sum32()&0xff, n)
}

// schemaChoice returns one or all of the families of tables.
func schemaChoice(random *rand.Rand) []string {
	if n := random.IntN(len(schemaFamilies) + 1); n < len(schemaFamilies) {
		return schemaFamilies[n : n+1]
	}
	return schemaFamilies
}

// idle pauses after an operation.
func (r *schemaRun) idle(random *rand.Rand) {
	pause(r.ctx, time.Duration(random.Int64N(int64(schemaPace))))
}

// settle records the outcome of a write.
func (r *schemaRun) settle(row string, err error) {
	switch {
	case err == nil:
		r.ledger.end(row, rowAcked)
	case errors.Is(err, client.ErrAmbiguous):
		r.ledger.end(row, rowUnknown)
	default:
		r.ledger.end(row, rowRefused)
		if errors.Is(err, client.ErrCorrupt) {
			r.ledger.violation("write row %s: %v", row, err)
		}
	}
}

// write writes rows with a client that caches tablet locations.
func (r *schemaRun) write(random *rand.Rand, db *client.Client) {
	for ; r.ctx.Err() == nil; r.idle(random) {
		name := r.ledger.pick(random.IntN)
		if name == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(r.ctx, 100*time.Millisecond+time.Duration(random.Int64N(int64(5*time.Second))))
		switch t, n := db.Table(name), random.IntN(10); {
		case n < 6:
			r.writeOne(random, name, func(m *client.RowMutation) error { return t.Apply(ctx, m) })
		case n < 7:
			r.writeMany(ctx, random, t)
		case n < 8:
			r.writeOne(random, name, func(m *client.RowMutation) error {
				_, err := t.CheckAndMutate(ctx, m.Row(), nil, nil, m)
				return err
			})
		default:
			family := schemaFamilies[random.IntN(len(schemaFamilies))]
			row := r.row()
			r.ledger.begin(row, name, 0, []string{family})
			_, err := t.Append(ctx, row, family+":v", []byte(row))
			r.settle(row, err)
		}
		cancel()
	}
}

func (r *schemaRun) writeOne(random *rand.Rand, name string, write func(*client.RowMutation) error) {
	row, families := r.row(), schemaChoice(random)
	m := schemaMutation(row, families)
	r.ledger.begin(row, name, 0, families)
	r.settle(row, write(m))
}

func schemaMutation(row string, families []string) *client.RowMutation {
	m := client.NewRowMutation(row)
	for _, f := range families {
		m.Set(f+":v", []byte(row))
	}
	return m
}

// writeMany writes rows in one call; each has its own outcome.
func (r *schemaRun) writeMany(ctx context.Context, random *rand.Rand, t *client.Table) {
	var ms []*client.RowMutation
	families := schemaChoice(random)
	for range 5 {
		row := r.row()
		ms = append(ms, schemaMutation(row, families))
		r.ledger.begin(row, t.Name(), 0, families)
	}
	err := t.ApplyAll(ctx, ms)
	var each *client.BatchError
	errors.As(err, &each)
	for i, m := range ms {
		one := err
		if each != nil {
			one = each.Errs[i]
		}
		r.settle(m.Row(), one)
	}
}

// writePlain writes rows like a client that only follows docs/rpc.md. It calls any node, and then
// the one that the answer names. It names the table by its name only, or also by its id, which may
// be that of an earlier table.
func (r *schemaRun) writePlain(random *rand.Rand) {
	conns := map[string]*rpc.Conn{}
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for ; r.ctx.Err() == nil; r.idle(random) {
		name := r.ledger.pick(random.IntN)
		if name == "" {
			continue
		}
		req := api.MutateRequest{Table: name}
		row, families := r.row(), schemaChoice(random)
		for _, f := range families {
			req.Row.Mutations = append(req.Row.Mutations, table.Set(f, []byte("v"), table.ServerTimestamp, []byte(row)))
		}
		req.Row.Row = []byte(row)
		ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
		if random.IntN(2) == 0 {
			req.TableID = r.ledger.idOf(name, random.IntN)
		}
		r.ledger.begin(row, name, req.TableID, families)
		r.settle(row, r.mutate(ctx, conns, r.nodes[random.IntN(len(r.nodes))].address(), &req))
		cancel()
	}
}

// mutate sends a request to a node, and again to the one that the answer names.
func (r *schemaRun) mutate(ctx context.Context, conns map[string]*rpc.Conn, addr string, req *api.MutateRequest) (err error) {
	for range 2 {
		conn := conns[addr]
		if conn == nil {
			dial, cancel := context.WithTimeout(ctx, time.Second)
			conn, err = rpc.Dial(dial, addr, rpc.ConnConfig{Dialer: dialer(r.keys.node)})
			cancel()
			if err != nil {
				return err
			}
			conns[addr] = conn
		}
		err = conn.Call(ctx, api.MethodMutate, req.Append, func(*wire.Decoder) error { return nil })
		var answer *rpc.Error
		var elsewhere *api.NotServingError
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &answer):
			_ = conn.Close()
			delete(conns, addr)
			return &client.AmbiguousError{Method: api.MethodMutate, Err: err}
		case answer.Code == api.CodeOutcomeUnknown || answer.Code == rpc.CodeInternal || answer.Code == rpc.CodeDeadlineExceeded:
			return &client.AmbiguousError{Method: api.MethodMutate, Err: err}
		case !errors.As(api.FromRPC(err), &elsewhere) || elsewhere.Addr == "":
			return err
		}
		addr = elsewhere.Addr
	}
	return err
}

// read reads acknowledged rows.
func (r *schemaRun) read(random *rand.Rand, db *client.Client) {
	for ; r.ctx.Err() == nil; r.idle(random) {
		row, name := r.ledger.recent(random.IntN)
		if row == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
		from := now()
		got, err := db.Table(name).Get(ctx, row)
		cancel()
		switch {
		case err == nil:
			r.ledger.read(row, from, schemaCells(got), false)
		case errors.Is(err, client.ErrNoTable):
			r.ledger.read(row, from, nil, true)
		case errors.Is(err, client.ErrCorrupt):
			r.ledger.violation("read row %s of %s: %v", row, name, err)
		}
	}
}

// schemaCells returns the values of a row by family.
func schemaCells(row *table.Row) map[string]string {
	found := map[string]string{}
	if row != nil {
		for _, c := range row.Cells {
			found[c.Family] = string(c.Value)
		}
	}
	return found
}

// scan scans a table and lets the ledger judge the result. The caller does not change the table's
// schema meanwhile.
func (r *schemaRun) scan(name string) {
	err := await(recoverTime, func() error {
		from, rows := now(), map[string]map[string]string{}
		s := r.db.Table(name).Scan(r.ctx, client.BatchRows(50))
		defer s.Close()
		for s.Next() {
			rows[string(s.Row().Key)] = schemaCells(s.Row())
		}
		if r.ctx.Err() != nil {
			return nil
		}
		if s.Err() == nil {
			r.ledger.scanned(name, from, rows)
		}
		if errors.Is(s.Err(), client.ErrNoTable) && r.ledger.doomed(name) {
			return nil // the drop was under way when the table was listed
		}
		return s.Err()
	})
	if err != nil {
		r.ledger.violation("scan %s: %v", name, err)
	}
}

// shake moves, splits and merges tablets of tables that may be dropped at any time.
func (r *schemaRun) shake(random *rand.Rand) {
	for ; r.ctx.Err() == nil; pause(r.ctx, time.Duration(random.Int64N(int64(150*time.Millisecond)))) {
		name := r.ledger.pick(random.IntN)
		if name == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(r.ctx, 10*time.Second)
		at := client.TabletRef{Row: fmt.Sprintf("%02x", random.IntN(256))}
		what, err := "", error(nil)
		switch n := random.IntN(20); {
		case n < 10:
			what = "moves"
			_, err = r.db.Tablets().Move(ctx, name, at, r.nodes[random.IntN(len(r.nodes))].String())
		case n < 14:
			what = "splits"
			_, err = r.db.Tablets().Split(ctx, name, at.Row)
		case n < 17:
			what = "merges"
			_, err = r.db.Tablets().Merge(ctx, name, at)
		default:
			what = "compactions"
			err = r.db.Tables().Compact(ctx, name, n == 17)
		}
		cancel()
		switch {
		case err == nil:
			r.ledger.count(what)
		case errors.Is(err, client.ErrCorrupt):
			r.ledger.violation("%s of %s: %v", what, name, err)
		}
	}
}

// schemaOwner changes the schemas of its own tables.
type schemaOwner struct {
	*schemaRun
	number, made int
	live         []string // existing
	free         []string // may be created again
	used         []string // written to, newest last
}

// run makes one change after the other.
func (o *schemaOwner) run(random *rand.Rand) {
	for o.ctx.Err() == nil {
		if len(o.live) == 0 {
			o.create(o.fresh())
		}
		pause(o.ctx, time.Duration(random.Int64N(int64(400*time.Millisecond))))
		if len(o.live) == 0 || o.ctx.Err() != nil {
			continue
		}
		name := o.live[random.IntN(len(o.live))]
		switch n := random.IntN(10); {
		case n < 3: // replace the table
			o.scan(name)
			if o.drop(name) && slices.Contains(o.free, name) {
				pause(o.ctx, time.Duration(random.Int64N(int64(20*time.Millisecond))))
				o.create(name)
			}
		case n < 5: // as if a table were renamed
			if len(o.live) < schemaTables {
				if len(o.free) > 0 && random.IntN(2) == 0 {
					o.create(o.free[0])
				} else {
					o.create(o.fresh())
				}
			}
			o.scan(name)
			o.drop(name)
		case n < 9:
			o.scan(name)
			o.renewFamily(name, schemaFamilies[random.IntN(len(schemaFamilies))], time.Duration(random.Int64N(int64(20*time.Millisecond))))
		default:
			o.alter(name, func(ctx context.Context) error {
				_, err := o.db.Tables().SetFamily(ctx, name, schemaSpec("a"))
				return err
			})
		}
	}
}

// fresh returns an unused name.
func (o *schemaOwner) fresh() string {
	o.made++
	return fmt.Sprintf("t%d-%d", o.number, o.made)
}

func schemaSpec(family string) table.FamilySpec {
	spec, err := table.ParseFamilySpec(family + ":versions=1,group=" + family)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return spec
}

// try repeats a change until its outcome is known: it was made if an attempt succeeds, or if a
// later one fails with after. sure is false if an earlier attempt may still be pending, and so undo
// a later change.
func (o *schemaOwner) try(what, name string, after error, do func(context.Context) error) (made, sure bool) {
	sure = true
	for attempt := 0; o.ctx.Err() == nil; attempt++ {
		ctx, cancel := context.WithTimeout(o.ctx, schemaCall)
		err := do(ctx)
		cancel()
		switch {
		case err == nil || attempt > 0 && errors.Is(err, after):
			o.ledger.count(what)
			return true, sure
		case o.ctx.Err() != nil:
		case errors.Is(err, after):
			o.ledger.violation("%s of %s at %s: %v", what, name, seconds(now()), err)
			return false, false
		case errors.Is(err, client.ErrAmbiguous):
			sure = false
			fallthrough
		default:
			o.ledger.count(what + " not done yet")
			o.awaitCalm()
			pause(o.ctx, 100*time.Millisecond)
		}
	}
	return false, false
}

// errNothing matches the error of no change.
var errNothing = errors.New("nothing")

func (o *schemaOwner) create(name string) {
	o.free = slices.DeleteFunc(o.free, func(n string) bool { return n == name })
	all := o.ledger.bear(name, schemaFamilies...)
	if !slices.Contains(o.used, name) {
		o.used = append(o.used, name)
		o.ledger.use(name)
	}
	var id uint64
	made, sure := o.try("creates", name, client.ErrTableExists, func(ctx context.Context) error {
		s, err := o.db.Tables().Create(ctx, name, schemaSpec("a"), schemaSpec("b"))
		if err == nil {
			id = s.ID
		}
		return err
	})
	if made && id == 0 { // an earlier attempt made it
		made, sure = false, false
	}
	if !made || !sure {
		o.abandon(name, all)
		return
	}
	o.ledger.made(all, id)
	o.live = append(o.live, name)
}

// abandon stops using a table whose state is unknown.
func (o *schemaOwner) abandon(name string, all []*life) {
	o.ledger.count("tables abandoned")
	o.ledger.change(all, func(x *life) { x.unknown = true })
	o.live = slices.DeleteFunc(o.live, func(n string) bool { return n == name })
	o.unuse(name)
}

func (o *schemaOwner) unuse(name string) {
	o.used = slices.DeleteFunc(o.used, func(n string) bool { return n == name })
	o.ledger.retire(name)
}

// drop drops a table, which is still written to for a while. It reports whether the table is gone.
func (o *schemaOwner) drop(name string) bool {
	all := o.ledger.last(name, schemaFamilies...)
	o.ledger.change(all, func(x *life) { x.doomed = now() })
	o.live = slices.DeleteFunc(o.live, func(n string) bool { return n == name })
	gone, sure := o.try("drops", name, client.ErrNoTable, func(ctx context.Context) error { return o.db.Tables().DropNow(ctx, name) })
	if !gone {
		o.abandon(name, all)
		return false
	}
	o.ledger.change(all, func(x *life) { x.dead = now() })
	if sure { // otherwise a pending attempt could drop the next table of that name
		o.free = append(o.free, name)
	}
	if len(o.used) > schemaTables {
		old := o.used[0]
		o.free = slices.DeleteFunc(o.free, func(n string) bool { return n == old })
		if !slices.Contains(o.live, old) {
			o.unuse(old)
		}
	}
	return true
}

// renewFamily drops a family and adds it again after a pause.
func (o *schemaOwner) renewFamily(name, family string, after time.Duration) {
	old := o.ledger.last(name, family)
	o.ledger.change(old, func(x *life) { x.doomed = now() })
	gone, sure := o.try("family drops", name, client.ErrNoFamily, func(ctx context.Context) error {
		_, err := o.db.Tables().DropFamily(ctx, name, family)
		return err
	})
	if !gone || !sure {
		o.abandon(name, o.ledger.last(name, schemaFamilies...))
		return
	}
	o.ledger.change(old, func(x *life) { x.dead = now() })
	pause(o.ctx, after)
	fresh := o.ledger.bear(name, family)
	if made, sure := o.try("family adds", name, errNothing, func(ctx context.Context) error {
		_, err := o.db.Tables().SetFamily(ctx, name, schemaSpec(family))
		return err
	}); !made || !sure {
		o.abandon(name, o.ledger.last(name, schemaFamilies...))
		return
	}
	o.ledger.change(fresh, func(x *life) { x.made = now() })
}

// alter makes a change that leaves all families as they were.
func (o *schemaOwner) alter(name string, do func(context.Context) error) {
	if made, sure := o.try("alterations", name, errNothing, do); !made || !sure {
		o.abandon(name, o.ledger.last(name, schemaFamilies...))
	}
}
