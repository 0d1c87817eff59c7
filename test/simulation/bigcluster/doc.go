// Package bigcluster is a simulated cluster of many nodes: ten to a thousand real nodes in one program, in virtual time, with small
// budgets of memory and hardly any data. It measures what grows with the number of nodes: how long a step takes in virtual time, what it
// costs the processor, and which messages it takes. [Run] runs one cluster in the program, which must have been built for package machine.
// Package world looks for errors instead, in small clusters with many faults.
//
// # Nouns
//
//   - A host is a machine with an address, a disk and at most one process, a node. Hosts of a rack have the same zone; a rack has a
//     twentieth of the hosts.
//   - A phase is a step in the life of the cluster, such as the loss of a rack. It ends when everything is served again.
//   - A figure is a number that a phase has measured, with a name that is the same for all sizes of the cluster.
//   - The kernel is process 0, in which the phases run. All clients are in process 1.
//
// # What is measured, and how
//
//	virtual time   of the phase; computations take none, so it has waits, messages and disks only
//	CPU            of the whole program, by the operating system; a node's part by machine.Ticks
//	calls          answered by a node's RPC server, by the kind of method (node.Calls)
//	gossip         packets and bytes that a node sends, and the bytes of its streams
//	memory         of the whole program after a collection, divided by the nodes
//
// # Goroutines
//
//	goroutine  started by  ends with  does
//	collect    Run         Run        frees memory
//	start      host.start  the node   starts a node, in the node's process
package bigcluster
