package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"

	"github.com/steledb/stele/test/simulation/bigcluster"
	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/machine/patch"
)

// childArgument is the first argument of the process that runs one cluster.
const childArgument = "run-one-cluster"

// options are the flags.
type options struct {
	nodes, only, log, profile, memory string
	tablets, lookups                  int
	seed                              uint64
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		runChild(os.Args[2:])
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, parse(os.Args[1:]), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func parse(args []string) options {
	var o options
	f := flag.NewFlagSet("scale", flag.ExitOnError)
	f.StringVar(&o.nodes, "nodes", "10,30,100", "the sizes of the clusters")
	f.StringVar(&o.only, "only", "", "the phases after the start, with commas; empty for all")
	f.IntVar(&o.tablets, "tablets", 10, "tablets of the user table for each node")
	f.IntVar(&o.lookups, "lookups", 100, "clients with an empty cache for each node")
	f.Uint64Var(&o.seed, "seed", 1, "the seed of all randomness")
	f.StringVar(&o.log, "log", "", "write the log of all nodes to this file")
	f.StringVar(&o.profile, "cpuprofile", "", "write a profile of the processor to this file")
	f.StringVar(&o.memory, "memprofile", "", "write a profile of memory after each phase, to files whose names begin so")
	_ = f.Parse(args) // ends the program
	return o
}

// run runs clusters and prints a table.
func run(ctx context.Context, o options, out io.Writer) error {
	all, err := runAll(ctx, o)
	if err != nil {
		return err
	}
	return report(out, all)
}

// runAll builds this package with the patched runtime, and runs a cluster of each size in a process of its own.
func runAll(ctx context.Context, o options) (all []bigcluster.Result, err error) {
	dir, err := os.MkdirTemp("", "stele-scale-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "scale")
	if err := patch.Build(ctx, dir, "github.com/steledb/stele/test/simulation/scale", program, nil); err != nil {
		return nil, err
	}
	for size := range strings.SplitSeq(o.nodes, ",") {
		r, err := runOne(ctx, o, program, size)
		if err != nil {
			return nil, fmt.Errorf("%s nodes: %w", size, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// runOne runs a cluster.
func runOne(ctx context.Context, o options, program, size string) (r bigcluster.Result, err error) {
	cmd := exec.CommandContext(ctx, program, childArgument, "-nodes", size, "-only", o.only, "-tablets", strconv.Itoa(o.tablets), "-lookups", strconv.Itoa(o.lookups),
		"-seed", strconv.FormatUint(o.seed, 10), "-log", o.log, "-cpuprofile", o.profile, "-memprofile", o.memory)
	cmd.Env, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// runChild runs one cluster and prints its result in JSON.
func runChild(args []string) {
	o := parse(args)
	nodes, err := strconv.Atoi(o.nodes)
	check(err)
	cfg := bigcluster.Config{Nodes: nodes, Tablets: nodes * o.tablets, Lookups: nodes * o.lookups, Seed: o.seed, Log: io.Discard}
	if o.only != "" {
		cfg.Only = strings.Split(o.only, ",")
	}
	if o.log != "" {
		cfg.Log, err = os.Create(o.log)
		check(err)
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		check(err)
		check(pprof.StartCPUProfile(f))
	}
	if o.memory != "" {
		cfg.AfterPhase = func(phase string) {
			machine.Collect()
			f, err := os.Create(o.memory + strings.ReplaceAll(phase, " ", "-"))
			check(err)
			check(pprof.Lookup("heap").WriteTo(f, 0))
			check(f.Close())
		}
	}
	result := bigcluster.Run(cfg)
	pprof.StopCPUProfile()
	check(json.NewEncoder(os.Stdout).Encode(result))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
