package main

import (
	"encoding/json"
	"flag"
	"os"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/test/simulation/world"
)

// childArgument is the first argument of the process that runs one seed.
const childArgument = "run-one-seed"

// runChild runs one seed, prints its result in JSON to the standard output, and what people read to
// the standard error.
func runChild(args []string) {
	f := flag.NewFlagSet(childArgument, flag.ExitOnError)
	cfg := world.Config{Text: os.Stderr}
	f.Uint64Var(&cfg.Seed, "seed", 1, "")
	f.DurationVar(&cfg.Faults, "virtual", 2*time.Minute, "")
	f.IntVar(&cfg.Events, "events", 200, "")
	f.StringVar(&cfg.Log, "log", "", "")
	f.BoolVar(&cfg.Quiet, "quiet", false, "")
	bug := f.String("bug", "", "")
	profile := f.String("cpuprofile", "", "")
	_ = f.Parse(args)
	if *bug != "" {
		if err := planted.Choose(planted.With(planted.Bug(*bug))...); err != nil {
			panic(err)
		}
	}
	if !regular(cfg.Log) {
		panic("the log is not a regular file: " + cfg.Log)
	}
	defer profileCPU(*profile)()
	limitMemory()
	result := world.Run(cfg)
	if *bug != "" {
		result.Counts["reached the planted bug"] = planted.Reached()
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		panic(err)
	}
}

// profileCPU writes a profile to a file until the function that it returns is called.
func profileCPU(file string) (stop func()) {
	if file == "" {
		return func() {}
	}
	out, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		panic(err)
	}
	return pprof.StopCPUProfile
}

// memoryMax is the most that one seed may take, in bytes of address space.
const memoryMax = 6 << 30

// limitMemory makes the program end instead of taking the memory of the machine, when it allocates for
// ever in one instant of virtual time.
func limitMemory() {
	limit := syscall.Rlimit{Cur: memoryMax, Max: memoryMax}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		panic(err)
	}
}
