// Package keydir stores a node's keys and certificates in one directory.
//
// # Files
//
//	node.pem     key and certificate of the node, and the authorities that it trusts. It is
//	             written last: a node that has it belongs to a cluster
//	ca.crt       the authorities' certificates, for other programs
//	ca.key       key and certificate of the cluster's authority, on issuers: the node that
//	             the cluster was created on, and voters
//	ca.next.key  key and certificate of the next authority, during a replacement
//	gossip.key   gossip keys, one to four lines of 64 hexadecimal digits: the first
//	             encrypts, all decrypt
//	join.key     the key with which a node requests enrollment, until it is enrolled
//
// The keys of authorities may be encrypted with a passphrase, which is stored elsewhere. The files
// and the directory are accessible only to their owner (package internal/secretfile).
//
// # Terms
//
//   - A node is enrolled when its directory has everything it needs.
//   - Init creates a new cluster with this node as the first: its id, its
//     authority, its gossip key, and the credential of its first principal.
//   - An issuer is a node that has the authority's key and can sign.
//
// # Invariants
//
//	E1. A crash in Init leaves either no directory or a complete one. A crash in Enrol leaves
//	    the node enrolled or not, and Enrol can be called again.
//	E2. Neither replaces an existing credential or authority. Renew replaces a credential by
//	    one of the same node.
//	E3. The contents returned by Load are consistent: one cluster, one node.
//
// The package starts no goroutine.
package keydir
