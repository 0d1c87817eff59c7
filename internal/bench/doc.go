// Package bench measures a Stele node with the six workloads of the paper's §7. It
// knows the client and nothing of nodes.
//
// # Workloads
//
// R rows, numbered 0 to R-1. The key of a row is its number in 16 digits, its value
// is incompressible, of 1000 bytes, and different from that of every other row.
//
//	sequential-write  writes each row once; row numbers are given out in 10 ranges for
//	                  each client, the next to whoever is done first
//	random-write      the same, through a permutation of the row numbers
//	sequential-read   reads what sequential-write wrote, in the same way
//	random-read       reads what random-write wrote, through another permutation
//	random-read-mem   the same, on a tenth of the rows, in an in-memory locality group
//	scan              reads what sequential-write wrote with Scanners, one for each
//	                  range
//
// Rows count as operations. Every value that is read is compared byte by byte.
//
// Workloads that read do so again and again until ReadTimeMin has passed. What they
// read is written before, if no workload of the same run wrote it, and then all of it
// is compacted, so that it comes from SSTables; that is not measured.
//
// # Latency
//
// That of a call, which has Batch rows. Of a scan it is the time from one thousand
// rows to the next, as the reader sees them come. With a Rate it counts from the
// moment at which the call was due, so that a node that stands still is not measured
// less often (coordinated omission).
//
// # Departures from the paper
//
// It hashes row keys modulo R, which writes some rows twice and some never. A
// permutation writes and reads each once, so that missing rows are found. Clients are
// goroutines of one process.
//
// # Nouns
//
//   - A Workload is one of the six names.
//   - A dataset is a table of rows that workloads write or read.
//   - A lap is one pass over the rows of a dataset by all clients.
//   - A Result is what came out of one workload.
//
// # Goroutines
//
//	goroutine   started by          ends when                         owns
//	client      a lap, Clients      no rows are left, ctx ends, or    its buffers and
//	            of them             one of them fails                 histogram
//
// # Invariants
//
//	B1. Row i of a seed has the same key and value wherever it is made, and no two
//	    rows have the same.
//	B2. A permutation of R numbers gives each of them once.
//	B3. A lap hands out each row once.
//	B4. No value that differs from what was written is counted as read.
package bench
