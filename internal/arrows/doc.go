// Package arrows holds the test that keeps the tree's imports one-way:
//
//	cmd → node → {master, tablet} → {client, blobfs, raftmeta} → rpc
//
// with table and internal packages open to all, and security, which imports none of
// these, to cmd, node and client. ARCHITECTURE.md says what each part is for: a test
// holds that page to the tree.
package arrows
