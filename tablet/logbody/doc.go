// Package logbody is the format of the bodies of commit log records: a row mutation as the entries
// that it adds to the memtable. The commit log (package commitlog) does not interpret bodies.
//
// Reading allocates nothing but the scratch memory that the caller reuses. The package starts no
// goroutines.
//
// # Invariants
//
//   - Form numbers are append-only, so a log of an earlier version can be replayed (I1).
//   - A damaged body is an error that wraps ErrBadBody, never an entry (I7).
package logbody
