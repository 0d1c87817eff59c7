// Package logproto is the protocol of replicated logs, as pure state machines: messages
// and outcomes go in, effects come out. Nothing in it waits, reads a clock, or touches a
// disk or network. Package local drives a [Replica] with its disks, package blobfs
// a [Writer] and a [Recoverer] with the network; a test drives all of them together through
// every order of events within a budget. The protocol and why it is right are
// written down in DESIGN.md of package blobfs, under "Logs".
//
// The log takes the place of a GFS file in §4 and §6 of the Bigtable paper. We depart in
// that an append is acknowledged only when every replica has it on disk.
//
// # Nouns
//
//   - A [List] says of which extents a log consists. It is a file of the lock service,
//     changed by compare-and-set.
//   - An extent is a run of the log's bytes, the same on each of its replicas. It is open or
//     sealed: its length is in the list.
//   - The standby is an open extent, registered ahead, in which nothing has been written yet.
//   - An epoch is a number in the list; who takes a log over raises it.
//   - A fence is a replica's durable promise to take nothing of lower epochs.
//   - A cut makes a replica's extent as long as the list says, for good. Only then is it read.
//
// # Invariants
//
//	L1. What was acknowledged is in the log that every later recovery finds, in order, once.
//	L2. Once a recovery has fenced a replica of each open extent, nothing that is
//	    submitted after that to a writer of a lower epoch is acknowledged.
//	L3. A length that is in the list never changes, nor does an epoch or a fence go back.
//	L4. A replica serves an extent only with the length, start and bytes that the list says.
//	L5. Of a closed log every recovery finds the same.
//
// The package starts no goroutine.
package logproto
