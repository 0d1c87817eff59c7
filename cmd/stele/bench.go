package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/bench"
)

// benchFlags are the flags of one run that are no settings of the workloads.
type benchFlags struct {
	only        string
	connections int
	local       bool
	dir, memory string
	profile     string
	http        string
}

func (a *app) benchCommand() *cobra.Command {
	f, cfg := &benchFlags{}, &bench.Config{}
	cmd := &cobra.Command{
		Use:   "bench [--local] [--only WORKLOAD,...]",
		Short: "Measure a node with the paper's six workloads",
		Long: `Measure a node with the six workloads of the paper's section 7, and show what comes
out beside the paper's figures for one tablet server.

  sequential-write  writes rows, in ten ranges for each client
  random-write      the same, in another order
  sequential-read   reads what sequential-write wrote, in the same way
  random-read       reads what random-write wrote, in yet another order
  random-read-mem   the same on a tenth of the rows, in an in-memory locality group
  scan              reads what sequential-write wrote, with scans

Rows count as operations, writes are on disk before they count, and every value that
is read is compared with what was written. Tables are made for it and dropped.
Workloads that read go on for 3 s at least; what they read is compacted before. The
latency of a scan is that of a thousand rows.

With --local a node of its own runs for as long as the measurement takes.`,
		Example: `  stele bench --local
  stele bench --rows 200000 --only random-read,scan
  stele bench --batch 100 --json
  stele bench --only random-write --rate 20000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if cfg.Workloads, err = bench.ParseWorkloads(f.only); err != nil {
				return usagef("", "%w", err)
			}
			if _, err := bench.New(nil, *cfg); err != nil {
				return usagef("", "%w", err)
			}
			if !f.local && (f.dir != "" || f.memory != "") {
				return usagef(`add --local, or set them for the node: "stele serve --help"`, "--dir and --memory are for a node of the measurement's own")
			}
			return a.benchWith(cmd, f, cfg)
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&cfg.Rows, "rows", 1_000_000, "`N` rows")
	flags.IntVar(&cfg.Clients, "clients", 64, "`N` calls in flight")
	flags.IntVar(&cfg.Batch, "batch", 1, "`N` rows a call, but in scans")
	flags.IntVar(&cfg.ValueBytes, "value-bytes", 1000, "`N` bytes a value; they do not compress")
	flags.StringVar(&f.only, "only", "", "only these `WORKLOADS`, between commas")
	flags.Float64Var(&cfg.Rate, "rate", 0, "`N` rows a second of all clients together, but in scans (default as many as they can)")
	flags.StringVar(&cfg.Options, "family", "", "`OPTIONS` of the family of the values, such as block=8KiB,compression=none")
	flags.BoolVar(&cfg.Major, "major", false, "make a major compaction before workloads that read")
	flags.BoolVar(&cfg.Keep, "keep", false, "leave the tables there")
	flags.IntVar(&f.connections, "connections", 1, "`N` connections that the calls share")
	flags.BoolVar(&f.local, "local", false, "start a node for the measurement, and stop it after")
	flags.StringVar(&f.dir, "dir", "", "with --local: the `FOLDER` in which the node's data is while it runs (default that for temporary files)")
	flags.StringVar(&f.memory, "memory", "", "with --local: the `SIZE` of the node's memory, such as 1GiB")
	flags.StringVar(&f.profile, "profile", "", "write processor profiles of client and node to `FOLDER`, two a workload")
	flags.StringVar(&f.http, "http", "127.0.0.1:7108", "with --profile and without --local: the `host:port` of the node's HTTP")
	return cmd
}

// benchWith runs the workloads against the node at --addr, or one of its own.
func (a *app) benchWith(cmd *cobra.Command, f *benchFlags, cfg *bench.Config) (err error) {
	if f.local {
		n, err := a.startLocalNode(cmd.Context(), f.dir, f.memory)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.stop()) }()
		a.addr, f.http, cfg.NodeCPU = n.addr, n.http, n.cpu
		return a.benchAndStop(cmd, f, cfg, n)
	}
	return a.bench(cmd, f, cfg)
}

// benchAndStop also ends when the node does.
func (a *app) benchAndStop(cmd *cobra.Command, f *benchFlags, cfg *bench.Config, n *localNode) error {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	stop := context.AfterFunc(n.ended, func() { cancel(context.Cause(n.ended)) })
	defer stop()
	cmd.SetContext(ctx)
	err := a.bench(cmd, f, cfg)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (a *app) bench(cmd *cobra.Command, f *benchFlags, cfg *bench.Config) (err error) {
	ctx, cancel := a.within(cmd, patient)
	defer cancel()
	c, err := client.Open(ctx, a.addr, cfg.ClientConfig(f.connections))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
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
	var results []bench.Result
	err = b.Run(ctx, func(r bench.Result) {
		results = append(results, r)
		t.result(r)
	})
	stop()
	for _, name := range b.Tables() {
		a.talk("kept table %s", name)
	}
	return errors.Join(a.printBench(cfg, results), err, badRows(results))
}

func badRows(results []bench.Result) error {
	bad := int64(0)
	for _, r := range results {
		bad += r.Bad
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
		t.a.talk("%s: %s rows/s", r.Workload, formatCount(int64(r.PerSecond)))
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
	return fmt.Sprintf("%s, %d%%, %s rows/s", text, min(100, 100*done/of), formatCount(int64(float64(done)/took.Seconds())))
}
