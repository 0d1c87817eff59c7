// Package webload writes the pages of a folder into a Webtable (paper §2), so that a
// load may be cut off at any moment and gone on with.
//
// A page's links are columns of the rows that they lead to. They are written and
// durable before the page's own row is: contents: with the file's time says that all
// of a page is there. A load that comes again asks for that cell and skips the page.
// What it writes twice, after it was cut off in the middle of a page, it writes with
// the same timestamps, so no version is added (webtable W1).
//
// A page whose file has a new time is written again, beside its older versions. Links
// that it no longer has stay, with the time of the version that had them. A page whose
// file changed and kept its time is skipped, as make and rsync do, unless Force is set.
//
// # Nouns
//
//   - A Loader is one load of one webtable.Site into one table.
//   - A group is the pages that are written together: the links of all of them in one
//     batch, merged by target row, then their rows in another.
//   - The acknowledgement file lists every cell of every row that the table
//     acknowledged, with a checksum. Verify reads it, and the cells.
//
// # Goroutines
//
//	goroutine   started by     ends when                     owns
//	finder      Loader.Run     the walk is over              pages that are not there yet
//	reader      Loader.Run,    the finder is done            one page being read
//	            one a core
//	sender      Loader.Run,    its group is acknowledged     one group
//	            at most two
//
// All are joined by Run. Pages wait between them within pagesBytesMax of memory, in
// queues without room.
//
// # Invariants
//
//	L1. When the row of a page is acknowledged with a time, all of its links are with
//	    that time.
//	L2. A cell is in the acknowledgement file only after the table acknowledged it.
//	L3. Loading a folder again that has not changed writes nothing.
package webload
