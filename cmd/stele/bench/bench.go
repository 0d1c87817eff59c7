package bench

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
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/bench"
	"github.com/steledb/stele/internal/bench/report"
	"github.com/steledb/stele/internal/text"
)

// benchFlags are the flags of bench that bench.Config does not have, or has only a single value of.
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

// benchHelp describes the workloads.
const benchHelp = `Measure a node or a cluster with the six workloads of the paper's section 7, next to the
paper's figures for one tablet server, and with those of YCSB.

  sequential-write  writes rows, in ten ranges for each client
  random-write      writes the same rows in another order
  sequential-read   reads the rows of sequential-write, in the same order
  random-read       reads the rows of random-write, in a third order
  random-read-mem   random-read on a tenth of the rows, in an in-memory locality group
  scan              reads the rows of sequential-write, with scans
  paper             all of the above (the default)

  ycsb-a            50% reads, 50% updates
  ycsb-b            95% reads, 5% updates
  ycsb-c            reads
  ycsb-d            95% reads of the latest inserts, 5% inserts
  ycsb-e            95% scans of 1 to 100 records, 5% inserts
  ycsb-f            50% reads, 50% read-modify-writes
  ycsb              all ycsb workloads, on records of ten fields of 100 bytes, chosen by
                    a scrambled Zipfian distribution with constant 0.99

In the paper's workloads an operation is a row. Workloads that read run for at least
3s, and the latency of a scan is that of a thousand rows. A write counts when it is on
disk. Every value read is verified: BAD counts missing and wrong values, and in YCSB
workloads also lost updates. Tables are created for the measurement, compacted before
workloads that read, and dropped at the end.

Several --rows, --tablets or --clients are measured in all combinations, one after
another. With --local, each combination runs on a node of its own. Without it, --addr
names nodes of a running cluster; use --tablets to spread the load over all its nodes.

--report writes the results with the machine and the settings to a file for "stele bench
plot" and "stele bench table".`

const benchExample = `  stele bench --local
  stele bench --local --workloads ycsb --rows 200k --operations 500k
  stele bench --workloads random-read,scan,ycsb-a --rows 200k --report today.json
  stele bench --local --workloads random-write --rows 50k --clients 1,16,256
  stele bench --addr 10.0.0.5,10.0.0.6,10.0.0.7 --tablets 12
  stele bench --workloads random-write --rate 20000
  stele bench plot yesterday.json today.json --out bench.svg`

func benchCommand(a *cli.App) *cobra.Command {
	f, cfg := &benchFlags{rows: countsFlag{1_000_000}, clients: countsFlag{64}, tablets: countsFlag{1}}, &bench.Config{}
	cmd := &cobra.Command{
		Use:     "bench [--local] [--workloads WORKLOAD,...]",
		Short:   "Run the paper's and YCSB's workloads on a node or a cluster",
		Long:    benchHelp,
		Example: benchExample,
		Args:    cli.UnknownCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if cfg.Workloads, err = bench.ParseWorkloads(f.workloads); err != nil {
				return cli.Usagef("", "%w", err)
			}
			for _, run := range f.runs(cfg) {
				if _, err := bench.New(nil, run); err != nil {
					return cli.Usagef("", "%w", err)
				}
			}
			if f.local && f.as != "" {
				return cli.Usagef("omit --local, and name a node of a cluster with certificates by --addr", "--as: a node started by --local has no users")
			}
			if f.local && (cmd.Flags().Changed("addr") || cmd.Flags().Changed("credential")) {
				return cli.Usagef("omit --local to measure a running node", "--local starts a node of its own, and excludes --addr and --credential")
			}
			if !f.local && (f.dir != "" || f.memory != "") {
				return cli.Usagef(`add --local, or configure the running node: "stele serve --help"`, "--dir and --memory need --local")
			}
			return runAll(a, cmd, f, cfg)
		},
	}
	f.register(cmd.Flags(), cfg)
	cmd.AddCommand(plotCommand(a), tableCommand(a))
	return cmd
}

func (f *benchFlags) register(flags *pflag.FlagSet, cfg *bench.Config) {
	flags.StringVar(&f.workloads, "workloads", "", "run only these `WORKLOADS`, separated by commas; paper, ycsb and all are groups")
	flags.StringVar(&f.workloads, "only", "", "old name of --workloads")
	_ = flags.MarkHidden("only")
	flags.Var(&f.rows, "rows", "`N` rows, or records of YCSB, such as 200k; or several numbers separated by commas")
	flags.Var((*countFlag)(&cfg.Operations), "operations", "`N` operations of each YCSB workload (default: as many as rows)")
	flags.Var(&f.clients, "clients", "`N` concurrent calls, or several numbers")
	flags.Var(&f.tablets, "tablets", "create tables with `N` tablets, or several numbers")
	flags.IntVar(&cfg.Batch, "batch", 1, "`N` rows per call, except in scans and YCSB workloads")
	flags.IntVar(&cfg.ValueBytes, "value-bytes", 1000, "`N` bytes per value, except in YCSB workloads; values are incompressible")
	flags.Float64Var(&cfg.Rate, "rate", 0, "limit all clients together to `N` rows or operations per second, except in scans (default: no limit)")
	flags.Var((*cli.DurationFlag)(&cfg.ReadTimeMin), "read-time", "minimum `DURATION` of workloads that read (default 3s)")
	flags.StringVar(&cfg.Options, "family", "", "`OPTIONS` of the family of the values, such as block=8KiB,compression=none")
	flags.BoolVar(&cfg.Major, "major", false, "run a major compaction before workloads that read")
	flags.BoolVar(&cfg.Warm, "warm", false, "read all rows once before measuring workloads that read, except YCSB workloads")
	flags.BoolVar(&cfg.Keep, "keep", false, "keep the tables")
	flags.IntVar(&f.connections, "connections", 1, "share `N` connections to each node among the calls")
	flags.StringVar(&f.report, "report", "", "write the results to `FILE`, as JSON")
	flags.StringVar(&f.as, "as", "", "without --local: measure as the user of the credential in `FILE`, who is granted a right on one of two families; tables are created by the user of --credential")
	flags.BoolVar(&f.local, "local", false, "start a node for the measurement, and stop it afterwards")
	flags.StringVar(&f.dir, "dir", "", "with --local: keep the node's data in `FOLDER` while it runs (default: the folder for temporary files)")
	flags.StringVar(&f.memory, "memory", "", "with --local: the `SIZE` of the node's memory, such as 1GiB")
	flags.StringVar(&f.profile, "profile", "", "write CPU profiles of client and node to `FOLDER`, two per workload")
	flags.StringVar(&f.http, "http", "127.0.0.1:7108", "with --profile, without --local: the `host:port` of the node's HTTP server")
}

// runs returns the configuration of each run: all combinations of rows, tablets and clients.
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

// runAll measures all runs, prints the results and writes the report. If a run fails, it does so
// with the results of the earlier ones.
func runAll(a *cli.App, cmd *cobra.Command, f *benchFlags, cfg *bench.Config) (err error) {
	r := f.newReport(cfg)
	runs := f.runs(cfg)
	for i := range runs {
		run, at := &runs[i], *f
		if len(runs) > 1 {
			a.Notef("run %d of %d: rows %s, tablets %s, clients %s", i+1, len(runs), cli.FormatCount(run.Rows), cli.FormatCount(int64(run.Tablets)), cli.FormatCount(int64(run.Clients)))
			if f.profile != "" {
				at.profile = filepath.Join(f.profile, fmt.Sprintf("run-%d", i+1))
			}
		}
		if err = runWith(a, cmd, &at, run, r); err != nil {
			break
		}
	}
	if len(r.Runs) > 0 {
		err = errors.Join(printBench(a, r), err)
		if f.report != "" {
			err = errors.Join(err, writeReport(r, f.report))
		}
	}
	return errors.Join(err, badRows(r))
}

// runWith runs the workloads against --addr, or with --local against a node that it starts.
func runWith(a *cli.App, cmd *cobra.Command, f *benchFlags, cfg *bench.Config, r *report.Report) (err error) {
	if !f.local {
		return runBench(cmd.Context(), a, f, cfg, r)
	}
	n, err := startLocalNode(cmd.Context(), a, f.dir, f.memory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	addr, credential := a.Addr, a.Credential
	defer func() { a.Addr, a.Credential = addr, credential }()
	a.Addr, a.Credential, f.http = n.addr, "", n.http // STELE_CREDENTIAL is for other nodes: this one has no access control
	// If the node exits, the measurement is cancelled.
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	stop := context.AfterFunc(n.ended, func() { cancel(context.Cause(n.ended)) })
	defer stop()
	err = runBench(ctx, a, f, cfg, r)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// runBench runs the workloads, and adds the results to r.
func runBench(ctx context.Context, a *cli.App, f *benchFlags, cfg *bench.Config, r *report.Report) (err error) {
	if d := a.Timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	addrs, err := cli.WithPorts(a.Addr)
	if err != nil {
		return err
	}
	own := cfg.ClientConfig(f.connections)
	if err := a.SetCredential(&own); err != nil {
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
		user, err := u.Whoami(ctx)
		if err != nil {
			return err
		}
		cfg.User, cfg.UserName = u, user.Name
	}
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return err
	}
	meters := meterNodes(a, nodes)
	cfg.NodeUsage = meters.usage
	r.Cluster = measuredCluster(nodes, f.local)
	t := &progress{a: a}
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
	stop := a.StartTicker(t.line)
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
		a.Notef("kept table %s", name)
	}
	return err
}

// openUser opens a client with the credential in a file.
func openUser(ctx context.Context, addrs string, cfg client.Config, file string) (*client.Client, error) {
	if err := cli.SetCredentialFrom(&cfg, "--as", file); err != nil {
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
	return fmt.Errorf("verify values: %s missing or wrong", cli.Plural(bad, "row"))
}

// progress reports the progress of a measurement on standard error.
type progress struct {
	a     *cli.App
	bench *bench.Bench

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		text  string
		began time.Time
	}
}

func (t *progress) phase(text string) {
	t.mu.Lock()
	t.mu.text, t.mu.began = text, time.Now()
	t.mu.Unlock()
	if !t.a.ErrTTY {
		t.a.Notef("%s", text)
	}
}

func (t *progress) result(r bench.Result) {
	if !t.a.ErrTTY {
		t.a.Notef("%s: %s per second", r.Workload, cli.FormatCount(int64(r.PerSecond)))
	}
}

// line returns the progress of the current phase, for a terminal.
func (t *progress) line() string {
	t.mu.Lock()
	doing, took := t.mu.text, time.Since(t.mu.began)
	t.mu.Unlock()
	done, of := t.bench.Progress()
	if of == 0 || done == 0 {
		return fmt.Sprintf("%s, %s", doing, text.Uptime(took))
	}
	return fmt.Sprintf("%s, %d%%, %s per second", doing, min(100, 100*done/of), cli.FormatCount(int64(float64(done)/took.Seconds())))
}
