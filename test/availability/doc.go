// Availability measures how long a cluster of real processes does not serve: when a tablet server
// is killed, when the master is killed, while a tablet is split or moved, and during a rolling
// restart. It prints the p50, p99 and maximum of each figure beside its goal, and the load average
// of the machine.
//
//	make availability                        a short run of all figures
//	go run ./test/availability --help        the options
//
// # How it works
//
// Three nodes run on this machine, each a process of the program with its own data directory. A
// table has tablets on all of them. A prober for each tablet writes one of its rows repeatedly, one
// write at a time, through one client, as applications do. The figures are computed from these
// writes:
//
//   - kill: from SIGKILL of a node until the last tablet has answered a write that began after it. The
//     node has a given number of MiB in its memtables that only commit logs hold. The victims rotate,
//     so that some are the master and have METADATA's tablets too.
//   - master: the slowest write to tablets on other nodes while the lock service's leader, which is the
//     master, is killed, and the number of failed writes. Its tablets are moved away first. Tablets
//     that the balancer moves back to it are not counted.
//   - split, move: the slowest write to a tablet while it is split, or moved to another node.
//   - restart: the number of failed writes and the slowest write while each node in turn is drained,
//     stopped, started and undrained.
//
// Split, move and master have a baseline: the slowest write in an interval of equal length just
// before. On a busy machine both are slow.
//
// # Nouns
//
//   - The cluster is the set of nodes: processes that can be killed and started again.
//   - A prober writes to one tablet and records the start, end and outcome of each write.
//   - A try is one measurement; a figure summarizes its tries.
package main
