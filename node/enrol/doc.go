// Package enrol makes hosts nodes of a cluster with certificates. Initialise makes a host the first node of a new cluster. Any other host
// sends a join token to any node (host.go), which forwards it to the master's (join.go): there the token is consumed, durably, before
// anything is signed. Operators create and revoke tokens (tokens.go); package security/token has them, and their records, the files
// /security/join/<id> of the lock service. The paper has no such step: its tablet servers share a trusted network. The package starts no goroutine.
//
// # Invariants
//
//	EN1. A join token is consumed at most as often as it allows, and gives no host the certificate of an existing or former node, unless it was
//	    created for that node.
//	EN2. A host sends its join token only to a node of the cluster that created it.
package enrol
