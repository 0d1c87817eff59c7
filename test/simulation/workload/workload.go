package workload

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

// Cluster is the cluster that clients use. Its methods are safe for concurrent use.
type Cluster interface {
	// Open connects client n as the principal of a credential; nil means as an administrator. The
	// number decides where the client is: calls with the same one come from the same machine.
	Open(ctx context.Context, n int, as *pki.Credential) (*client.Client, error)
	// OpenToken connects client n with an access token.
	OpenToken(ctx context.Context, n int, as token.Token) (*client.Client, error)
	// OpenLocks returns a client of the lock service for client n, with the rights of Open.
	OpenLocks(n int) (*session.Client, error)
	// Nodes returns the names of all nodes, in a fixed order.
	Nodes() []string
	// Up reports whether a node runs and is not being stopped.
	Up(node string) bool
}

// Workload runs the clients of a plan on a cluster.
type Workload struct {
	plan    Plan
	cluster Cluster
	history *History
	// draining is set while a node is drained: one at a time.
	draining atomic.Bool
	tokens   streamTokens
	names    tableNames
}

// New returns a workload. It makes no call.
func New(cluster Cluster, plan Plan) *Workload {
	return &Workload{plan: plan, cluster: cluster, history: NewHistory()}
}

// History returns the history of the workload. It may be read at any time.
func (w *Workload) History() *History { return w.history }

// Plan returns the plan.
func (w *Workload) Plan() Plan { return w.plan }

// worker is one client. Its operations are in parts, by what they use.
type worker struct {
	*Workload
	number int
	r      *rand.Rand
	db     *client.Client
	// user is set if the calls are those of a user; its client is db.
	user string

	rows     *rowClient
	files    *lockClient
	blobs    *blobClient
	operator *operator
	streams  *streamClient
}

func (w *Workload) worker(n int) *worker {
	c := &worker{Workload: w, number: n, r: rand.New(rand.NewPCG(w.plan.Seed, 1000+uint64(n)))}
	c.rows, c.blobs, c.operator = &rowClient{c}, &blobClient{worker: c}, &operator{c}
	c.streams = &streamClient{c}
	c.files = &lockClient{worker: c, seen: map[string]File{}}
	return c
}

// Setup creates the tables of the plan. It retries until the context ends.
func (w *Workload) Setup(ctx context.Context) error {
	c := w.worker(w.plan.Clients)
	if !c.open(ctx) {
		return ctx.Err()
	}
	defer c.close(ctx)
	for i := range w.plan.Tables {
		for !c.operator.createTable(ctx, &w.plan.Tables[i]) {
			if ctx.Err() != nil {
				return fmt.Errorf("create table %s: %w", w.plan.Tables[i].Name, ctx.Err())
			}
			c.pause(ctx, 500*time.Millisecond)
		}
		if w.plan.Tables[i].Stream && !c.streams.begin(ctx, &w.plan.Tables[i]) {
			return fmt.Errorf("begin the change stream of table %s: %w", w.plan.Tables[i].Name, ctx.Err())
		}
	}
	return nil
}

// Run runs all clients until the context ends, and waits for them.
func (w *Workload) Run(ctx context.Context) {
	var all sync.WaitGroup
	for n := range w.plan.Clients {
		all.Go(func() { w.worker(n).work(ctx) })
	}
	all.Wait()
}

// open connects the client, retrying until the context ends.
func (c *worker) open(ctx context.Context) bool {
	for ctx.Err() == nil {
		var err error
		if c.db, err = c.cluster.Open(ctx, c.number, nil); err == nil {
			if c.files.locks, err = c.cluster.OpenLocks(c.number); err == nil {
				return true
			}
			_ = c.db.Close() // always nil
		}
		pause(ctx, 200*time.Millisecond)
	}
	return false
}

// farewell bounds the last calls of a client.
const farewell = 5 * time.Second

func (c *worker) close(ctx context.Context) {
	c.files.close(ctx)
	_ = c.db.Close() // always nil
}

func (c *worker) work(ctx context.Context) {
	if !c.open(ctx) {
		return
	}
	defer c.close(ctx)
	total := 0
	for _, f := range c.plan.Features {
		total += f.Weight
	}
	for i := 1; ctx.Err() == nil; i++ {
		n := c.r.IntN(total)
		for _, f := range c.plan.Features {
			if n -= f.Weight; n < 0 {
				c.do(ctx, f.Feature)
				break
			}
		}
		if i%c.plan.Burst == 0 && c.plan.Rest > 0 {
			c.pause(ctx, c.plan.Rest)
		}
		c.pause(ctx, c.plan.Pace)
	}
}

// do makes one operation of a feature.
func (c *worker) do(all context.Context, f Feature) {
	ctx, cancel := c.timeout(all)
	defer cancel()
	switch f {
	case Reads, Writes, Batches, Checks, Counters, Appends, Deletes, Stamps, Aggregates, Tokens, Scans:
		c.rows.do(ctx, f)
	case Files, Locks, Ephemerals, Watches:
		c.files.do(all, ctx, f)
	case Streams:
		c.streams.follow(all)
	case Recreation:
		c.operator.recreate(all)
	case Schedules:
		c.operator.schedule(all)
	case Views:
		c.operator.view(all)
	case Renames:
		c.operator.rename(all)
	case Alteration:
		c.operator.alter(ctx)
	case Clears:
		c.operator.clear(ctx)
	case Splits, Merges, Moves, Compactions:
		c.operator.doTablets(ctx, f)
	case Drains:
		c.operator.drain(all)
	case BlobStore:
		c.blobs.do(all, ctx)
	case Backups:
		c.operator.backup(all)
	case Rights:
		c.operator.useRights(all)
	case Quotas:
		c.operator.useQuota(all)
	default:
		panic("BUG: a feature without an operation: " + string(f))
	}
}

// timeout returns the context of one operation. Some timeouts are so short that operations fail
// during a fault.
func (c *worker) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.plan.TimeoutMin+c.below(c.plan.TimeoutMax-c.plan.TimeoutMin))
}

// pause waits for a random time below the bound, or until the context ends.
func (c *worker) pause(ctx context.Context, below time.Duration) { pause(ctx, c.below(below)) }

func (c *worker) below(d time.Duration) time.Duration { return time.Duration(c.r.Int64N(int64(d))) }

// begin records the call of an operation of this client.
func (c *worker) begin(op Op) Op {
	op.Client, op.User = c.number, c.user
	return c.history.Begin(op)
}

// table returns one of the plan's tables.
func (c *worker) table() *TablePlan { return &c.plan.Tables[c.r.IntN(len(c.plan.Tables))] }

// era returns the current era, sometimes the one before, and in rare cases an older one.
func (c *worker) era() int64 {
	era := c.history.Now() / int64(c.plan.EraLength)
	switch n := c.r.IntN(20); {
	case n == 0:
		return c.r.Int64N(era + 1)
	case n < 5:
		return max(0, era-1)
	}
	return era
}

// row returns the key of a row of an era. Keys are distributed evenly by their hashes.
func (c *worker) row() string { return rowKey(c.era(), c.r.IntN(c.plan.Keys)) }

func rowKey(era int64, n int) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d.%d", era, n)
	return fmt.Sprintf("%04x-%d-%d", h.Sum32()*2654435761>>16, era, n)
}

// value returns the name of a new value.
func (c *worker) value() string {
	return valueName(c.number, c.history.number(), 1+c.r.IntN(c.plan.ValueMax))
}

// entry returns unique bytes to append.
func (c *worker) entry() string { return fmt.Sprintf("%d.%d;", c.number, c.history.number()) }

// ReadMetadata returns the rows of METADATA. They are consistent only if no tablet is moved, split
// or merged meanwhile.
func ReadMetadata(ctx context.Context, c *client.Client) (rows []*table.Row, err error) {
	s := c.Table(metadata.Name).Scan(ctx, client.Filter(metadata.Rows()))
	for s.Next() {
		rows = append(rows, s.Row())
	}
	return rows, errors.Join(s.Err(), s.Close())
}
