// Package planted contains deliberate bugs, which fault tests and the simulation enable to show that
// they would detect them. Without the build tag plantedbugs, On is the constant false and the
// compiler removes the code that depends on it.
//
// With the tag, STELE_BUG lists the enabled bugs, separated by commas, and Choose replaces the list.
//
// A bug that names a commit was in the program until that commit, and is restored as it was. The
// others are mistakes that an engineer could make. The package starts no goroutine.
//
// # Invariants
//
//	PB1. Each bug is in All, has a name of its own, and is used outside this package.
package planted

// A Bug is a deliberate bug, by its name in STELE_BUG.
type Bug string
