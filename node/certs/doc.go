// Package certs authenticates a node to its peers, and them to it: it guards the node's ports, connects to other nodes, and has the node's
// certificate renewed in time. Package security/pki has the certificates and TLS, package security/keydir the files of a node's keys. The
// paper has no certificates: Chubby's access control lists are all that it names (§4).
//
// A Transport is nil on an open node, which has no certificates: all its methods work on nil, and leave connections plain.
//
// # Goroutines
//
//	goroutine            started by   ends with   does
//	KeepRenewed          the node     ctx         renews the node's certificate
//	DisconnectRejected   the node     ctx         closes connections of rejected principals
//	DisconnectRemoved    the node     seconds     closes connections of removed nodes
//
// # Invariants
//
//	CE1. A node with certificates has no connection to a peer whose certificate is of another cluster.
//	CE2. A client without a certificate reaches only the methods for strangers, until it has sent an access token.
package certs
