// Package tables creates, changes, lists and drops tables. A table is a file of the lock service with its schema (package namespace): it
// exists if and only if the file does. The master creates and removes the rows of its tablets (package assign), and tablet servers
// follow its schema.
//
// # Goroutines
//
//	goroutine        started by   ends with       does
//	AwaitServed      a creation   all is served   nudges the master for a new table
//	RemoveOrphans    the node     Ctx             removes orphaned files of tables, once per mastership
//
// # Invariants
//
//	TB1. The creator's grant and ownership are written before the table exists, so no table exists without them. What a failed creation
//	    leaves behind has no effect, because ids are not reused, and the next master removes it.
//	TB2. When a change of a schema returns, no operation begins by the old one (I15).
package tables
