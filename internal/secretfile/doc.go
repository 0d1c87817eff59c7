// Package secretfile reads and writes files that hold secrets: keys and tokens. The permissions of
// such files are decided only here.
//
// # Invariants
//
//	S1. After Write, and after any crash, the file has the complete new content. If Write
//	    failed, it has either the old or the new content. It is never partial or readable
//	    by others.
//	S2. Read rejects a file that other users could read or replace.
//	S3. No error contains any of a file's content.
//
// The package starts no goroutine.
package secretfile
