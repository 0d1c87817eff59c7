// Package commitlog implements a tablet server's single commit log (paper §5.3 and §6, "Commit-log
// implementation"). The mutations of all its tablets are in one log, and each is durable before it
// is acknowledged.
//
// # Group commit
//
// Commits are written in batches. While one batch is being written, the next one fills. A commit
// waits for at most two disk writes, and one write serves all commits of its batch:
//
//	callers ──Commit──▶ filling batch ──writer──▶ appended and synced ──applier──▶ Done
//
// Sequence numbers are assigned under the lock that guards the filling batch. The log, the sequence
// numbers and the calls to Done therefore have the same order. Server timestamps, which a tablet's
// Stamper assigns under the same lock, have it too, so they strictly increase per row (I8), or do not decrease in a table of
// milliseconds.
//
// # Record
//
// A batch is one append to the log blob, which has checksums of its own and recovers a batch
// completely or not at all. The batch is a sequence of records. Integers are little-endian:
//
//	 0        4         8         16         24         32       36         44
//	┌────────┬─────────┬─────────┬──────────┬──────────┬────────┬──────────┬──────┐
//	│ crc 4  │ length 4│ table 8 │ tablet 8 │ first 8  │ ops 4  │ time 8   │ body │
//	└────────┴─────────┴─────────┴──────────┴──────────┴────────┴──────────┴──────┘
//
//	crc     CRC-32C of everything after it, body included
//	length  bytes of body
//	table   id of the table
//	tablet  id of the tablet with the row at the time of the commit
//	first   sequence number of the first entry; the others follow consecutively
//	ops     number of entries, and so of sequence numbers used
//	time    server timestamp of the entries that requested one, in µs; 0: none
//	body    the entries, in the tablet's format
//
// The record has its own checksum in addition to the blob's, because recovery sorts records and
// transfers them to other servers: the checksum goes with the record. Recovery locates records by
// table and row, never by tablet, because splits and merges may have happened since. The tablet id
// is for diagnosis.
//
// Worked example: table 4, tablet 1, first 2, ops 1, time 3, body "x":
//
//	84 11 64 4b | 01 00 00 00 | 04 00 .. 00 | 01 00 .. 00 | 02 00 .. 00 | 01 00 00 00 | 03 00 .. 00 | 78
//
// # Sequence numbers of other servers
//
// A tablet that is loaded may have entries numbered by another server. Raise makes this log
// continue above them, so the sequence numbers of a row's commits always increase, whichever server
// serves the row.
//
// # Differences from the paper
//
// Bigtable writes two logs and switches when one is slow. Here the log blob has a second extent
// ready on other nodes (package blobfs/logproto) and continues there when a replica is slow or
// lost.
//
// # Goroutines
//
//	writer   started by New, ends after Close; owns the batch being appended
//	applier  started by New, ends after the writer; calls Commit.Done and the functions given to Between
//
// # Invariants
//
//	CL1. Done(nil) is called only after the commit's record is durable (I1).
//	CL2. Done is called exactly once for each accepted commit, in sequence order.
//	CL3. After a failed append no commit succeeds. The commits in it get a *FailedError,
//	    which means that they may or may not survive; later ones get ErrClosed, which
//	    means that they were not written.
package commitlog
