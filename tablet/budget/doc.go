// Package budget bounds the memory of a tablet server (I13). Each type has one bound:
//
//   - Writes is the memory of memtables and of mutations that are not in one yet. Writers wait for it.
//   - Reads divides the memory for serving reads among open files, files of in-memory groups, and
//     the block cache, which gets what the others leave.
//   - Large is the memory of the large cells and rows that reads hold at the same time.
//   - Compactions is what merging and major compactions and loads use of their input, and the rate
//     at which such compactions write.
//
// The package knows bytes, not tablets: its users state what they need and when they release it. It
// starts no goroutines. All methods are safe for concurrent use.
//
// # Invariants
//
//   - Writes admits nothing above its bound, except one larger mutation when nothing else is
//     charged, and what is charged without a check.
//   - The parts of Reads add up to its total, but the block cache keeps an eighth.
//   - A reservation that can never be granted in full is granted alone: a waiting caller always
//     gets it in the end, unless its context ends first.
package budget
