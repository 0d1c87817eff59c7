// Package pki creates a cluster's keys and certificates, and the TLS configurations by which its
// nodes and clients authenticate each other.
//
// The paper does not cover this: its servers run in one company's data centers, and §4 leaves
// access control to Chubby's ACLs. Here the ports may be reachable by anyone.
//
// # Terms
//
//   - The authority is the cluster's own certificate authority. Its certificate is
//     self-signed, and it signs only certificates of nodes and principals. Its key
//     is ECDSA on P-256, which TLS libraries of all languages, and browsers, support.
//   - The fingerprint of the authority is the SHA-256 of its certificate. It is all
//     that a host needs to authenticate the cluster's nodes.
//   - A node is identified by its id. A principal, a person or a program, is
//     identified by its name and a generation. The cluster rejects certificates of
//     a generation below the principal's current one, which revokes all of them
//     without a revocation list.
//   - A peer is the subject of a certificate.
//   - Trust is the set of authorities whose signatures are accepted.
//   - A credential is a key, its certificate and trust; or, for a client that
//     authenticates by other means, trust alone. It is stored as one file.
//   - An endpoint creates TLS configurations and can replace its credential at any
//     time.
//   - The rotator renews a node's certificate.
//   - A listener accepts connections and completes their handshakes. It tolerates
//     any number of slow, silent or hostile hosts.
//
// # Certificates
//
// Certificates are X.509, version 3. The subject is the only URI in the subject alternative names;
// nothing else identifies it:
//
//	stele://<cluster>                                 the authority
//	stele://<cluster>/node/<id>                       a node
//	stele://<cluster>/principal/<name>/<generation>   a principal
//
// Each name is 1 to 64 of a-z A-Z 0-9 - _ . @, the first a letter or digit. The common name is
// informational. Certificates of nodes also contain the names and addresses of their hosts, for
// clients in other languages that verify those. Our client accepts any node of the cluster, because
// nodes redirect it to each other. Nodes verify the id of the node that they dial. Certificates of
// nodes are for servers and clients and last 30 days. Those of principals are for clients and last
// a year by default. That of the authority lasts 20 years.
//
// # Clocks
//
// A certificate is verified by the verifier's wall clock. It is valid from a day before it was
// created, so clocks may be up to a day behind the signer's. A node's certificate is renewed with
// ten days left, so clocks may be days ahead. The rotator also uses the monotonic clock, in case
// the wall clock is set back.
//
// # Files
//
// Files are PEM. A credential is a PRIVATE KEY (PKCS #8), its CERTIFICATE, and the CERTIFICATEs of
// one to four authorities. An authority is a PRIVATE KEY and a CERTIFICATE. Trust is one to four
// CERTIFICATEs. Files with keys are accessible only to their owner, and are rejected if other users
// can read or replace them. They are written durably under a temporary name and renamed.
//
// # Memory
//
// TLS writes one record of 16 KiB at a time. The records of one Conn.Write are buffered and sent
// 128 KiB at a time if one of 32 buffers is free, and otherwise one by one.
//
// # Goroutines
//
//	goroutine   started by  ends with            does
//	accept      Listen      Listener.Close       accepts connections of the inner listener
//	handshakes  accept      10 s, Close          at most 256 at once; a further one ends the oldest
//	ends        a Conn      its Close            a runtime timer: closes it when its certificate expires
//
// Rotator.Run runs on its caller's goroutine.
//
// # Invariants
//
//	K1. No handshake succeeds below TLS 1.3, or with a peer whose certificate is not
//	    of the cluster, is outside its validity period or is for another use. A
//	    connection to a node is to the intended node.
//	K2. A principal's certificate is never accepted as a node's.
//	K3. After Swap returns, no new connection uses the old credential.
//	K4. A crash during a renewal leaves either the old or the new credential, with
//	    matching key and certificate.
//	K5. No error, log line or String contains any part of a private key.
//	K6. A joining host sends nothing secret to a server that does not prove to have
//	    the authority with the given fingerprint.
//	K7. A connection ends when its peer's certificate expires. A connection without a
//	    certificate ends soon, unless the peer authenticates by other means.
//	K8. A peer that does not complete its handshake blocks no other, and occupies one
//	    of a bounded number of slots. The same holds for anonymous peers, which have
//	    separate slots.
//	K9. Once Refuse rejects a peer and Disconnect has returned, the peer has no connection.
//	K10. One principal has at most PrincipalConnsMax connections, over all its
//	    certificates and tokens.
package pki
