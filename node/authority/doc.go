// Package authority has a node's part in the cluster's certificate authority: it holds the authority's key while the node votes in the lock
// service, signs and renews certificates, and replaces the authority. Package security/pki has the authority, package security/rollover the
// stages of its replacement. The paper has no certificates.
//
// The authority's key is on the voters of the lock service, one of which is the master, and on no other node. A new voter gets it from
// the master, a voter that lacks it from any other voter, and a node that stops voting deletes it (keep.go). The members have their
// certificates renewed by the voters (renew.go).
//
// An operator replaces the authority in stages (rotate.go). The record of the replacement is the file /security/rollover of the lock service.
// Each node follows it, and the master starts the next stage when all nodes have completed the current one (follow.go).
//
// # Goroutines
//
//	goroutine   started by   ends with   does
//	Keep        the node     Ctx         has the authority's key while the node votes
//	Follow      the node     Ctx         performs a replacement on this node
//
// # Invariants
//
//	AU1. The authority's key is on a node that does not vote for no longer than the master needs to confirm that it has it, and always on
//	    some node.
//	AU2. A removed node gets no key and no certificate.
//	AU3. The key of a new authority is on the disk of the master's node before the record names that authority.
package authority
