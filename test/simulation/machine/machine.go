package machine

import (
	"fmt"
	"runtime"
	"time"
)

// ProcessesMax is the number of processes of a program over its life.
const ProcessesMax = 1<<16 - 1

// The states of a process, as the runtime knows them.
const (
	running uint8 = iota
	stopped
	killed
)

// rateOne is the rate of a clock that neither gains nor loses.
const rateOne = 1 << 20

// Seed sets the state of the generator from which all randomness of the program is drawn.
func Seed(s uint64) { seed(s) }

// began is the time at which every program begins, in nanoseconds since 1970.
const began = 1257894000e9

// Now returns the time since the start of the program by the machine's own clock, which no process
// can change.
func Now() time.Duration { return time.Duration(nanotime() - began) }

// Process returns the number of the calling goroutine's process.
func Process() int { return current() }

// Start runs f in a goroutine of a process, from 1 to ProcessesMax. A process begins with its first
// goroutine. Only the kernel may call it, as all functions that change a process.
func Start(process int, f func()) {
	check(process)
	enter(process)
	go f()
	enter(0)
}

// Stop stops a process: its goroutines do not run until Continue. Its timers expire meanwhile.
func Stop(process int) { check(process); setState(process, stopped) }

// Continue continues a stopped process.
func Continue(process int) { check(process); setState(process, running) }

// Kill ends a process at once. Its number cannot be used again.
func Kill(process int) { check(process); setState(process, killed) }

// SetClock sets the clocks of a process: the wall clock is ahead of the machine's by wall, and both
// its clocks gain ppm parts in a million of the time that passes. Timers that run already expire as
// before.
func SetClock(process int, wall time.Duration, ppm int64) {
	check(process)
	setClock(process, int64(wall), rateOne+ppm*rateOne/1_000_000)
}

// SetLate makes some goroutines of a process late: one of oneIn that could run does so up to most later, mostly much less. None
// does if oneIn is 0. What is late already stays so.
func SetLate(process int, oneIn uint64, most time.Duration) {
	check(process)
	setLate(process, oneIn, int64(most))
}

func check(process int) {
	if process < 1 || process > ProcessesMax || current() != 0 {
		panic(fmt.Sprintf("simulation: process %d controls process %d", current(), process))
	}
}

// Collect frees memory that is not used any more.
func Collect() { runtime.GC() }

// Counters returns how often the clock has jumped, and how often a goroutine of a process was run.
func Counters() (jumps, switches uint64) { return counters() }

// Goroutines returns the number of goroutines of a process.
func Goroutines(process int) int { return goroutines(process) }

// Ticks returns the ticks of the real processor during which goroutines of a process ran. Process 0 has those of the runtime and of garbage
// collection too. It is for measurements: what the program does must not depend on it (SM6).
func Ticks(process int) uint64 { return ticksOf(process) }
