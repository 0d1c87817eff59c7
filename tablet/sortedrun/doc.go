// Package sortedrun sorts pieces of a dead server's commit log by table and internal key, and reads
// them (paper §6, "Commit-log implementation").
//
//   - SortLog writes the runs of a piece as SSTables. Meta describes a run; the master stores it.
//   - A tablet that is loaded reads its Entries of each Run.
//   - OpenRuns shares open runs among the loads of a server, so that each is opened once.
//
// The only goroutine is a timer of OpenRuns that closes idle runs; Close stops it.
//
// # Invariants
//
//   - Runs are durable when SortLog returns (I1).
//   - A run has each entry of its batches exactly once, in the order of table and internal key.
//   - A batch is never divided between runs.
package sortedrun
