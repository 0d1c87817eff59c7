// Package machine is the simulated machine on which a whole cluster runs in one program: virtual
// time, one source of randomness, and processes that can be stopped and killed at any point at which
// they block. It is a patch of Go's runtime, which package patch makes as an overlay for go build.
//
// # Invariants
//
// Their prefix is SM. They state what differs from an ordinary Go program.
//
// SM1. One goroutine runs at a time, until it blocks. There is no preemption, no second thread, and
// nothing of the runtime that runs beside the program: garbage is collected by [Collect] only.
//
// SM2. Time is virtual. When no goroutine can run, the clock jumps to the next timer. While one runs,
// the clock stands. A goroutine that waits for a mutex waits like any other.
//
// SM3. All randomness is drawn from one generator, in the order in which the program asks: select,
// the order of maps, hash seeds, math/rand and crypto/rand. Seed sets its state.
//
// SM4. A goroutine belongs to the process of the goroutine or timer that started it. Process 0, the
// kernel, is never stopped.
//
// SM5. A killed process runs nothing any more, not even deferred functions, as after kill -9. Its
// memory is freed by the next collection. What it shares with other processes stays as it is:
// a mutex that it holds stays locked. Therefore what processes share, the simulated network and
// disks, must never block while it holds a lock.
//
// SM6. The same program with the same seed does the same, to the bit, as long as it reads nothing from
// outside: neither files nor sockets nor the environment.
//
// SM7. Addresses decide nothing, since where things are in memory depends on everything else that the
// program does. Contexts cancel their children in the order in which they were made. Timers of the
// same instant expire in a random order. A program that iterates over a map with more than 8 keys
// that are addresses (pointers, channels, interfaces) ends with a fatal error: it must use other keys.
//
// SM8. A goroutine of a process that is late may run later than it could, by a random time below a bound, as on a machine that is
// overloaded. Others run meanwhile, and those that need a lock of it wait.
//
// # What is only nearly so
//
// A process can be stopped and killed where it blocks, not between two instructions. Data races are
// therefore not explored: the race detector looks for those. Which of several goroutines runs next is
// chosen at random, near the order of Go's scheduler.
//
// # Goroutines
//
// The package starts none.
package machine
