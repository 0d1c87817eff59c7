// Package secretfile reads and writes files that hold secrets: keys and tokens. It
// is the one place that decides who may read such a file.
//
// # Invariants
//
//	S1. After Write the file has the new content, as a whole, after any crash; when
//	    it failed, the old one or the new one. At no time is it there in part, or
//	    readable by others.
//	S2. Read refuses a file that other users could read or replace.
//	S3. No error holds anything of a file's content.
//
// The package starts no goroutine.
package secretfile
