// Package blockstore opens the node's part of the block store (package blobfs), and stores its lists of logs' replicas in the lock service.
//
// # Goroutines
//
//	goroutine        started by   ends with   does
//	members.Follow   Open         Close       passes the members to the block store
//
// # Invariants
//
//	BS1. Lists are written under the lock that makes this process the node: no other process can change them, and this one no longer
//	    after losing the lock.
package blockstore
