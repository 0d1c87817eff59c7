// Package limits starts the program with little memory and loads it in every way that takes some, one after the other: the peak
// of the process stays below --memory (I13), what it refuses for that it refuses as overloaded, and it serves on.
//
// It does not hold yet that all of that at once stays below, nor each with 256 MiB, the least that a node may be given:
// docs/performance.md has what was measured.
package limits
