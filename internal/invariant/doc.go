// Package invariant has assertions: conditions that only a bug of Stele can break, checked where a
// broken one would lose data silently.
//
// Check is compiled into every program. Its arguments are integers, so it costs a comparison (see the
// benchmark), and a process that stops keeps what it has acknowledged, while one that continues may
// delete the log of it. A check that reads keys, or a list, is behind the constant On, which is true in
// the simulation, with planted bugs, and under the race detector:
//
//	if invariant.On {
//		m.checkFiles()
//	}
//
// What comes from the network or from a disk is never asserted: it is an error, whatever it is.
package invariant
