// Package arrows holds the test that keeps the tree's imports one-way:
//
//	cmd → node → {master, tablet, gateway} → client → {blobfs, raftmeta} → rpc
//
// with table and internal packages open to all. ARCHITECTURE.md says what each
// part is for.
package arrows
