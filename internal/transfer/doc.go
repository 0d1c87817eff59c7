// Package transfer imports files of rows into a table, and exports tables to such files (package rowfile), with bounded memory. The paper's users
// do so with MapReduce.
//
// An import sends the rows in batches, several at a time, and repeats what failed for a while. The state of an import is the last line up to
// which all rows have been applied or rejected: an interrupted import continues behind it. All cells of an import that have no timestamp in
// the file get the same one, so that repeated batches change nothing.
//
// Files of HBase have deletions, of timestamps of which the file has no cells. They may be applied before or after other items of the row, and again.
//
// With ImportConfig.Bulk an import sorts the rows of each batch, a run, and writes those of each tablet as a part of a bulk import if they are many. What remains is
// sent in batches, and so are the rows of a part that was rejected, so that each row gets its own error.
//
// An export reads each row as a whole, and different rows at different times. To a directory it writes parts, several at a time, and a
// manifest that names them; an interrupted export continues with the parts that are missing.
//
// # Goroutines
//
//	goroutine  started by      ends with
//	workers    Import          its return
//	parts      ExportFolder    its return
//
// # Invariants
//
//	TR1. When Import returns nil, each row of the file has been applied, or was passed to Reject.
//	TR2. Each line up to Progress.Line has been applied or rejected, at any time.
//	TR3. A part with its final name is complete and durable.
package transfer
