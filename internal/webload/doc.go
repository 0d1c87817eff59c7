// Package webload loads the pages of a directory into a Webtable (paper §2). A load may be
// interrupted at any time and continued.
//
// A page's links are columns in the rows of their targets. They are written and durable before the
// page's own row: a contents: cell with the file's time means that the whole page is loaded. A
// later load looks for that cell and skips the page. If a load was interrupted within a page, the
// next one writes some cells again with the same timestamps, which adds no versions (webtable WT1).
//
// A page whose file has a new time is written again, in addition to its older versions. Links that
// it no longer has remain, with the time of the version that had them. A page whose file changed
// but kept its time is skipped, as in make and rsync, unless Force is set.
//
// # Terms
//
//   - A Loader is one load of one webtable.Site into one table.
//   - A group is the pages that are written together: first the links of all of them
//     in one batch, merged by target row, then their rows in another.
//   - The acknowledgement file lists every cell that the table acknowledged, with a
//     checksum. Verify compares it with the table.
//
// # Goroutines
//
//	goroutine   started by     ends when                     owns
//	finder      Loader.Run     all pages are listed          pages to load
//	reader      Loader.Run,    the finder is done            one page being read
//	            one per core
//	sender      Loader.Run,    its group is acknowledged     one group
//	            at most two
//
// Run waits for all of them. The queues between them are unbuffered, and pages in memory are
// bounded by pagesBytesMax.
//
// # Invariants
//
//	WL1. When the row of a page is acknowledged with a time, all of its links are
//	    acknowledged with that time.
//	WL2. A cell is in the acknowledgement file only after the table acknowledged it.
//	WL3. Loading an unchanged directory again writes nothing.
package webload
