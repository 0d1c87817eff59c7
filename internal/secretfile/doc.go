// Package secretfile reads and writes files that hold secrets: keys and tokens. The permissions of
// such files are decided only here.
//
// # Invariants
//
//	SF1. After Write, and after any crash, the file has the complete new content. If Write
//	    failed, it has either the old or the new content. It is never partial or readable
//	    by others.
//	SF2. Read rejects a file of the operating system that other users could read or replace.
//	SF3. No error contains any of a file's content.
//
// The package starts no goroutine.
package secretfile
