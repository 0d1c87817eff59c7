// Package disks observes the disks of a node's data directories: how much free space they have, and whether they answer. Reads of a disk
// that does not answer hang and cannot be cancelled, and while such a node runs no other node serves its tablets, so the node stops. It
// also stops when all its disks have failed, even if nothing but the check writes to them. One disk of several that fails is retired.
//
// It also keeps how much space was used in the last week, from which it forecasts when the disks will be full.
//
// # Goroutines
//
//	goroutine  started by  ends with  does
//	watch      Watch       Ctx        one for each data directory: stops the node when its disk does not answer, or all disks have failed
//	observe    Observe     Ctx        records the used space each minute
//
// # Invariants
//
//	DK1. A growth over a period is observed over at least half of it.
//	DK2. A node whose disks have all failed ends within one interval of checks, and a failed disk is written to no more by the block store.
package disks
