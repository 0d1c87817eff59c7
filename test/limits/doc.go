// Package limits starts the program with 256 MiB, the least that a node may be given, and loads
// it in some twenty ways that take memory, one after the other, and with all kinds of writes at once:
// the peak of the process stays below --memory (I13), what it refuses for that it refuses as
// overloaded, and it serves on.
//
// It is not judged yet that all of that at once, reads and hostile clients too, stays below:
// docs/performance.md has what was measured.
package limits
