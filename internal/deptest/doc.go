// Package deptest tests the import rules of the tree:
//
//	cmd → node → {master, tablet} → {client, blobfs, raftmeta} → rpc
//
// Packages table and internal may be imported by all. The packages of gateway import client. Package security imports none of these, and
// may be imported by cmd, node and client. ARCHITECTURE.md describes each package; another test
// keeps that page complete.
package deptest
