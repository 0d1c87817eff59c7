// Package reach finds the address by which other hosts reach a port of this one,
// when what it is bound to does not say: 0.0.0.0 is no place to call back to.
//
// The package starts no goroutine.
package reach
