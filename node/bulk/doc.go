// Package bulk serves bulk imports: parts of rows in ascending order that go to SSTables of one tablet, and are added to it in one change of
// METADATA (package tablet, BulkPart). A client sends a part by several bulk_write and commits it by bulk_commit.
//
// Rights are checked first, before anything of a part is used or answered. Parts are accepted only if all nodes of the cluster read their files.
//
// A part is in the memory of the node that serves its tablet, with files that nothing names yet. What ends it loses nothing: the client sends its
// rows again, as another part. Parts that make too little progress within api.BulkIdle, or are open for
// api.BulkOpenMax, are aborted, which releases their space. After a crash, garbage collection does so.
//
// # Goroutines
//
//	goroutine  started by  ends with
//	sweep      Start       Close
//
// # Invariants
//
//	BI1. A part is added to its tablet only by a bulk_commit of the user who began it, with all of its requests.
//	BI2. bulk_commit fails with api.ErrBulkExpired only if the part was not committed, and never will be.
//	BI3. The number of open parts, and that of one user, are bounded before a part uses memory or disk space. A part stays open only as long as rows are
//	     added to it.
package bulk
