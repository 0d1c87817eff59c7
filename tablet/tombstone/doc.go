// Package tombstone has range tombstones: deletions of all rows of a range at once (DropRowRange of Cloud Bigtable; the
// paper has no such operation). A tablet keeps the list of its own in its row of METADATA, since a tombstone must outlive the commit log, and
// the files below it.
//
// A tombstone hides the entries of its rows that have sequence numbers up to its own. It is what one row
// deletion with that number would be in each row, so it needs no place in the order of internal keys. A new tombstone is above all
// entries of the tablet, and so above all earlier tombstones. Where it overlaps them, it replaces them. No entry of the tablet has its number.
//
// The package starts no goroutines.
//
// # Invariants
//
//	RT1. The ranges of a list are in order and do not overlap, and none is empty.
//	RT2. Adding a range with the highest sequence number hides in each row what the list hid before, and all entries of
//	     the range up to that number.
//	RT3. The parts of a list hide together what the list hides.
package tombstone
