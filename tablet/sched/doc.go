// Package sched schedules the compactions of a tablet server.
//
//   - A Queue holds the tablets that wait for some work, each at most once.
//   - A Slot is the right to work. It is held by one compaction of a loop at a time, and released
//     while that compaction waits for long.
//   - A Pacer pauses a compaction while reads or writes, which have priority, are executed.
//   - Debts bounds how fast users cause work.
//
// The package knows nothing of tablets and starts no goroutines, except that a timer releases the
// slot of a compaction that waits.
//
// # Invariants
//
//   - At most one goroutine works in a slot. One that waits in WithoutSlot does not count.
//   - A pause ends with the compaction's context, and when the compaction becomes urgent.
package sched
