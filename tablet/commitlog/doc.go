// Package commitlog is a tablet server's one commit log (paper §5.3 and §6,
// "Commit-log implementation"): the mutations of all its tablets, mingled in one
// log, each made durable before it is acknowledged.
//
// # Group commit
//
// Commits ride in batches. While one batch is on its way to the disk the next
// one fills, so that a commit waits for at most two disk writes and one write
// serves all that came meanwhile:
//
//	callers ──Commit──▶ filling batch ──writer──▶ appended and synced ──applier──▶ Done
//
// Sequence numbers are given under the lock that fills the batch, so the order
// of the log, the order of sequence numbers and the order of the calls to Done
// are one order. So is that of server timestamps, which a tablet's Stamper gives
// under the same lock: that is why they strictly increase per row (I8).
//
// # Record
//
// A batch is one append to the log blob, which checks its bytes and puts it back
// whole or not at all. Inside it the records stand one after the other. Integers
// are little-endian:
//
//	 0        4         8         16         24         32       36         44
//	┌────────┬─────────┬─────────┬──────────┬──────────┬────────┬──────────┬──────┐
//	│ crc 4  │ length 4│ table 8 │ tablet 8 │ first 8  │ ops 4  │ time 8   │ body │
//	└────────┴─────────┴─────────┴──────────┴──────────┴────────┴──────────┴──────┘
//
//	crc     CRC-32C of everything after it, body included
//	length  bytes of body
//	table   id of the table
//	tablet  id of the tablet that the row was in then
//	first   sequence number of the first entry; the others follow by one
//	ops     number of entries, so of sequence numbers used
//	time    server timestamp of the entries that asked for one, in µs; 0: none
//	body    the entries, whose form is the tablet's business
//
// The record has a checksum of its own, though the blob has one too, because
// recovery sorts records and hands them to other servers: it goes with the record.
// Recovery finds a record's place by table and row, never by tablet: a split or a
// merge may have come after it. The tablet is there for people who look for a cause.
//
// Worked example: table 4, tablet 1, first 2, ops 1, time 3, body "x":
//
//	84 11 64 4b | 01 00 00 00 | 04 00 .. 00 | 01 00 .. 00 | 02 00 .. 00 | 01 00 00 00 | 03 00 .. 00 | 78
//
// # Numbers of other servers
//
// A tablet comes with entries that another server has numbered. Raise makes this
// log's numbers go on above them, so that the numbers of a row's commits ascend for
// ever, whoever serves the row.
//
// # Departures from the paper
//
// Bigtable writes two logs and switches when one is slow. Here the log below has a
// second extent ready on other nodes (package blobfs/logproto), and goes on in that
// when a replica is slow or gone.
//
// # Goroutines
//
//	writer   started by New, ends after Close; owns the batch being appended
//	applier  started by New, ends after the writer; calls Commit.Done, and what Between is given
//
// # Invariants
//
//	C1. Done(nil) is called only after the commit's record is durable (I1).
//	C2. Done is called exactly once for each accepted commit, in sequence order.
//	C3. After a failed append no commit succeeds any more; those that it carried are
//	    told that they may or may not survive, those behind it that they were not written.
package commitlog
