// Package recentlog keeps the last lines of a node's log in memory, so that operators read the logs of all nodes in one place, without
// access to the hosts: stele logs, and a page of the console. The whole logs stay where the host keeps them. The paper's §9 asks for
// system-level monitoring, and does not describe it.
//
// Warnings and errors are kept apart from lines of level info, so that much of the latter does not displace the former. Lines below info
// are not kept. The package starts no goroutine.
//
// # Invariants
//
//	RL1. Each line that is logged at info or above is passed on as without this package, and kept until linesMax later lines of its kind
//	     have come.
//	RL2. Memory: at most twice linesMax lines of api.LogLineBytesMax bytes.
package recentlog
