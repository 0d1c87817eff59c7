package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// A Result is the result of one workload. In the paper's workloads, rows count as operations.
type Result struct {
	Workload   Workload
	Ops        int64
	Bad        int64 // rows that were missing or had a wrong value
	Took       time.Duration
	Latency    Latency
	Kinds      []Kind // by kind of operation, for YCSB workloads
	Rows       int64  // in the table, before inserts
	Tablets    int    // that the table was split into
	Clients    int
	Client     Usage // of this process
	Nodes      Usage // of all nodes together; zero if unknown
	PerSecond  float64
	PaperRatio float64 // PerSecond relative to the paper's tablet server; 0 if not in the paper
}

// Latency is the distribution of call durations.
type Latency struct{ P50, P99, P999, Max time.Duration }

func latencyOf(h *hdrhistogram.Histogram) Latency {
	at := func(percent float64) time.Duration { return time.Duration(h.ValueAtPercentile(percent)) }
	return Latency{P50: at(50), P99: at(99), P999: at(99.9), Max: time.Duration(h.Max())}
}

// A Kind is the result of one kind of operation.
type Kind struct {
	Name     string
	Ops, Bad int64
	Latency  Latency
}

// A Bench measures a cluster.
type Bench struct {
	cfg    Config
	client *client.Client
	name   string // prefix of the tables' names

	random, sequential, memory *dataset
	mixed, scanned             *records // of the YCSB workloads, and of the one with scans
	tables                     []string // created tables

	progress atomic.Pointer[progress]
}

// progress is the progress of a phase.
type progress struct {
	done *atomic.Int64
	of   int64
}

// A stage is the measured part of one workload.
type stage struct {
	run      func(ctx context.Context) (measure, error)
	progress *progress
	rows     int64
}

// New returns a Bench. It returns an error if cfg is invalid.
func New(c *client.Client, cfg Config) (*Bench, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Bench{cfg: cfg, client: c, name: "bench-" + strconv.FormatInt(time.Now().UnixMilli(), 36)}, nil
}

// Operations returns the number of operations of each YCSB workload.
func (b *Bench) Operations() int64 { return b.cfg.Operations }

// Tables returns the names of the created tables that still exist.
func (b *Bench) Tables() []string { return b.tables }

// Progress returns the number of rows done in the current phase, and their total. It may be called
// at any time.
func (b *Bench) Progress() (done, of int64) {
	if p := b.progress.Load(); p != nil {
		return p.done.Load(), p.of
	}
	return 0, 0
}

// Run runs the workloads and calls each with each result. It drops the created tables unless Keep
// is set, also on errors. Errors: those of the client, ctx.Err(). Wrong rows are not an error but
// are counted in the Result.
func (b *Bench) Run(ctx context.Context, each func(Result)) (err error) {
	defer func() { err = errors.Join(err, b.dropTables(ctx)) }()
	for _, w := range running {
		if !slices.Contains(b.cfg.Workloads, w) {
			continue
		}
		r, err := b.measure(ctx, w)
		if err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
		each(r)
	}
	return nil
}

// dropTime bounds dropping the tables after ctx was cancelled.
const dropTime = 30 * time.Second

func (b *Bench) dropTables(ctx context.Context) error {
	if b.cfg.Keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	var errs []error
	for _, name := range b.tables {
		if err := b.client.Tables().DropNow(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("drop table %s: %w", name, err))
		}
	}
	b.tables = nil
	return errors.Join(errs...)
}

// measure runs one workload.
func (b *Bench) measure(ctx context.Context, w Workload) (Result, error) {
	prepare := b.prepare
	if w.ycsb() != nil {
		prepare = b.prepareYCSB
	}
	s, err := prepare(ctx, w)
	if err != nil {
		return Result{}, err
	}
	b.phase(string(w), s.progress)
	done := b.cfg.Measuring(w)
	nodes, own := b.cfg.NodeUsage(), ownUsage()
	m, err := s.run(ctx)
	own, nodes = ownUsage().minus(own), b.cfg.NodeUsage().minus(nodes)
	done()
	if err != nil {
		return Result{}, err
	}
	r := Result{
		Workload: w, Ops: m.ops, Bad: m.bad, Took: m.took, Latency: latencyOf(m.latency), Kinds: m.kinds,
		Rows: s.rows, Tablets: b.tabletsOf(s.rows), Clients: b.cfg.Clients, Client: own, Nodes: nodes,
		PerSecond: float64(m.ops) / m.took.Seconds(),
	}
	if paper := w.Paper(); paper > 0 {
		r.PaperRatio = r.PerSecond / paper
	}
	return r, nil
}

func (b *Bench) phase(text string, p *progress) {
	b.progress.Store(p)
	b.cfg.Phase(text)
}

// The seeds of the orders. Reads must not follow the order of the writes, because rows written
// together are adjacent in files.
const (
	writeSeed = 1
	readSeed  = 1000 // plus the number of the pass
)

// prepare sets up one of the paper's workloads and returns its measured part.
func (b *Bench) prepare(ctx context.Context, w Workload) (*stage, error) {
	n := uint64(b.cfg.Rows)
	l := &lap{pace: b.cfg.pace(b.cfg.Batch), atLeast: b.cfg.ReadTimeMin, do: read}
	l.order = func(uint64) order { return sequential(n) }
	slot := &b.sequential
	switch w {
	case RandomWrite, SequentialWrite:
		l.do, l.atLeast = write, 0
		if w == RandomWrite {
			slot = &b.random
			l.order = func(uint64) order { return permuted(n, writeSeed) }
		}
	case RandomRead:
		slot = &b.random
		l.order = func(pass uint64) order { return permuted(n, readSeed+pass) }
	case RandomReadMem:
		slot = &b.memory
		n = max(n/10, 1) // the paper also uses a tenth of the data
		l.order = func(pass uint64) order { return permuted(n, readSeed+pass) }
	case Scan:
		l.do = scan
	}
	var err error
	if *slot == nil {
		if *slot, err = b.create(ctx, w, n); err != nil {
			return nil, err
		}
	}
	l.data = *slot
	s := &stage{run: l.run, progress: l.progress(), rows: int64(l.data.rows)}
	if l.do == write {
		s.run = func(ctx context.Context) (measure, error) {
			m, err := l.run(ctx)
			l.data.written = err == nil
			return m, err
		}
		return s, nil
	}
	return s, b.fill(ctx, w, l.data)
}

// create creates a table.
func (b *Bench) create(ctx context.Context, w Workload, rows uint64) (*dataset, error) {
	suffix := "-sequential"
	switch w {
	case RandomRead, RandomWrite:
		suffix = "-random"
	case RandomReadMem:
		suffix = "-memory"
	}
	spec, err := b.cfg.family(w == RandomReadMem)
	if err != nil {
		return nil, err
	}
	tablets := uint64(b.tabletsOf(int64(rows)))
	var splits []string
	for i := uint64(1); i < tablets; i++ {
		splits = append(splits, string(appendKey(nil, i*rows/tablets-1))) // a split point is the last row of a tablet
	}
	t, err := b.createTable(ctx, suffix, splits, spec)
	if err != nil {
		return nil, err
	}
	d := &dataset{table: t, rows: rows, inMemory: w == RandomReadMem}
	d.values = values{seed: mix(uint64(len(b.tables))), size: b.cfg.ValueBytes}
	return d, nil
}

// tabletsOf returns the number of tablets of a table with that many rows.
func (b *Bench) tabletsOf(rows int64) int { return int(min(int64(b.cfg.Tablets), rows)) }

func (b *Bench) createTable(ctx context.Context, suffix string, splits []string, spec table.FamilySpec) (*client.Table, error) {
	name := b.name + suffix
	specs := []table.FamilySpec{spec}
	if b.cfg.User != nil {
		specs = append(specs, table.FamilySpec{Name: "hidden"})
	}
	if _, err := b.client.Tables().CreateSplit(ctx, name, splits, specs...); err != nil {
		return nil, err
	}
	b.tables = append(b.tables, name)
	if b.cfg.User == nil {
		return b.client.Table(name), nil
	}
	if err := b.client.Grants().Add(ctx, client.Grant{Principal: b.cfg.UserName, Table: name, Family: spec.Name, Rights: "read,write"}); err != nil {
		return nil, fmt.Errorf("grant rights to the measuring user: %w", err)
	}
	return b.cfg.User.Table(name), nil
}

// fillBatch is the batch size for rows that are written only to be read.
const fillBatch = 500

// fill makes sure that a dataset is written and in SSTables or, if in-memory, in memory.
func (b *Bench) fill(ctx context.Context, w Workload, d *dataset) error {
	if !d.written {
		fill := &lap{data: d, do: write, pace: pace{clients: 4, batch: fillBatch}}
		fill.order = func(uint64) order { return sequential(d.rows) }
		if w == RandomRead {
			// In row order, files would not overlap.
			fill.order = func(uint64) order { return permuted(d.rows, writeSeed) }
		}
		b.phase(fmt.Sprintf("%s: writing the rows to read", w), fill.progress())
		if _, err := fill.run(ctx); err != nil {
			return fmt.Errorf("write the rows to read: %w", err)
		}
		d.written = true
	}
	if !d.compacted {
		if err := b.compact(ctx, w, d.table.Name()); err != nil {
			return err
		}
		d.compacted = true
	}
	if !d.inMemory && !b.cfg.Warm {
		return nil
	}
	warm := &lap{data: d, do: read, pace: b.cfg.pace(b.cfg.Batch)}
	warm.rate = 0
	warm.order = func(uint64) order { return sequential(d.rows) }
	b.phase(fmt.Sprintf("%s: warming up", w), warm.progress())
	_, err := warm.run(ctx)
	return err
}

// compact compacts a table and waits until its merging compactions are done.
func (b *Bench) compact(ctx context.Context, w Workload, name string) error {
	b.phase(fmt.Sprintf("%s: compacting", w), nil)
	if err := b.client.Tables().Compact(ctx, name, b.cfg.Major); err != nil {
		return fmt.Errorf("compact the rows to read: %w", err)
	}
	return b.quiet(ctx, name)
}

// A node counts as quiet when its files have not changed for Config.quiet. The wait ends after
// quietWait, because the node may have other work.
const (
	quietPoll = 250 * time.Millisecond
	quietWait = 2 * time.Minute
)

// quiet waits for the merging compactions triggered by a compaction.
func (b *Bench) quiet(ctx context.Context, name string) error {
	type state struct{ files, bytes, used int64 }
	var last state
	since := time.Now()
	for began := since; time.Since(since) < b.cfg.quiet && time.Since(began) < quietWait; {
		info, err := b.client.Tables().Describe(ctx, name)
		if err != nil {
			return err
		}
		status, err := b.client.Status(ctx)
		if err != nil {
			return err
		}
		var now state
		for i := range info.Tablets {
			for _, g := range info.Tablets[i].Groups {
				now.files += g.Files
				now.bytes += g.Bytes
			}
		}
		for _, d := range status.Disks {
			now.used += d.UsedBytes // grows while a compaction writes
		}
		if now != last {
			last, since = now, time.Now()
		}
		select {
		case <-time.After(min(quietPoll, b.cfg.quiet)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
