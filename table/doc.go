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
// # Nouns
//
//   - A Schema has Families, each with a GCPolicy, in LocalityGroups. A FamilySpec
//     is a family as text on a command line.
//   - A RowMutation is a list of Mutations of one row; a Rule is a step of a
//     read-modify-write. A Row is a key and sorted Cells.
//   - A Filter says what a reader wants of a row. Compile makes a Program of it,
//     which an Evaluator applies to rows. Hints tell storage what the program will
//     not look at.
//   - Limits bound all of them. Append and Decode functions are their wire forms.
//
// # Where we depart
//
// The paper gives a family either a number of versions or an age. Here both, and
// trees of them, as in Cloud Bigtable. The paper's scans limit rows, columns and
// timestamps; here they take a Filter, the whole algebra of Cloud Bigtable.
//
// From Cloud Bigtable we depart where it leaves room. Chain and Interleave may have
// a single part. Copies that an Interleave or a Sink makes come in the order of
// the filters that gave them, those of sinks first. RowSample decides by a hash of
// the key and a seed, so that a row need not be read to be left out, and a retry
// goes on with the same sample. Bounds of a range that are given are taken as they
// are, the empty string included. Timestamps have a granularity of 1 µs.
//
// # Invariants
//
//	D1. A family's ID is never given to another family of the table.
//	D2. Eval gives what the definition of the filters gives, and leaves the cells
//	    that it was given as they were.
//	D3. Cells left out by Hints or FamilyHints, all or some, and rows left out by
//	    MatchRow or Rows, never change what a Program gives out.
//	D4. No filter holds more copies of cells than its limit, or compiles to more
//	    than its limit: it ends in an error instead.
//	D5. What Append writes, Decode reads back as equal.
//	D6. No input makes Decode panic, recurse without bound, or allocate more than a
//	    constant factor of its size.
//	D7. ParseGCPolicy reads what String writes back as equal.
//
// The package starts no goroutine. Schemas, policies, filters and Programs are not
// changed once made and are safe for concurrent use; an Evaluator, and an Interner
// that learns, are for one goroutine at a time.
package table
