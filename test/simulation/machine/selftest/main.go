// Command selftest checks the simulated machine from inside, and prints what happened.
package main

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/steledb/stele/test/simulation/machine"
)

func main() {
	seed, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		panic(err)
	}
	machine.Seed(seed)
	shiftAddresses()
	for _, c := range []struct {
		name string
		f    func()
	}{{"time", testTime}, {"mutex", testMutex}, {"stop", testStop}, {"kill", testKill}, {"clock", testClock}, {"memory", testMemory}, {"addresses", testAddresses}, {"ticks", testTicks}, {"late", testLate}} {
		c.f()
		fmt.Println("ok", c.name)
	}
	printRandomness()
}

var shifted [][]byte

// shiftAddresses keeps objects, so that all others have other addresses.
func shiftAddresses() {
	n, err := strconv.Atoi(os.Getenv("SHIFT"))
	require(err == nil, "SHIFT: %v", err)
	for i := range n {
		shifted = append(shifted, make([]byte, 1+i*37%2000))
	}
}

func require(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf(format, args...))
	}
}

// testTime: a sleep takes exactly its time, and no time passes while goroutines run.
func testTime() {
	began := time.Now()
	time.Sleep(1000 * time.Hour)
	require(time.Since(began) == 1000*time.Hour, "slept %v", time.Since(began))
	began = time.Now()
	for range 1000 {
		runtime.Gosched()
	}
	require(time.Since(began) == 0, "running took %v", time.Since(began))
}

// testMutex: time passes for a goroutine that waits for a mutex whose holder sleeps.
func testMutex() {
	var mu sync.Mutex
	mu.Lock()
	began := time.Now()
	go func() { time.Sleep(time.Minute); mu.Unlock() }()
	mu.Lock()
	require(time.Since(began) == time.Minute, "waited %v", time.Since(began))
}

// nextProcess is the number of the next process.
var nextProcess int

func start(f func()) int {
	nextProcess++
	machine.Start(nextProcess, f)
	return nextProcess
}

// count counts seconds in n, in a goroutine that a timer started.
func count(n *int) func() {
	return func() {
		time.AfterFunc(time.Second, func() {
			for {
				*n++
				time.Sleep(time.Second)
			}
		})
	}
}

// testStop: a stopped process does nothing, and goes on.
func testStop() {
	var n int
	p := start(count(&n))
	time.Sleep(3500 * time.Millisecond)
	require(n == 3, "counted %d before the stop", n)
	machine.Stop(p)
	time.Sleep(time.Minute)
	require(n == 3, "counted %d while stopped", n)
	machine.Continue(p)
	time.Sleep(2 * time.Second)
	require(n == 5, "counted %d after the stop", n)
	machine.Kill(p)
}

// testKill: a killed process runs nothing, not even what it deferred, and its timers start nothing.
func testKill() {
	var n int
	p := start(func() {
		defer func() { n = 1000 }()
		time.AfterFunc(time.Minute, func() { n = 2000 })
		count(&n)()
		time.Sleep(2 * time.Second)
	})
	time.Sleep(1500 * time.Millisecond)
	machine.Kill(p)
	time.Sleep(time.Hour)
	require(n == 1, "counted %d", n)
}

// testClock: a process has clocks of its own, and no timer fires early by them.
func testClock() {
	var wall time.Time
	var took time.Duration
	began := time.Now()
	nextProcess++
	machine.Start(nextProcess, func() {
		wall = time.Now()
		timer := time.NewTimer(1000 * time.Second)
		<-timer.C
		took = time.Since(wall)
	})
	machine.SetClock(nextProcess, -time.Hour, 50_000)
	time.Sleep(time.Second)
	require(wall.Sub(began.Round(0)).Round(time.Millisecond) == -time.Hour, "wall clock is %v ahead", wall.Sub(began))
	time.Sleep(951 * time.Second)
	require(took == 0, "a fast clock waited too short: %v", took)
	time.Sleep(time.Second)
	require(took >= 1000*time.Second && took < 1000*time.Second+time.Millisecond, "waited %v", took)
	machine.Kill(nextProcess)
}

// testMemory: the memory of killed processes is freed.
func testMemory() {
	for range 50 {
		p := start(func() {
			held := make([]byte, 4<<20)
			held[0] = 1
			time.Sleep(time.Hour)
			held[1] = 1
		})
		time.Sleep(time.Second)
		machine.Kill(p)
	}
	machine.Collect()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	require(s.HeapAlloc < 20<<20, "%d bytes are in use", s.HeapAlloc)
}

// printRandomness prints what each source of randomness gives.
func printRandomness() {
	m := map[string]int{}
	for i := range 100 {
		m[fmt.Sprint(i)] = i
	}
	for k := range m {
		fmt.Print(k, " ")
	}
	a, b := make(chan int, 50), make(chan int, 50)
	for i := range 50 {
		a <- i
		b <- -i
	}
	for range 100 {
		select {
		case x := <-a:
			fmt.Print(x, " ")
		case x := <-b:
			fmt.Print(x, " ")
		}
	}
	secret := make([]byte, 16)
	_, _ = crand.Read(secret) // never fails
	fmt.Printf("%x %d\n", secret, rand.Uint64())
}

// testAddresses prints orders that would depend on addresses on an ordinary machine.
func testAddresses() {
	parent, cancel := context.WithCancel(context.Background())
	var order []int
	for i := range 50 {
		child, stop := context.WithCancel(parent)
		defer stop()
		if i%3 == 0 {
			stop()
			continue
		}
		context.AfterFunc(child, func() { order = append(order, i) })
	}
	cancel()
	time.Sleep(time.Second)
	fmt.Println("order of cancelled contexts", order)
	require(len(order) == 33, "%d contexts were cancelled", len(order))

	var tickers [6]*time.Ticker
	for i := range tickers {
		tickers[i] = time.NewTicker(time.Second)
	}
	for range 20 {
		var which int
		select {
		case <-tickers[0].C:
		case <-tickers[1].C:
			which = 1
		case <-tickers[2].C:
			which = 2
		case <-tickers[3].C:
			which = 3
		case <-tickers[4].C:
			which = 4
		case <-tickers[5].C:
			which = 5
		}
		fmt.Println("ticker", which)
	}
}

// testTicks: a process that computes has used the processor longer than one that sleeps as often.
func testTicks() {
	done := make(chan int, 2)
	work := func(rounds int) func() {
		return func() {
			sum := 0
			for range 10 {
				for i := range rounds {
					sum += i ^ sum
				}
				time.Sleep(time.Millisecond)
			}
			done <- sum
		}
	}
	busy, idle := start(work(1_000_000)), start(work(1))
	<-done
	<-done
	require(machine.Ticks(busy) > 10*machine.Ticks(idle) && machine.Ticks(idle) > 0, "busy %d ticks, idle %d", machine.Ticks(busy), machine.Ticks(idle))
}

// testLate: goroutines of a process that is late run late, by different times up to the bound, and in the end in time.
func testLate() {
	const most = time.Second
	var late, never int
	var worst time.Duration
	run := func(n *int) func() {
		return func() {
			for range 1000 {
				began := time.Now()
				time.Sleep(time.Millisecond)
				if d := time.Since(began) - time.Millisecond; d > 0 {
					*n++
					worst = max(worst, d)
				}
			}
		}
	}
	p, other := start(run(&late)), start(run(&never))
	machine.SetLate(p, 10, most)
	time.Sleep(10 * time.Minute)
	require(late > 50 && late < 200, "late %d times of 1000", late)
	require(worst > most/2 && worst <= most, "late by %v at most", worst)
	require(never == 0, "another process was late %d times", never)
	machine.SetLate(p, 0, 0)
	machine.Kill(p)
	machine.Kill(other)
	n := 0
	p = start(run(&n))
	time.Sleep(10 * time.Minute)
	require(n == 0, "late %d times after the end", n)
}
