// Package table is the data model shared by servers and clients (paper §2 and §3): schemas,
// mutations, rows, cells, garbage-collection policies, filters, and their wire encodings. It does
// no I/O and starts no goroutine.
//
// A table maps (row, family:qualifier, timestamp) to a value. Rows, qualifiers and values are
// arbitrary bytes. Families are declared in the table's Schema.
//
// # Clock rule
//
// A version expires by age when now - timestamp > max age. Now is the tablet server's wall clock in
// microseconds. It is read once, at the start of the read or the compaction, so all cells of one
// read are judged at the same instant. A timestamp in the future has a negative age and never
// expires.
//
// # Sticky versions rule
//
// A version falls out of versions=N at the point in commit order at which N newer versions of its
// column exist. It stays out even if those versions are deleted later, and it no longer counts
// against older versions. The rule applies separately for each N in a policy
// (GCPolicy.VersionLeaves). The result of a read therefore does not depend on when a compaction
// ran: a version that a compaction may have dropped does not reappear where none ran.
//
// Under "and", a version can be out of versions=N and still be kept, for example because of its
// age. Until it is collected, such a version may count again once the versions that outranked it
// are deleted.
//
// # One cell for each column and timestamp
//
// A write to an existing column and timestamp replaces the cell. The later commit wins.
//
// # Terms
//
//   - A Schema has Families, each with a GCPolicy, in LocalityGroups. A FamilySpec
//     is the command-line form of a family.
//   - A RowMutation is a list of Mutations of one row. A Rule is one step of a
//     read-modify-write. A Row is a key and sorted Cells.
//   - A Filter selects and transforms the cells of a row. Compile turns it into a
//     Program, which an Evaluator applies to rows. Hints describe the cells that
//     storage need not read for a program.
//   - Limits bound all of these. Append and Decode functions implement the wire
//     encodings.
//
// # Differences from the paper and from Cloud Bigtable
//
// In the paper a family keeps either a number of versions or an age. Here a policy may combine
// both, in trees of "and" and "or", as in Cloud Bigtable. The paper's scans restrict rows, columns
// and timestamps; here a scan takes a Filter with the whole filter algebra of Cloud Bigtable.
//
// Where Cloud Bigtable leaves the behavior open:
//
//   - Chain and Interleave may have a single part.
//   - Copies of a cell made by an Interleave or a Sink are ordered by the filter
//     that emitted them, copies from sinks first.
//   - RowSample hashes the row key with a seed, so a row need not be read to be
//     left out, and a retry continues with the same sample.
//   - A bound of a range is used as given, including the empty string.
//   - Timestamps have a granularity of 1 µs.
//
// # Invariants
//
//	D1. A family's ID is never reused for another family of the table.
//	D2. Eval returns what the definition of the filters prescribes, and does not
//	    modify its input cells.
//	D3. The output of a Program does not change if any of the cells excluded by
//	    Hints or FamilyHints, or of the rows excluded by MatchRow or Rows, are
//	    left out of its input.
//	D4. A filter that needs more copies of cells than its limit, or compiles to
//	    more than its limit, fails with an error.
//	D5. Decode returns a value equal to the one that Append encoded.
//	D6. No input makes Decode panic, recurse without bound, or allocate more than a
//	    constant factor of its size.
//	D7. ParseGCPolicy(p.String()) is equal to p.
//	D8. The id of a view is never that of another view or of a family of the table, and a family that was created
//	    after a view is in it only by a change of the view.
//
// # Concurrency
//
// Schemas, policies, filters and Programs are immutable and safe for concurrent use. An Evaluator,
// and an Interner that still learns names, may be used by one goroutine at a time.
package table
