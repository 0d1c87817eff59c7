// Package deletion deletes the SSTables and commit logs that a tablet server no longer needs.
//
// The last reference to a file may be released by a read, or by the applier, for which all commits
// wait. Deleting a GiB takes a disk 0.3 s and involves other nodes. So they only add to a Queue, and
// one goroutine, Loop, deletes. Loop is started and stopped by the queue's owner.
//
// # Invariants
//
//   - One goroutine deletes at a time: Loop, or a caller of Run, which waits until the queue is empty.
//   - A queued SSTable that cannot be deleted is left to garbage collection: no metadata names it. A
//     log is retried until it is removed.
package deletion
