// Package disks observes the disks of a node's data directories: how much free space they have, and whether they answer. Reads of a disk
// that does not answer hang and cannot be cancelled, and while such a node runs no other node serves its tablets, so the node stops.
//
// It also keeps how much space was used in the last week, from which it forecasts when the disks will be full.
//
// # Goroutines
//
//	goroutine  started by  ends with  does
//	watch      Watch       Ctx        one for each data directory: stops the node when its disk does not answer
//	observe    Observe     Ctx        records the used space each minute
//
// # Invariants
//
//	DK1. A growth over a period is observed over at least half of it.
package disks
