// Package roots reads which blobs are in use: METADATA references the SSTables of tablets, the lock service references the sorted logs of
// dead servers (package master) and the files that users have stored. Garbage collection keeps what is referenced, and removes the rest
// (package blobfs/gc). No goroutines.
//
// # Invariants
//
//	RO1. A reference that cannot be read is an error of Each, never a blob without references.
package roots
