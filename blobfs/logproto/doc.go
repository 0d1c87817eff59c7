// Package logproto is the protocol of replicated logs as pure state machines: messages and outcomes
// go in, effects come out. It never waits, reads a clock, or touches a disk or network. Package
// local drives a [Replica] with its disks; package replog drives a [Writer] and a [Recoverer] with
// the network. A test drives all of them together through every order of events within a budget.
// DESIGN.md of package blobfs, under "Logs", has the protocol and the proof.
//
// The log takes the place of a GFS file in §4 and §6 of the Bigtable paper. Unlike there, an append
// is acknowledged only when every replica has it on disk.
//
// # Nouns
//
//   - A [List] names the extents of a log. It is a file of the lock service, changed by
//     compare-and-set.
//   - An extent is a range of the log's bytes, the same on each of its replicas. It is open, or
//     sealed with its length in the list.
//   - The standby is an open extent that is registered ahead and empty.
//   - An epoch is a number in the list. Every takeover of the log raises it.
//   - A fence is a replica's durable promise to reject lower epochs.
//   - A cut truncates a replica permanently to the length in the list. Only then can it be read.
//
// # Invariants
//
//	L1. What was acknowledged is in the log that every later recovery finds, in order and
//	    once.
//	L2. Once a recovery has fenced a replica of each open extent, nothing that is submitted
//	    afterwards to a writer of a lower epoch is acknowledged.
//	L3. A length in the list never changes, and no epoch or fence decreases.
//	L4. A replica serves an extent only with the start, length and bytes that the list has.
//	L5. Every recovery of a closed log finds the same.
//
// The package starts no goroutine.
package logproto
