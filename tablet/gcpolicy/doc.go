// Package gcpolicy decides which versions of a column are live: what deletions and the family's
// garbage-collection policy leave of its history (paper §2, "Timestamps"). Reads and compactions use the
// same Judge, so a read returns the same result before and after a compaction.
//
//   - A Policy is a family's GC policy, prepared for the hot paths.
//   - A Judge passes a verdict on each version of a column. It is used by one goroutine and reused.
//   - A Clock is the time against which ages are measured.
//
// The package starts no goroutines and does no I/O.
//
// # Invariants
//
//   - Deletions of a column come before its versions, last commit first. Versions come newest
//     timestamp first, and of the same timestamp last commit first, as internal keys are ordered.
//   - A version is out of versions=n from the moment at which n newer ones exist beside it, even if
//     those are deleted later. Only a deleted range of timestamps makes the order of commits matter:
//     NeedsHistory is true then, and Settle replays them.
//   - The operands of one timestamp are one version: they count once, and a deletion or a collection of one is that of all
//     earlier ones (T17).
//   - A Clock never goes back.
package gcpolicy
