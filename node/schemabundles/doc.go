// Package schemabundles keeps the schema bundles of tables, of Cloud Bigtable's API: descriptors of protocol buffers, by which programs know the values
// of a table's cells. The paper does not describe them. They have no effect on reads and writes.
//
// The bundles of a table are one file of the lock service, /schemabundles/TABLE_ID, whose format is that of record. So they stay with a table that is
// renamed, or dropped and restored, and they are removed with one that is dropped for good (package node/tables). Backups do not have them.
//
// The package starts no goroutine.
//
// # Invariants
//
//	SB1. A change with an etag is made only if the bundle has it. Equal etags mean equal descriptors.
//	SB2. Every stored bundle can be read: its files are those of a google.protobuf.FileDescriptorSet that has all files that they import.
package schemabundles
