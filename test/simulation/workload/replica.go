package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// replication is the name of the replication, and of the user whose credential it has.
const replication = "source"

// replicaFeatures are what operators do with tablets of a follower.
var replicaFeatures = []Feature{Splits, Merges, Moves, Compactions}

// WithFollower returns the plan for a cluster with a follower, which follows tables that are never dropped nor renamed. Those whose stream has no reader
// may lose a family, and get it again.
func (p Plan) WithFollower() Plan {
	r := rand.New(rand.NewPCG(p.Seed, 0x666f6c6c6f77))
	p.Tables = slices.Clone(p.Tables)
	if !slices.ContainsFunc(p.Tables, func(t TablePlan) bool { return !t.Dropped }) {
		p.Tables[0].Dropped = false
	}
	for i := range p.Tables {
		t := &p.Tables[i]
		if t.Followed = !t.Dropped; t.Followed {
			t.Renamed = false
			t.FamilyDropped = len(t.Families) > 1 && r.IntN(2) == 0
			t.Stream = t.Stream && !t.FamilyDropped
		}
	}
	p.Features = slices.Clone(p.Features)
	for _, f := range []Weighted{{Clears, 10}, {Alteration, 15}} { // of all operations they are the rarest
		if i := slices.IndexFunc(p.Features, func(x Weighted) bool { return x.Feature == f.Feature }); i >= 0 {
			p.Features[i].Weight = max(p.Features[i].Weight, f.Weight)
		} else if r.IntN(2) == 0 {
			p.Features = append(p.Features, f)
		}
	}
	return p
}

// A Replica is what clients do with a cluster that follows another one.
type Replica struct {
	source   *Workload
	follower *Workload // its operations are in the history of the source
	spec     client.ReplicationSpec
	tokens   map[string]string // of the stream of each table, before its first change
}

// Follow returns what clients do with the cluster to, which follows tables of the workload's cluster. The addresses are those of nodes of the latter.
func (w *Workload) Follow(to Cluster, addrs []string) *Replica {
	p := w.plan
	p.Tables = slices.DeleteFunc(slices.Clone(p.Tables), func(t TablePlan) bool { return !t.Followed })
	x := &Replica{source: w, follower: &Workload{plan: p, cluster: to, history: w.history}, tokens: map[string]string{}}
	x.spec = client.ReplicationSpec{Name: replication, Addrs: addrs}
	for i := range p.Tables {
		x.spec.Tables = append(x.spec.Tables, p.Tables[i].Name)
	}
	return x
}

// worker returns a client of the follower.
func (x *Replica) worker(n int) *worker { return x.follower.worker(x.source.plan.Clients + 10 + n) }

// Setup creates the replication. It retries until the context ends.
func (x *Replica) Setup(ctx context.Context) error {
	from := x.source.worker(x.source.plan.Clients)
	to := x.worker(0)
	if !from.open(ctx) || !to.open(ctx) {
		return ctx.Err()
	}
	defer from.close(ctx)
	defer to.close(ctx)
	for i := range x.follower.plan.Tables {
		if err := untilDone(ctx, func() error { return x.begin(ctx, from, x.follower.plan.Tables[i].Name) }); err != nil {
			return err
		}
	}
	if from.plan.Secured {
		if err := untilDone(ctx, func() error { return x.admit(ctx, from) }); err != nil {
			return err
		}
	}
	return untilDone(ctx, func() error { return x.create(ctx, to) })
}

// untilDone repeats a call until it succeeds or the context ends.
func untilDone(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 500*time.Millisecond)
	}
}

// begin turns the change stream of a table on, and gets a token before its first change.
func (x *Replica) begin(ctx context.Context, from *worker, name string) error {
	if _, err := from.db.Tables().Alter(ctx, name, table.Change{Op: table.ChangeStream, Retention: streamRetention}); err != nil {
		return err
	}
	changes, err := from.db.Table(name).Changes(client.ChangesFrom{Clears: true})
	if err == nil {
		_, err = changes.Next(ctx)
	}
	if err == nil {
		x.tokens[name] = changes.Token()
	}
	return err
}

// admit makes the user of the source by which the follower reads it.
func (x *Replica) admit(ctx context.Context, from *worker) error {
	text, _, err := from.db.Users().AddToken(ctx, replication, client.NoEnd, "")
	if err != nil {
		return err
	}
	x.spec.Secret = []byte(text.Reveal())
	for _, name := range x.spec.Tables {
		if err := from.db.Grants().Add(ctx, client.Grant{Principal: replication, Table: name, Rights: "read"}); err != nil {
			return err
		}
	}
	return nil
}

// create creates the replication, unless an attempt with an unknown outcome has.
func (x *Replica) create(ctx context.Context, c *worker) error {
	ops := x.beginAll(c, Op{Kind: BeginFollow})
	err := c.db.Replications().Create(ctx, &x.spec)
	if errors.Is(err, api.ErrReplicationExists) {
		err = nil
	}
	c.endAll(ops, err)
	return err
}

// beginAll records the call of an operation on all tables.
func (x *Replica) beginAll(c *worker, op Op) (ops []Op) {
	for _, name := range x.spec.Tables {
		op.Table = name
		ops = append(ops, c.begin(op))
	}
	return ops
}

func (c *worker) endAll(ops []Op, err error) {
	for _, op := range ops {
		c.history.End(op, err)
	}
}

// Run reads the follower, and changes its tablets and its replication, until the context ends.
func (x *Replica) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { x.work(ctx, 1, x.read) })
	all.Go(func() { x.work(ctx, 2, x.operate) })
	all.Wait()
}

func (x *Replica) work(ctx context.Context, n int, do func(ctx context.Context, c *worker)) {
	c := x.worker(n)
	if !c.open(ctx) {
		return
	}
	defer c.close(ctx)
	for ctx.Err() == nil {
		do(ctx, c)
		c.pause(ctx, time.Second)
	}
}

// read asks for the lag, and reads the tables afterwards. One client does so, so that its reads are in an order.
func (x *Replica) read(ctx context.Context, c *worker) {
	once, cancel := c.timeout(ctx)
	x.report(once, c)
	cancel()
	for range 1 + c.r.IntN(3) {
		once, cancel := c.timeout(ctx)
		x.scan(once, c, c.table().Name, c.rows.rangeOf())
		cancel()
		c.pause(ctx, c.plan.Pace)
	}
}

// report records what the follower reports about its tables.
func (x *Replica) report(ctx context.Context, c *worker) {
	ops := x.beginAll(c, Op{Kind: ReportFollow})
	var all []client.Replication
	db, err := c.cluster.Open(ctx, c.r.IntN(len(c.cluster.Nodes())), nil) // in an open cluster only the master's node knows the lag
	if err == nil {
		all, err = db.Replications().List(ctx)
		_ = db.Close() // always nil
	}
	for _, op := range ops {
		op.Lag = -1
		for i := range all {
			for _, t := range all[i].Tables {
				if t.Name == op.Table {
					op.Lag = t.LagMS
				}
			}
		}
		c.history.End(op, err)
	}
}

// scan reads a table of the follower.
func (x *Replica) scan(ctx context.Context, c *worker, name string, s *Scan) Op {
	op := c.begin(Op{Kind: ScanFollower, Table: name, Scan: s})
	result := *s
	rows := c.db.Table(name).Scan(ctx, client.Start(s.Start), client.End(s.End), client.BatchRows(1+c.r.IntN(20)))
	for rows.Next() {
		result.Rows = append(result.Rows, ScanRow{string(rows.Row().Key), c.history.cells(rows.Row())})
		if s.Limit > 0 && int64(len(result.Rows)) == s.Limit {
			break
		}
	}
	err := errors.Join(rows.Err(), rows.Close())
	result.Whole = err == nil && (s.Limit == 0 || int64(len(result.Rows)) < s.Limit)
	op.Scan = &result
	return c.history.End(op, err)
}

// operate changes tablets of the follower, or its replication.
func (x *Replica) operate(all context.Context, c *worker) {
	ctx, cancel := c.timeout(all)
	defer cancel()
	switch n := c.r.IntN(40); {
	case n < 4:
		_ = c.db.Replications().Pause(ctx, replication) // its outcome does not matter: Final resumes it
		c.pause(all, 4*time.Second)
		_ = c.db.Replications().Resume(ctx, replication)
	case n == 4:
		x.recreate(all, c)
	case n < 24:
		c.operator.doTablets(ctx, replicaFeatures[c.r.IntN(len(replicaFeatures))])
	}
}

// recreate removes the replication and its tables, and creates it again.
func (x *Replica) recreate(ctx context.Context, c *worker) {
	ops := x.beginAll(c, Op{Kind: EndFollow})
	err := untilDone(ctx, func() error { return x.remove(ctx, c) })
	c.endAll(ops, nil) // it may be executed in part
	if err == nil {
		_ = untilDone(ctx, func() error { return x.create(ctx, c) }) // Final tries again
	}
}

// remove removes the replication and its tables.
func (x *Replica) remove(all context.Context, c *worker) error {
	ctx, cancel := c.timeout(all)
	defer cancel()
	if err := c.db.Replications().Remove(ctx, replication); err != nil && !errors.Is(err, api.ErrNoReplication) {
		return err
	}
	for _, name := range x.spec.Tables {
		if err := c.db.Tables().DropNow(ctx, name); err != nil && !errors.Is(err, client.ErrNoTable) {
			return err
		}
	}
	return nil
}

// Final resumes the replication and waits until the follower has the cells of the source, whose clients have ended. differs is what it had last if it never
// has.
func (x *Replica) Final(ctx context.Context) (differs string, err error) {
	from, to := x.source.worker(x.source.plan.Clients), x.worker(3)
	if !from.open(ctx) || !to.open(ctx) {
		return "no connection", ctx.Err()
	}
	defer from.close(ctx)
	defer to.close(ctx)
	_ = untilDone(ctx, func() error {
		err := x.create(ctx, to)
		if errors.Is(err, client.ErrTableExists) { // the removal was not finished
			x.recreate(ctx, to)
			err = nil
		}
		if err != nil {
			return err
		}
		return to.db.Replications().Resume(ctx, replication)
	})
	for _, name := range x.spec.Tables {
		err := untilDone(ctx, func() error {
			now, err := x.compare(ctx, from, to, name)
			if err == nil || differs == "" {
				differs = now
			}
			if err == nil && now != "" {
				err = errors.New(now)
			}
			return err
		})
		if err != nil {
			return differs + x.state(to), err
		}
		if err := untilDone(ctx, func() error { return x.readStream(ctx, from, name) }); err != nil {
			return "the change stream of the source cannot be read", err
		}
	}
	return "", nil
}

// compare reads a table of both clusters, and returns how they differ.
func (x *Replica) compare(ctx context.Context, from, to *worker, name string) (differs string, err error) {
	source := from.rows.scan(ctx, from.plan.tableOf(name), &Scan{}, true)
	follower := x.scan(ctx, to, name, &Scan{})
	if source.Outcome != OK || follower.Outcome != OK {
		err := fmt.Errorf("table %s: %s%s", name, source.Error, follower.Error)
		return err.Error(), err
	}
	return DiffersFrom(name, source.Scan.Rows, follower.Scan.Rows), nil
}

// DiffersFrom returns a text about the first row of which a follower has other cells than its source; empty if there is none.
func DiffersFrom(name string, source, follower []ScanRow) string {
	for i := 0; i < len(source) || i < len(follower); i++ {
		switch {
		case i == len(follower) || i < len(source) && source[i].Row < follower[i].Row:
			return fmt.Sprintf("table %s lacks row %s: %v", name, source[i].Row, source[i].Cells)
		case i == len(source) || source[i].Row > follower[i].Row:
			return fmt.Sprintf("table %s has row %s, which its source has not: %v", name, follower[i].Row, follower[i].Cells)
		case !slices.EqualFunc(source[i].Cells, follower[i].Cells, func(a, b Cell) bool {
			return a.Column == b.Column && slices.Equal(a.Values, b.Values) && slices.Equal(a.Stamps, b.Stamps)
		}):
			return fmt.Sprintf("row %s of table %s is %v, and in its source %v", source[i].Row, name, follower[i].Cells, source[i].Cells)
		}
	}
	return ""
}

// state returns the state of the replication for a violation.
func (x *Replica) state(c *worker) string {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	all, err := c.db.Replications().List(ctx)
	if err != nil {
		return "; its state: " + err.Error()
	}
	var texts []string
	for i := range all {
		texts = append(texts, fmt.Sprintf("paused %t %+v", all[i].Paused, all[i].Tables))
	}
	return "; its state: " + strings.Join(texts, ", ")
}

// readStream records all changes of a table of the source.
func (x *Replica) readStream(ctx context.Context, from *worker, name string) error {
	changes, err := from.db.Table(name).Changes(client.ChangesFrom{Token: x.tokens[name], Clears: true})
	if err != nil {
		return err
	}
	op := from.begin(Op{Kind: SourceStream, Table: name})
	result := &Stream{After: -1}
	err = changes.Drain(ctx, func(got []client.Change) error {
		for i := range got {
			result.Changes = append(result.Changes, from.history.streamChange(&got[i]))
		}
		return nil
	})
	op.Stream = result
	from.history.End(op, err)
	return err
}

// tableOf returns the table with a name.
func (p *Plan) tableOf(name string) *TablePlan {
	return &p.Tables[slices.IndexFunc(p.Tables, func(t TablePlan) bool { return t.Name == name })]
}
