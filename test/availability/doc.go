// Availability measures how long a cluster of real processes does not serve: when a tablet server is
// killed, when the master is, while a tablet is split or moved, and while all nodes are restarted one after
// another. It prints p50, p99 and the most of as many tries as it is told, beside the goal of each; what
// stood in the way of the figure, such as the load of the machine, is printed too.
//
//	make availability                        a short run of all figures
//	go run ./test/availability --help        what can be chosen
//
// # How
//
// Three nodes run on this machine, each a process of the program with a data folder of its own. A table has
// tablets on all of them, and a prober for each tablet writes a row of it over and over, one write at a time,
// through one client, as users' programs do. What a figure says is what these writes have seen:
//
//   - kill: from SIGKILL of a node, with so many MiB in its memtables that only commit logs keep, until the
//     first write that was answered after it in the last tablet. The victims take turns, so that
//     some are the master and have METADATA's tablets too.
//   - master: the slowest write to tablets on other nodes while the lock service's leader, which is the master, is
//     killed; and how many failed. Tablets are moved away from it before, and what the balance gives it again does
//     not count.
//   - split, move: the slowest write to the tablet while it is split, or moved to another node.
//   - restart: how many writes failed while each node was drained, stopped, started and undrained, and the
//     slowest.
//
// Split, move and master come with a baseline: the slowest write of as long a time just before. On a machine
// that others use too, both are slow.
//
// # Nouns
//
//   - A fleet is the nodes: processes that can be killed and started again.
//   - A prober writes to one tablet, and remembers each write: when it began and ended, and how.
//   - A try is one measurement; a figure is what its tries say.
package main
