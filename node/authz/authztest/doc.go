// Package authztest has what tests of access control need of a node: an RPC server whose callers have the identities that a test gives
// them, and the files of users' rights in memory. It imports no package of the node.
//
// A Server has the goroutines of its rpc.Server, which end with the test.
package authztest
