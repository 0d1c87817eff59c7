// Package workload is what the clients of a simulated cluster do, and the history of it, which package judge checks. The clients are
// real ones (packages client and raftmeta/session); they reach nodes only through a Cluster, which the simulated world implements.
//
// A Plan follows from a seed. It selects features (rows, scans, change streams, locks, schemas, tablets, rights, blobs, backups), each on with its own
// probability, and small counts and sizes: different combinations of few features find more than all features at once. Each client
// draws its operations from a random stream of its own.
//
// # Nouns
//
//   - An Op is an operation with its call time, return time and outcome. One whose outcome is unknown returns at Infinity.
//   - A value has a name, which contains the client and a number, and bytes that follow from the name. So a read names the write that
//     it has seen, and shows corruption.
//   - An explicit timestamp is one that a client sets. It is before all server timestamps or after all, so that the order of the versions of a
//     column follows from the history.
//   - An era is a period in which clients use the same rows and files.
//   - A chain of tokens is calls of readers of a change stream, each of which continues after the one before, maybe in another reader, from its
//     token. Several calls may continue after the same one.
//   - A session is a client's session with the lock service. A client opens another one when it ends.
//
// # Goroutines
//
//	goroutine   started by          ends with             does
//	client      Workload.Run        the context           one operation after the other
//	user        an operation on     the operation, which  operations of a user while its rights are
//	            rights              joins it              revoked
//
// # Invariants
//
//	SL1. A client records an operation before its call, and its outcome after its return. An operation of a client that was stopped has
//	     an unknown outcome.
//	SL2. No two writes have the same value, no two times of a History are equal.
//	SL3. The operations of a client follow from the plan, its number, and the results of its earlier operations.
package workload
