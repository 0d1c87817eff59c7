// Package bigtableport is a node's port for clients of Google's Cloud Bigtable: package gateway/server, with the callers of this cluster. The
// paper's clients link a library instead.
//
// On a node with certificates the port uses TLS. A caller authenticates as at the node's own port: by a certificate of the cluster, or by an
// access token in the header "authorization: Bearer TOKEN" of each call. The port only verifies the credential, before it reads a request.
// The nodes that execute the request check rights and quotas: the port uses the cluster on behalf of the caller (package actfor). An open
// node serves plain connections; its configuration allows only addresses on loopback.
//
// # Goroutines
//
//	goroutine  started by  ends with
//	serve      Open        Close
//
// # Invariants
//
//	BP1. A call without a valid credential is rejected before its request is read.
//	BP2. All calls of a connection are those of one principal.
package bigtableport
