package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// options are the command line options of a run.
type options struct {
	program, dir, memory string
	tries, tablets       int
	mib                  int
	only                 string
	json, keep           bool
}

// tabletMiB is what a tablet's memtable can safely hold, in MiB, before it is written out at 64
// MiB.
const tabletMiB = 48

func main() {
	var o options
	flag.StringVar(&o.program, "stele", "bin/stele", "the program")
	flag.StringVar(&o.dir, "dir", "", "directory for the nodes' data (default: a temporary one)")
	flag.StringVar(&o.memory, "memory", "2GiB", "memory of each node; a fifth is for memtables, of which a tablet has 64 MiB at most")
	flag.IntVar(&o.tries, "tries", 10, "tries of each figure; restarts have a tenth of them")
	flag.IntVar(&o.tablets, "tablets", 24, "tablets that are probed")
	flag.IntVar(&o.mib, "log-mib", 64, "MiB that a node has in memtables when it is killed")
	flag.StringVar(&o.only, "only", "kill,master,split,move,restart", "figures to measure")
	flag.BoolVar(&o.json, "json", false, "print JSON, one object per figure")
	flag.BoolVar(&o.keep, "keep", false, "keep the nodes' data and logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, o *options) (err error) {
	if most := o.tablets / nodes * tabletMiB; o.mib > most {
		return fmt.Errorf("%d tablets on %d nodes hold at most %d MiB each in memtables, not %d: use --tablets %d and --memory %dGiB or more",
			o.tablets, nodes, most, o.mib, (o.mib+tabletMiB-1)/tabletMiB*nodes, o.mib*6>>10+1)
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "stele-availability-"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.dir, 0o777); err != nil {
		return err
	}
	if !o.keep {
		defer func() {
			if err == nil {
				err = os.RemoveAll(o.dir)
			}
		}()
	}
	return measureIn(ctx, o)
}

// measureIn measures and reports the figures of a new cluster in the directory of o.
func measureIn(ctx context.Context, o *options) error {
	f, err := newCluster(ctx, o.program, o.dir, o.memory)
	if f != nil {
		defer f.stop()
	}
	if err != nil {
		return err
	}
	r := &run{f: f, o: o}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	defer r.end()
	for _, what := range strings.Split(o.only, ",") {
		figures, err := r.figure(ctx, what)
		if err != nil {
			return fmt.Errorf("%s (the nodes' logs are in %s): %w", what, o.dir, err)
		}
		if err := report(o, figures); err != nil {
			return err
		}
	}
	return nil
}

// figure has the measurements of one thing, in ms, or as counts.
type figure struct {
	what   string
	counts bool
	goal   float64 // negative if there is none
	all    []float64
}

func (f *figure) add(d time.Duration) { f.all = append(f.all, float64(d.Microseconds())/1000) }

// at returns the quantile of the measurements for the given share.
func (f *figure) at(share float64) float64 {
	if len(f.all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(f.all))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

// report prints figures.
func report(o *options, figures []*figure) error {
	if o.json {
		return reportJSON(figures)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "FIGURE\tTRIES\tP50\tP99\tMAX\tGOAL (load average %s)\n", machineLoad())
	for _, f := range figures {
		unit, goal := " ms", "-"
		if f.counts {
			unit = ""
		}
		if f.goal >= 0 {
			goal = fmt.Sprintf("%g%s", f.goal, unit)
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f%s\t%.0f%s\t%.0f%s\t%s\n", f.what, len(f.all), f.at(0.5), unit, f.at(0.99), unit, f.at(1), unit, goal)
	}
	return w.Flush()
}

// reportJSON prints an object for each figure.
func reportJSON(figures []*figure) error {
	load := machineLoad()
	e := json.NewEncoder(os.Stdout)
	for _, f := range figures {
		unit := "ms"
		if f.counts {
			unit = "count"
		}
		object := map[string]any{"figure": f.what, "unit": unit, "tries": len(f.all), "p50": f.at(0.5), "p99": f.at(0.99), "max": f.at(1), "all": f.all, "load_average": load}
		if f.goal >= 0 {
			object["goal"] = f.goal
		}
		if err := e.Encode(object); err != nil {
			return err
		}
	}
	return nil
}

// machineLoad returns the load averages.
func machineLoad() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}
