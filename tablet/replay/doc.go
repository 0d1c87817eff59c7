// Package replay writes records of change streams as SSTables, to restore a table to a time: the files of a backup, and above them those of the
// changes since. The paper has no backups. Its recovery does the same with the commit log (§5.3).
//
// An entry in such a file has the key and the sequence number that it had in the table. So each operand of an aggregate is there once, however
// often a restore is tried: a file of an attempt that failed is in no metadata.
//
// Records are sorted in memory, in parts of 32 MiB and one record. Each part becomes one file for each locality group of its entries.
//
// # Departures from the paper
//
// The files have no statistics of their families. Compactions, which replace them soon, write these.
//
// # Goroutines
//
// The package starts none. A Writer is for one goroutine.
//
// # Invariants
//
//	RP1. The files of a Writer have each entry of the records once, with its sequence number.
//	RP2. Of the entries of a row, those in a file have larger sequence numbers than those in the files before it.
//	RP3. The deletion of a row is in each group that may have older entries of the row.
package replay
