// Package storage is the block store as a tablet server uses it: Blobs for SSTables and commit logs
// (paper §4, "GFS"), its implementations on a blobfs.Store, and the server's log blob.
//
//   - OnStore keeps logs on one node, OnReplicatedStore on several. OnHighPriorityStore is for
//     servers of METADATA.
//   - A LogBlob is created with the first append, when the disk has space for it.
//
// The package starts no goroutines.
//
// # Invariants
//
//   - A blob is durable when Seal returns, and an append when Append returns (I1).
//   - The id of a failed attempt to create a log is never used again.
package storage
