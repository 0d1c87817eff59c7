// Package tables creates, changes, lists and drops tables. A table is a file of the lock service with its schema (package namespace): it
// exists if and only if the file does. The master creates and removes the rows of its tablets (package assign), and tablet servers
// follow its schema.
//
// A table that is dropped is kept for a week, unless it is dropped for good: its file gets a name that no request can use. Its tablets are
// served as before, so that recoveries, compactions and balancing need not know of it, and no row is lost. It is restored by renaming the file back.
//
// # Goroutines
//
//	goroutine        started by   ends with       does
//	AwaitServed      a creation   all is served   nudges the master for a new table
//	RemoveOrphans    the node     Ctx             removes orphaned files of tables, once per mastership
//	PurgeExpired     the node     Ctx             deletes dropped tables whose time is over, while the node is the master
//
// # Invariants
//
//	TB1. The creator's grant and ownership are written before the table exists, so no table exists without them. What a failed creation
//	    leaves behind has no effect, because ids are not reused, and the next master removes it.
//	TB2. When a change of a schema returns, no operation begins by the old one (I15).
//	TB3. A table that is dropped, but not for good, always has a file in the directory of tables. A listing of the directory therefore shows
//	    that it exists, and its rows stay.
//	TB4. A rename, a drop that keeps the table, and its restoration are one write each: a table has its old name or its new one, never both
//	    or neither, whichever node dies. When it returns, no operation begins by the old name.
package tables
