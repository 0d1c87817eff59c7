package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/test/simulation/machine/patch"
	"github.com/steledb/stele/test/simulation/world"
)

// buildAndRun builds the program with the patched runtime and runs the seeds.
func buildAndRun(ctx context.Context, o options) error {
	end := time.Now().Add(o.time)
	dir, err := os.MkdirTemp("", "stele-simulation-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := build(ctx, o, dir)
	if err != nil {
		return err
	}
	return run(ctx, o, program, end)
}

// run runs the seeds, the last of which begins before the end if there is one.
func run(ctx context.Context, o options, program string, end time.Time) error {
	if o.bugs != "" {
		return huntAll(ctx, o, program)
	}
	r := runner{o: o, program: program, began: time.Now(), end: end}
	r.summary.counts = map[string]int64{}
	r.all(ctx)
	return r.report()
}

// build builds this package with the patched runtime and the planted bugs, of which each seed enables one or none.
func build(ctx context.Context, o options, dir string) (program string, err error) {
	program = filepath.Join(dir, "simulation")
	var args []string
	if o.cover != "" {
		args = append(args, "-cover", "-coverpkg=github.com/steledb/stele/...")
	}
	return program, patch.Build(ctx, dir, "github.com/steledb/stele/test/simulation", program, []string{"plantedbugs"}, args...)
}

// A runner runs seeds.
type runner struct {
	o       options
	program string
	began   time.Time
	end     time.Time // of options.time
	stop    context.CancelFunc
	mu      sync.Mutex
	summary struct {
		seeds  int
		failed []uint64
		counts map[string]int64
	}
}

// all runs all seeds.
func (r *runner) all(ctx context.Context) {
	var wg sync.WaitGroup
	ctx, r.stop = context.WithCancel(ctx)
	defer r.stop()
	reporting, end := context.WithCancel(ctx)
	var reports sync.WaitGroup
	reports.Go(func() { r.printProgress(reporting) })
	defer reports.Wait()
	defer end()
	seeds := make(chan uint64)
	for range r.o.jobs {
		wg.Go(func() {
			for seed := range seeds {
				r.seed(ctx, seed)
			}
		})
	}
	seed := r.o.next(r.o.from)
	for i := 0; r.more(i) && ctx.Err() == nil; i++ {
		select {
		case seeds <- seed:
			seed = r.o.next(seed + 1)
		case <-ctx.Done():
		}
	}
	close(seeds)
	wg.Wait()
}

// printProgress prints lines about the progress until the context ends.
func (r *runner) printProgress(ctx context.Context) {
	if r.o.progress == 0 || r.o.one {
		return
	}
	tick := time.NewTicker(r.o.progress)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.mu.Lock()
			took := time.Since(r.began)
			fmt.Printf("%d seeds in %v: %.1f a minute, %d with violations\n", r.summary.seeds, took.Round(time.Second), float64(r.summary.seeds)/took.Minutes(), len(r.summary.failed))
			r.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// more reports whether to run another seed after n.
func (r *runner) more(n int) bool {
	if r.o.time > 0 {
		return time.Now().Before(r.end)
	}
	return n < r.o.seeds
}

// seed runs one seed and prints what is wrong with it.
func (r *runner) seed(ctx context.Context, seed uint64) {
	began := time.Now()
	var out outcome
	if err := logThrough(r.o.log, func(log string) {
		o := r.o
		o.log = log
		out = runSeed(ctx, o, r.program, seed, o.bug)
	}); err != nil {
		out.err = errors.Join(out.err, fmt.Errorf("write the log: %w", err))
	}
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	result, err := out.result, out.err
	if err == nil && r.o.twice {
		other := r.o
		other.log, other.padding = os.DevNull, 20_000 // neither the output nor where things are in memory may matter (SM7)
		again := runSeed(ctx, other, r.program, seed, r.o.bug)
		if err = again.err; err == nil && again.result.Hash != result.Hash {
			err = fmt.Errorf("two runs differ: history %x with %d events, and %x with %d", result.Hash, result.Events, again.result.Hash, again.result.Events)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.summary.seeds++
	if r.o.one {
		fmt.Printf("%s", out.text)
		if err == nil {
			fmt.Printf("%s\n", describe(result, took))
		}
	} else {
		r.add(result)
	}
	if err == nil && result.Violation == "" {
		return
	}
	r.summary.failed = append(r.summary.failed, seed)
	if !r.o.one {
		fmt.Printf("%s", out.text)
	}
	fmt.Printf("seed %d: %s\n", seed, cmpOr(result.Violation, fmt.Sprint(err)))
	fmt.Printf("replay: go run ./test/simulation -seed %d%s\n\n", seed, r.replayFlags())
	if !r.o.keep {
		r.stop()
	}
}

// add adds the counts of a seed.
func (r *runner) add(result world.Result) {
	for name, n := range result.Counts {
		if strings.HasPrefix(name, "max ") {
			r.summary.counts[name] = max(r.summary.counts[name], n)
			continue
		}
		r.summary.counts[name] += n
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (r *runner) replayFlags() (s string) {
	if r.o.virtual != 2*time.Minute {
		s += " -virtual " + r.o.virtual.String()
	}
	if r.o.bug != "" {
		s += " -bug " + r.o.bug
	}
	return s
}

// An outcome is that of one seed: its result, or why it has none, and what it printed.
type outcome struct {
	result world.Result
	text   []byte
	err    error
}

// runSeed runs one seed in a process of its own, with a planted bug if bug is not empty.
func runSeed(ctx context.Context, o options, program string, seed uint64, bug string) outcome {
	limited, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	args := []string{childArgument, "-seed", strconv.FormatUint(seed, 10), "-virtual", o.virtual.String(), "-events", strconv.Itoa(o.events), "-bug", bug, "-log", o.log}
	cmd := exec.CommandContext(limited, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + o.cover, "GOTRACEBACK=" + os.Getenv("GOTRACEBACK"), "PADDING=" + strings.Repeat("x", o.padding)}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var result world.Result
	switch {
	case limited.Err() != nil:
		err = fmt.Errorf("not finished after %v of real time", o.limit)
	case err != nil:
		err = fmt.Errorf("the simulation ended: %w", err)
	default:
		if err = json.Unmarshal(out.Bytes(), &result); err != nil {
			err = fmt.Errorf("read the result: %w", err)
		}
	}
	return outcome{result, errs.Bytes(), err}
}

// report prints what was run.
func (r *runner) report() error {
	s, took := &r.summary, time.Since(r.began)
	if r.o.one && len(s.failed) == 0 {
		return nil
	}
	fmt.Printf("%d seeds in %v: %.1f a minute\n", s.seeds, took.Round(time.Second/10), float64(s.seeds)/took.Minutes())
	var names []string
	for name := range s.counts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Printf("  %-32s %12d\n", name, s.counts[name])
	}
	if len(s.failed) > 0 {
		return errors.New("violations in seeds " + strings.Trim(fmt.Sprint(s.failed), "[]"))
	}
	return nil
}
