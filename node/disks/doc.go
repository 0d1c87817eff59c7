// Package disks observes the disks of a node's data directories: how much free space they have, and whether they answer. Reads of a disk
// that does not answer hang and cannot be cancelled, and while such a node runs no other node serves its tablets, so the node stops.
//
// # Goroutines
//
//	goroutine  started by  ends with  does
//	watch      Watch       Ctx        one for each data directory: stops the node when its disk does not answer
package disks
