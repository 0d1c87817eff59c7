// Package tools has the offline tools and the commands about the program itself: check, audit, sstable,
// completion, man and version.
//
// check, audit and sstable read the files of a stopped node. extents joins the extent files of a blob to
// the SSTable in it, and verifies their checksums. No goroutines.
package tools
