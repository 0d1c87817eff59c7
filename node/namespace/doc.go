// Package namespace has the files that nodes keep in the lock service, in the role that Chubby's files have in Bigtable (paper §4): the
// cluster's id, table schemas, and the ids of tables and tablets. Node's package comment lists all paths.
//
// Access is the node's access to the lock service, through its current session. Catalog reads and writes files with known outcomes:
// a write whose outcome is unknown is repeated until it is known. Within a change of the master, writes carry its Mastership and fail
// once another master has taken over. Schemas reads schemas through the consistent cache of a session, for a tablet server.
//
// The package starts no goroutines. All types are safe for concurrent use.
//
// Invariants:
//
//	NS1. An id of a table or tablet is issued once, also after a recovery of the lock service (SkipIDs).
//	NS2. A table exists if and only if its schema's file does.
//	NS3. A write under a Mastership takes effect only while that mastership lasts (I9).
//	NS4. A table has exactly one file at each moment, also while it is renamed, dropped or restored.
package namespace
