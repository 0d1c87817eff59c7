// Package folder keeps what a node proves itself with: its keys and certificates, in one
// folder.
//
// # Files
//
//	node.pem    key and certificate of the node, and the authorities that it trusts; it
//	            is written last: a node that has it belongs to a cluster
//	ca.crt      the authorities' certificates, for programs that are not Stele's
//	ca.key      key and certificate of the cluster's authority, where there is one: on the
//	            node that the cluster was made on, and on nodes that vote
//	ca.next.key  key and certificate of the authority that is to replace it, while it does
//	gossip.key  keys of gossip, one to four lines of 64 hexadecimal digits: the first
//	            encrypts, all decrypt
//	join.key    the key by which a node asks to be enrolled, until it is
//
// The keys of authorities may be encrypted by a passphrase, which is kept elsewhere.
//
// All are for their owner alone (package internal/secretfile), and so is the folder.
//
// # Nouns
//
//   - A node is enrolled when its folder has all that it needs.
//   - To init is to make a new cluster, of which this is the first node: its id, its
//     authority, its gossip key, and the credential of its first principal.
//   - An issuer is a node that has the authority's key, and so can sign.
//
// # Invariants
//
//	E1. A crash in Init leaves no folder, or all of it. One in Enrol leaves a node that
//	    is not enrolled, or is; and Enrol can be called again.
//	E2. Neither replaces a credential or an authority that is there. Renew replaces a
//	    credential by one of the same node.
//	E3. What Load returns belongs together: one cluster, one node.
//
// The package starts no goroutine.
package folder
