// Package latch has the row latches of a tablet. They order the commits of a row (I2): plain writes
// hold a latch shared, read-modify-writes exclusively.
//
// The package starts no goroutines. The zero Stripes is ready to use and safe for concurrent use.
//
// # Invariants
//
//   - While a latch is held exclusively, nothing else holds it.
//   - PassAll returns only after every holder from before the call has released its latch.
package latch
