// Package assign gives the master (package master) access to what it assigns: the rows of tablets in METADATA, the tablet servers that hold
// locks in the lock service, and the logs of dead servers (paper §5.2). It also makes METADATA agree with the tables: it creates the
// rows of a new table's tablets and removes those of a dropped one. RemoveLogs deletes a dead server's logs, its recovery and its sorted
// runs. The master decides; this package reads and writes for it.
//
// A Tablets is used by one goroutine, that of the master. dropRuns deletes the sorted logs of a finished recovery in the background, for a
// minute at most.
//
// # Invariants
//
//	AS1. A row without a table belongs to a dropped one: rows are read before the tables are listed, and a table exists before its rows.
//	AS2. A damaged row is removed only if it is of a dropped table, and describes no tablet of an existing one that has no other row.
package assign
