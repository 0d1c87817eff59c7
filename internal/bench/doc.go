// Package bench measures Stele with the six workloads of the paper's §7, and with the
// six of YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC
// 2010). It knows the client and nothing of nodes.
//
// # The paper's workloads
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
// # YCSB's workloads
//
// Records of ten fields of 100 bytes, each a row with ten columns. So many operations
// are done, each of one kind, drawn anew:
//
//	ycsb-a  reads 50%, updates 50%
//	ycsb-b  reads 95%, updates 5%
//	ycsb-c  reads
//	ycsb-d  reads 95%, inserts 5%; reads ask for what was inserted last
//	ycsb-e  scans 95%, inserts 5%; of 1 to 100 records, each length as often
//	ycsb-f  reads 50%, read-modify-writes 50%: a read, then an update of the same
//	        record, as YCSB's is, and not Stele's atomic one
//
// A read reads all fields, an update writes one, an insert writes a record. Records are
// drawn with a scrambled Zipfian distribution, the start of scans too; in ycsb-d the
// distribution is over their age. The constant is 0.99. A, B, C, F and D run in this
// order on one table, E on one of its own. Records are loaded before and compacted,
// which is not measured. An operation is a call.
//
// Everything that is read is checked: that a record has its ten fields, that each has
// a value which somebody wrote there, that it is not older than an update which was
// acknowledged before (but for those under way together), and that scans miss no
// record which was loaded.
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
// And from YCSB: keys have a bijection's hash in 20 digits in place of FNV's without
// zeros in front, so that scans can be checked; the probabilities of ycsb-d count
// records in steps of a thousandth.
//
// # Nouns
//
//   - A Workload is one of the twelve names.
//   - A dataset is a table of rows that workloads write or read.
//   - A lap is one pass over the rows of a dataset by all clients.
//   - records is a table of YCSB's records; a mixed is clients that do operations of
//     several kinds on them.
//   - A stamp is the number of an update; a floor is the least that may be read.
//   - A Result is what came out of one workload.
//
// # Goroutines
//
//	goroutine   started by          ends when                         owns
//	client      a lap or a mixed,   no rows or operations are left,   its buffers and
//	            Clients of them     ctx ends, or one of them fails    histograms
//	loader      a loading, 4        no records are left, ctx ends,    its batch
//	            of them             or one of them fails
//
// # Invariants
//
//	B1. Row i of a seed has the same key and value wherever it is made, and no two
//	    rows have the same.
//	B2. A permutation of R numbers gives each of them once.
//	B3. A lap hands out each row once.
//	B4. No value that differs from what was written is counted as read.
//	B5. No read finds a stamp below the floor that its field had when the read began,
//	    unless an acknowledged update was lost.
package bench
