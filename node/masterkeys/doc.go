// Package masterkeys reads the master keys that encrypt tables and commit logs on a node's disks (package blobfs), from a file or the
// output of a command. It starts no goroutines. The paper has no encryption.
//
// # Invariants
//
//	MK1. Errors about the text of the keys name its lines, and contain no part of a key.
package masterkeys
