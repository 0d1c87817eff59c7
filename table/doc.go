// Package table is the data model that servers and clients share: schemas,
// mutations, rows, cells, garbage-collection policies, filters, and their form on
// the wire (paper §2 and §3). It does no I/O and starts no goroutine.
//
// A table maps (row, family:qualifier, timestamp) to a value. Rows, qualifiers
// and values are any bytes; families are declared in the table's Schema.
//
// # Clock rule
//
// A version is expired by age when now - timestamp > max age. Now is the tablet
// server's wall clock in microseconds, read once at the start of the read or of
// the compaction, so that one read judges all its cells by one moment. Timestamps
// in the future are of negative age and never expire.
//
// # Sticky versions rule
//
// A version is out of versions=N from the moment, in commit order, at which N
// newer versions of its column stand beside it, and it stays out even if those are
// deleted later. A version that is out counts no more against others. The rule is
// worked for each N that a policy names (GCPolicy.VersionLeaves). So what a reader
// sees does not depend on when a compaction ran: a version that a compaction may
// have dropped does not come back where none ran.
//
// Under "and" a version can be out of versions=N and still be kept, by age say.
// Such a version, as long as it has not been collected, may count anew once the
// versions that outranked it were deleted.
//
// # One cell for each column and timestamp
//
// A write to a column and timestamp that are there already replaces the cell; the
// later commit wins.
//
// # Where we depart from the paper
//
// The paper gives a family either a number of versions or an age. Here both, and
// trees of them, as in Cloud Bigtable. The paper's scans limit rows, columns and
// timestamps; here they take a Filter, the whole algebra of Cloud Bigtable.
package table
