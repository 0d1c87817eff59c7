package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/bench"
	"github.com/steledb/stele/internal/bench/report"
)

// benchFlags are the flags of bench that are no settings of the workloads, or several
// of one.
type benchFlags struct {
	workloads     string
	rows          countsFlag
	clients       countsFlag
	tablets       countsFlag
	connections   int
	local         bool
	dir, memory   string
	profile, http string
	report        string
	as            string
}

// benchHelp explains the workloads.
const benchHelp = `Measure a node or a cluster: with the six workloads of the paper's section 7, shown
beside the paper's figures for one tablet server, and with those of YCSB.

  sequential-write  writes rows, in ten ranges for each client
  random-write      the same, in another order
  sequential-read   reads what sequential-write wrote, in the same way
  random-read       reads what random-write wrote, in yet another order
  random-read-mem   the same on a tenth of the rows, in an in-memory locality group
  scan              reads what sequential-write wrote, with scans
  paper             all of these (if nothing else is said)

  ycsb-a            50% reads, 50% updates
  ycsb-b            95% reads, 5% updates
  ycsb-c            reads
  ycsb-d            95% reads of what was inserted last, 5% inserts
  ycsb-e            95% scans of 1 to 100 records, 5% inserts
  ycsb-f            50% reads, 50% a read and then an update of the record
  ycsb              all of these: on records of ten fields of 100 bytes, drawn with a
                    scrambled Zipfian distribution of constant 0.99

In the paper's workloads rows count as operations; those that read go on for 3 s at
least, and the latency of a scan is that of a thousand rows. Writes are on disk before
they count. Every value that is read is checked; BAD counts what was missing or not
what was written, and in YCSB's also updates that were lost. Tables are made for it
and dropped. What is read is compacted before.

With several --rows, --tablets or --clients all combinations are measured one after
another. With --local a node of its own runs for each, as long as it takes; without,
--addr names one node of a cluster or more, and --tablets has all nodes take part.

--report keeps the figures with the machine and the settings, in a file that
"stele bench plot" and "stele bench table" read.`

func (a *app) benchCommand() *cobra.Command {
	f, cfg := &benchFlags{rows: countsFlag{1_000_000}, clients: countsFlag{64}, tablets: countsFlag{1}}, &bench.Config{}
	cmd := &cobra.Command{
		Use:   "bench [--local] [--workloads WORKLOAD,...]",
		Short: "Measure a node or a cluster with the paper's workloads and YCSB's",
		Long:  benchHelp,
		Example: `  stele bench --local
  stele bench --local --workloads ycsb --rows 200k --operations 500k
  stele bench --workloads random-read,scan,ycsb-a --rows 200k --report today.json
  stele bench --local --workloads random-write --rows 50k --clients 1,16,256
  stele bench --addr 10.0.0.5,10.0.0.6,10.0.0.7 --tablets 12
  stele bench --workloads random-write --rate 20000
  stele bench plot yesterday.json today.json --out bench.svg`,
		Args: unknownVerb,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if cfg.Workloads, err = bench.ParseWorkloads(f.workloads); err != nil {
				return usagef("", "%w", err)
			}
			for _, run := range f.runs(cfg) {
				if _, err := bench.New(nil, run); err != nil {
					return usagef("", "%w", err)
				}
			}
			if f.local && f.as != "" {
				return usagef("leave --local out, and name a node of a cluster with certificates by --addr", "--as: a node of the measurement's own knows no users")
			}
			if !f.local && (f.dir != "" || f.memory != "") {
				return usagef(`add --local, or set them for the node: "stele serve --help"`, "--dir and --memory are for a node of the measurement's own")
			}
			return a.benchAll(cmd, f, cfg)
		},
	}
	f.register(cmd.Flags(), cfg)
	cmd.AddCommand(a.benchPlotCommand(), a.benchTableCommand())
	return cmd
}

func (f *benchFlags) register(flags *pflag.FlagSet, cfg *bench.Config) {
	flags.StringVar(&f.workloads, "workloads", "", "only these `WORKLOADS`, between commas; paper, ycsb and all are several")
	flags.StringVar(&f.workloads, "only", "", "the same as --workloads")
	_ = flags.MarkHidden("only")
	flags.Var(&f.rows, "rows", "`N` rows, or records of YCSB, such as 200k; or several numbers between commas")
	flags.Var((*countFlag)(&cfg.Operations), "operations", "`N` operations of each workload of YCSB (default as many as rows)")
	flags.Var(&f.clients, "clients", "`N` calls in flight, or several numbers")
	flags.Var(&f.tablets, "tablets", "`N` tablets that tables are cut into beforehand, or several numbers")
	flags.IntVar(&cfg.Batch, "batch", 1, "`N` rows a call, but in scans and YCSB's workloads")
	flags.IntVar(&cfg.ValueBytes, "value-bytes", 1000, "`N` bytes a value, but in YCSB's workloads; they do not compress")
	flags.Float64Var(&cfg.Rate, "rate", 0, "`N` rows or operations a second of all clients together, but in scan (default as many as they can)")
	flags.DurationVar(&cfg.ReadTimeMin, "read-time", 0, "`TIME` that workloads which read go on for at least (default 3s)")
	flags.StringVar(&cfg.Options, "family", "", "`OPTIONS` of the family of the values, such as block=8KiB,compression=none")
	flags.BoolVar(&cfg.Major, "major", false, "make a major compaction before workloads that read")
	flags.BoolVar(&cfg.Warm, "warm", false, "read all rows once before workloads that read are measured, but YCSB's")
	flags.BoolVar(&cfg.Keep, "keep", false, "leave the tables there")
	flags.IntVar(&f.connections, "connections", 1, "`N` connections to each node that the calls share")
	flags.StringVar(&f.report, "report", "", "also write the figures to `FILE`, as JSON")
	flags.StringVar(&f.as, "as", "", "without --local: make the calls that are measured as the user of the credential in this `FILE`, who gets a right on one family of two; tables are made as the one of --credential")
	flags.BoolVar(&f.local, "local", false, "start a node for the measurement, and stop it after")
	flags.StringVar(&f.dir, "dir", "", "with --local: the `FOLDER` in which the node's data is while it runs (default that for temporary files)")
	flags.StringVar(&f.memory, "memory", "", "with --local: the `SIZE` of the node's memory, such as 1GiB")
	flags.StringVar(&f.profile, "profile", "", "write processor profiles of client and node to `FOLDER`, two a workload")
	flags.StringVar(&f.http, "http", "127.0.0.1:7108", "with --profile and without --local: the `host:port` of the node's HTTP")
}

// runs returns the configuration of each run.
func (f *benchFlags) runs(cfg *bench.Config) (runs []bench.Config) {
	for _, rows := range f.rows {
		for _, tablets := range f.tablets {
			for _, clients := range f.clients {
				run := *cfg
				run.Rows, run.Tablets, run.Clients = rows, int(tablets), int(clients)
				runs = append(runs, run)
			}
		}
	}
	return runs
}

// benchAll measures all runs, and prints and keeps what came out, also when one fails.
func (a *app) benchAll(cmd *cobra.Command, f *benchFlags, cfg *bench.Config) (err error) {
	r := f.newReport(cfg)
	runs := f.runs(cfg)
	for i := range runs {
		run, at := &runs[i], *f
		if len(runs) > 1 {
			a.talk("run %d of %d: rows %s, tablets %s, clients %s", i+1, len(runs), formatCount(run.Rows), formatCount(int64(run.Tablets)), formatCount(int64(run.Clients)))
			if f.profile != "" {
				at.profile = filepath.Join(f.profile, fmt.Sprintf("run-%d", i+1))
			}
		}
		if err = a.benchWith(cmd, &at, run, r); err != nil {
			break
		}
	}
	if len(r.Runs) > 0 {
		err = errors.Join(a.printBench(r), err)
		if f.report != "" {
			err = errors.Join(err, writeReport(r, f.report))
		}
	}
	return errors.Join(err, badRows(r))
}

// benchWith runs the workloads against --addr, or a node of its own.
func (a *app) benchWith(cmd *cobra.Command, f *benchFlags, cfg *bench.Config, r *report.Report) (err error) {
	if !f.local {
		return a.bench(cmd.Context(), f, cfg, r)
	}
	n, err := a.startLocalNode(cmd.Context(), f.dir, f.memory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	addr := a.addr
	defer func() { a.addr = addr }()
	a.addr, f.http = n.addr, n.http
	// It also ends when the node does.
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	stop := context.AfterFunc(n.ended, func() { cancel(context.Cause(n.ended)) })
	defer stop()
	err = a.bench(ctx, f, cfg, r)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// bench runs the workloads, and adds to r what came out.
func (a *app) bench(ctx context.Context, f *benchFlags, cfg *bench.Config, r *report.Report) (err error) {
	if d := a.timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	addrs, err := withPorts(a.addr)
	if err != nil {
		return err
	}
	own := cfg.ClientConfig(f.connections)
	if err := a.identify(&own); err != nil {
		return err
	}
	c, err := client.Open(ctx, addrs, own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if f.as != "" {
		u, err := openUser(ctx, addrs, cfg.ClientConfig(f.connections), f.as)
		if err != nil {
			return err
		}
		defer u.Close()
		who, err := u.Whoami(ctx)
		if err != nil {
			return err
		}
		cfg.User, cfg.UserName = u, who.Name
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	meters := a.meterNodes(nodes)
	cfg.NodeUsage = meters.usage
	r.Cluster = measuredCluster(nodes, f.local)
	t := &benchTalk{a: a}
	cfg.Phase = t.phase
	if f.profile != "" {
		p, err := newProfiler(f.profile, f.http)
		if err != nil {
			return err
		}
		cfg.Measuring = p.measuring
		defer func() { err = errors.Join(err, p.err()) }()
	}
	b, err := bench.New(c, *cfg)
	if err != nil {
		return err
	}
	t.bench = b
	stop := a.startTicker(t.line)
	defer stop()
	run := report.Run{Rows: cfg.Rows, Operations: b.Operations(), Tablets: cfg.Tablets, Clients: cfg.Clients}
	err = b.Run(ctx, func(v bench.Result) {
		run.Results = append(run.Results, report.ResultOf(&v))
		t.result(v)
	})
	stop()
	run.Sort()
	if len(run.Results) > 0 {
		r.Runs = append(r.Runs, run)
	}
	for _, name := range b.Tables() {
		a.talk("kept table %s", name)
	}
	return err
}

// openUser makes the client of a user whose credential is in a file.
func openUser(ctx context.Context, addrs string, cfg client.Config, file string) (*client.Client, error) {
	if err := identifyBy(&cfg, "--as", file); err != nil {
		return nil, err
	}
	return client.Open(ctx, addrs, cfg)
}

func badRows(r *report.Report) error {
	bad := int64(0)
	for i := range r.Runs {
		for _, v := range r.Runs[i].Results {
			bad += v.Bad
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%s that were read were missing or not what was written", plural(bad, "row"))
}

// benchTalk says on standard error how far a measurement is.
type benchTalk struct {
	a     *app
	bench *bench.Bench

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		text  string
		began time.Time
	}
}

func (t *benchTalk) phase(text string) {
	t.mu.Lock()
	t.mu.text, t.mu.began = text, time.Now()
	t.mu.Unlock()
	if !t.a.errTTY {
		t.a.talk("%s", text)
	}
}

func (t *benchTalk) result(r bench.Result) {
	if !t.a.errTTY {
		t.a.talk("%s: %s a second", r.Workload, formatCount(int64(r.PerSecond)))
	}
}

// line is what a terminal shows of the phase that is under way.
func (t *benchTalk) line() string {
	t.mu.Lock()
	text, took := t.mu.text, time.Since(t.mu.began)
	t.mu.Unlock()
	done, of := t.bench.Progress()
	if of == 0 || done == 0 {
		return fmt.Sprintf("%s, %v", text, took.Round(time.Second))
	}
	return fmt.Sprintf("%s, %d%%, %s a second", text, min(100, 100*done/of), formatCount(int64(float64(done)/took.Seconds())))
}
