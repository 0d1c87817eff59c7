// Package bench measures Stele with the six workloads of the paper's §7, and with the six of YCSB
// (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010). It uses only the
// client.
//
// # The paper's workloads
//
// There are R rows, numbered 0 to R-1. The key of a row is its number in 16 digits. Its value has
// 1000 incompressible bytes and differs from that of every other row.
//
//	sequential-write  writes each row once; the row numbers are divided into 10 ranges
//	                  per client, each assigned to the next idle client
//	random-write      the same, through a permutation of the row numbers
//	sequential-read   reads the rows of sequential-write, in the same way
//	random-read       reads the rows of random-write, through another permutation
//	random-read-mem   the same, on a tenth of the rows, in an in-memory locality group
//	scan              reads the rows of sequential-write with Scanners, one per range
//
// Rows count as operations. Every value read is compared byte by byte.
//
// Read workloads repeat until ReadTimeMin has passed. If no workload of the same run wrote their
// rows, these are written first. The table is then compacted, so that reads come from SSTables.
// Neither is measured.
//
// # YCSB's workloads
//
// A record has ten fields of 100 bytes: a row with ten columns. A workload does a given number of
// operations, each of a random kind:
//
//	ycsb-a  reads 50%, updates 50%
//	ycsb-b  reads 95%, updates 5%
//	ycsb-c  reads
//	ycsb-d  reads 95%, inserts 5%; reads favor the records inserted last
//	ycsb-e  scans 95%, inserts 5%; scans of 1 to 100 records, uniformly distributed
//	ycsb-f  reads 50%, read-modify-writes 50%: a read, then an update of the same
//	        record, as in YCSB, instead of Stele's atomic one
//
// A read reads all fields, an update writes one field, an insert writes a record. Records, and the
// starts of scans, are drawn from a scrambled Zipfian distribution with constant 0.99; in ycsb-d
// the distribution is over their age. A, B, C, F and D run in this order on one table, E on its
// own. Records are loaded and compacted before, which is not measured. An operation is a call.
//
// All data read is checked. A record must have its ten fields, each with a value that was written
// to it. Except among concurrent updates, no value may be older than an update acknowledged before
// the read. Scans must not miss a loaded record.
//
// # Latency
//
// Latency is that of a call, which has Batch rows. For a scan, it is the time between one thousand
// rows and the next, as seen by the reader. With a Rate, latency counts from the time at which the
// call was due, so that a stalled node is not sampled less often (coordinated omission).
//
// # Differences from the paper and from YCSB
//
// The paper hashes row keys modulo R, which writes some rows twice and some never. Here a
// permutation writes and reads each row once, so that missing rows are detected. Clients are
// goroutines of one process.
//
// Differences from YCSB: keys are a bijective hash in 20 digits instead of FNV without leading
// zeros, so that scans can be checked. The probabilities of ycsb-d are updated whenever the number
// of records has grown by a thousandth.
//
// # Terms
//
//   - A Workload is one of the twelve names.
//   - A dataset is a table of rows that workloads write or read.
//   - A lap is one pass over the rows of a dataset by all clients.
//   - records is a table of YCSB records. A mixed is a set of clients that do
//     operations of several kinds on them.
//   - A stamp is the number of an update. A floor is the lowest stamp that a read
//     may return.
//   - A Result is the result of one workload.
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
//	BN1. Row i of a seed always has the same key and value. No two rows have the same key or
//	    value.
//	BN2. A permutation of R numbers yields each of them once.
//	BN3. A lap assigns each row once.
//	BN4. A value that differs from the one written is never counted as good.
//	BN5. No read returns a stamp below the field's floor at the start of the read, unless an
//	    acknowledged update was lost.
package bench
