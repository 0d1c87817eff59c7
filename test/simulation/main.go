//go:debug tlsmlkem=0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/steledb/stele/test/simulation/world"
)

// options are the flags.
type options struct {
	seeds   int
	from    uint64
	one     bool // run from alone, and print a summary of it
	time    time.Duration
	jobs    int
	twice   bool
	padding int // bytes of the environment of the child
	bug     string
	bugs    string
	tries   int
	virtual time.Duration
	limit   time.Duration
	events  int
	log     string
	cover   string
	keep    bool
	// follower selects the seeds whose plan has a follower.
	follower bool
	// progress is the period between two lines about the progress; 0 means none.
	progress time.Duration
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		runChild(os.Args[2:])
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o := parse(os.Args[1:])
	o.progress = progressEvery
	if err := buildAndRun(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// progressEvery is the period between two lines about the progress of many seeds.
const progressEvery = 10 * time.Second

func parse(args []string) options {
	var o options
	f := flag.NewFlagSet("simulate", flag.ExitOnError)
	f.IntVar(&o.seeds, "seeds", 100, "run this many seeds, beginning with -from")
	f.DurationVar(&o.time, "time", 0, "start new seeds for so long, with the build of the program, instead of -seeds")
	f.Uint64Var(&o.from, "from", 1, "the first seed")
	one := f.Uint64("seed", 0, "run this seed only, and print a summary: faults, operations and states")
	f.StringVar(&o.bugs, "bugs", "", "search for each planted bug whose name contains this, or for all, in at most -seeds seeds, and print a table")
	f.IntVar(&o.tries, "tries", 3, "with -bugs: how often to search for each bug, from different seeds on")
	f.StringVar(&o.log, "log", "", "with -seed: write all events to this file")
	o.define(f)
	f.Usage = func() {
		fmt.Fprint(f.Output(), "Run whole clusters in simulated time and judge their histories.\n\n"+
			"  go run ./test/simulation -seeds 1000\n  go run ./test/simulation -seed 17\n  go run ./test/simulation -bugs all -virtual 30s\n\nFlags:\n")
		f.PrintDefaults()
	}
	_ = f.Parse(args) // ends the program
	if *one != 0 {
		o.one, o.from, o.seeds = true, *one, 1
	} else if o.log != "" {
		fmt.Fprintln(os.Stderr, "simulate: -log needs -seed")
		os.Exit(2)
	}
	return o
}

// define defines the flags that apply to one seed and to many.
func (o *options) define(f *flag.FlagSet) {
	f.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "seeds that run at a time")
	f.BoolVar(&o.twice, "twice", false, "run each seed twice and compare the histories")
	f.StringVar(&o.bug, "bug", "", "plant this bug (see internal/planted), and stop at the first seed that finds it")
	f.DurationVar(&o.virtual, "virtual", 2*time.Minute, "virtual time of each seed until its faults end")
	f.DurationVar(&o.limit, "limit", 5*time.Minute, "real time after which a seed counts as stuck")
	f.IntVar(&o.events, "events", 200, "how many lines to print around a violation")
	f.StringVar(&o.cover, "cover", "", "collect what the seeds reach into this directory, for go tool covdata")
	f.BoolVar(&o.follower, "follower", false, "run only seeds in which another cluster follows the first")
	f.BoolVar(&o.keep, "keep-going", false, "go on after a violation")
}

// next returns the first seed, from one on, that is to be run.
func (o *options) next(seed uint64) uint64 {
	for o.follower && !o.one && !world.HasFollower(seed) {
		seed++
	}
	return seed
}
