package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/steledb/stele/client"
)

// A Result is what came out of one workload. Rows count as operations.
type Result struct {
	Workload   Workload
	Ops        int64
	Bad        int64 // rows that were missing or had another value
	Took       time.Duration
	P50, P99   time.Duration
	P999, Max  time.Duration
	Rows       int64         // in the table
	ClientCPU  time.Duration // of this process
	NodeCPU    time.Duration // 0 if that is not known
	PerSecond  float64
	PaperRatio float64 // PerSecond over that of the paper's tablet server
}

// A Bench measures one node.
type Bench struct {
	cfg    Config
	client *client.Client
	name   string // what the tables' names begin with

	random, sequential, memory *dataset
	tables                     []string // that were made

	progress atomic.Pointer[lap]
}

// New returns a Bench. Errors: those that say what is wrong with cfg.
func New(c *client.Client, cfg Config) (*Bench, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Bench{cfg: cfg, client: c, name: "bench-" + strconv.FormatInt(time.Now().UnixMilli(), 36)}, nil
}

// Tables returns the names of the tables that were made and are still there.
func (b *Bench) Tables() []string { return b.tables }

// Progress tells how many rows the current phase has done, of how many. It may be
// called at any time.
func (b *Bench) Progress() (done, of int64) {
	if l := b.progress.Load(); l != nil {
		return l.ops.Load(), int64(l.data.rows)
	}
	return 0, 0
}

// Run runs the workloads and hands each result to each, as it comes. It drops the
// tables that it made unless they are to be kept, also when it fails. Errors: those of
// the client, ctx's. Rows that are wrong are no error, but a figure of the Result.
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

// dropTime is how long dropping the tables may take, when the rest was interrupted.
const dropTime = 30 * time.Second

func (b *Bench) dropTables(ctx context.Context) error {
	if b.cfg.Keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	var errs []error
	for _, name := range b.tables {
		if err := b.client.DropTable(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("drop table %s: %w", name, err))
		}
	}
	b.tables = nil
	return errors.Join(errs...)
}

// measure runs one workload.
func (b *Bench) measure(ctx context.Context, w Workload) (Result, error) {
	l, err := b.prepare(ctx, w)
	if err != nil {
		return Result{}, err
	}
	b.phase(string(w), l)
	done := b.cfg.Measuring(w)
	node, own := b.cfg.NodeCPU(), processCPU()
	m, err := l.run(ctx)
	own, node = processCPU()-own, b.cfg.NodeCPU()-node
	done()
	if err != nil {
		return Result{}, err
	}
	if l.do == write {
		l.data.written = true
	}
	at := func(percent float64) time.Duration { return time.Duration(m.latency.ValueAtPercentile(percent)) }
	r := Result{
		Workload: w, Ops: m.ops, Bad: m.bad, Took: m.took, Rows: int64(l.data.rows), ClientCPU: own, NodeCPU: node,
		P50: at(50), P99: at(99), P999: at(99.9), Max: time.Duration(m.latency.Max()),
		PerSecond: float64(m.ops) / m.took.Seconds(),
	}
	r.PaperRatio = r.PerSecond / w.Paper()
	return r, nil
}

func (b *Bench) phase(text string, l *lap) {
	b.progress.Store(l)
	b.cfg.Phase(text)
}

// processCPU returns the processor time that this process has used.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The seeds of the orders: reads must not come in the order of the writes, in which
// rows lie together in files.
const (
	writeSeed = 1
	readSeed  = 1000 // and the number of the pass
)

// prepare makes what a workload needs, and returns the lap that is to be measured.
func (b *Bench) prepare(ctx context.Context, w Workload) (*lap, error) {
	n := uint64(b.cfg.Rows)
	l := &lap{clients: b.cfg.Clients, batch: b.cfg.Batch, rate: b.cfg.Rate, atLeast: b.cfg.ReadTimeMin, do: read}
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
		n = max(n/10, 1) // the paper's, too, has a tenth of the data
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
	if l.do == write {
		return l, nil
	}
	return l, b.settle(ctx, w, l.data)
}

// create makes a table.
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
	name := b.name + suffix
	if _, err := b.client.CreateTable(ctx, name, spec); err != nil {
		return nil, err
	}
	b.tables = append(b.tables, name)
	d := &dataset{table: b.client.Table(name), rows: rows, inMemory: w == RandomReadMem}
	d.values = values{seed: mix(uint64(len(b.tables))), size: b.cfg.ValueBytes}
	return d, nil
}

// fillBatch is the batch in which rows are written that are only there to be read.
const fillBatch = 500

// settle sees to it that a dataset is written and in SSTables, or in memory if that is
// its place.
func (b *Bench) settle(ctx context.Context, w Workload, d *dataset) error {
	if !d.written {
		fill := &lap{data: d, do: write, clients: 4, batch: fillBatch}
		fill.order = func(uint64) order { return sequential(d.rows) }
		if w == RandomRead {
			// Files written in the order of their rows would not overlap.
			fill.order = func(uint64) order { return permuted(d.rows, writeSeed) }
		}
		b.phase(fmt.Sprintf("%s: writing the rows to read", w), fill)
		if _, err := fill.run(ctx); err != nil {
			return fmt.Errorf("write the rows to read: %w", err)
		}
		d.written = true
	}
	if !d.settled {
		b.phase(fmt.Sprintf("%s: compacting", w), nil)
		if err := b.client.Compact(ctx, d.table.Name(), b.cfg.Major); err != nil {
			return fmt.Errorf("compact the rows to read: %w", err)
		}
		if err := b.quiet(ctx, d.table.Name()); err != nil {
			return err
		}
		d.settled = true
	}
	if !d.inMemory {
		return nil
	}
	warm := &lap{data: d, do: read, clients: b.cfg.Clients, batch: b.cfg.Batch}
	warm.order = func(uint64) order { return sequential(d.rows) }
	b.phase(fmt.Sprintf("%s: warming up", w), warm)
	_, err := warm.run(ctx)
	return err
}

// A node is taken to be quiet when its files have not changed for Config.quiet. It is
// not waited for longer than quietWait: it may have other work.
const (
	quietPoll = 250 * time.Millisecond
	quietWait = 2 * time.Minute
)

// quiet waits for the merging compactions that a compaction has called for.
func (b *Bench) quiet(ctx context.Context, name string) error {
	type state struct{ files, bytes, used int64 }
	var last state
	since := time.Now()
	for began := since; time.Since(since) < b.cfg.quiet && time.Since(began) < quietWait; {
		info, err := b.client.Describe(ctx, name)
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
