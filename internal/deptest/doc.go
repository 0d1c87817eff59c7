// Package deptest tests the import rules of the tree:
//
//	cmd → node → {gateway, master, tablet} → {client, blobfs, raftmeta} → rpc
//
// Packages table and internal may be imported by all. Of these, gateway imports only client and rpc. Package security imports none of these, and
// may be imported by cmd, node and client. ARCHITECTURE.md describes each package; another test
// keeps that page complete.
package deptest
