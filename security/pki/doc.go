// Package pki makes a cluster's keys and certificates, and the TLS configurations by
// which its nodes and clients know each other.
//
// The paper's servers run in one company's machine rooms and say nothing of this; §4
// leaves access to Chubby's ACLs. Here anyone may reach a port.
//
// # Nouns
//
//   - The authority is the cluster's own: it has signed itself, and signs nothing but
//     the certificates of nodes and principals. Its key is ECDSA on P-256, which TLS
//     libraries of all languages, and browsers, speak.
//   - The fingerprint of the authority, SHA-256 of its certificate, is all that a host
//     has to know to tell the cluster's nodes from others.
//   - A node is known by its id; a principal, a person or a program, by its name and a
//     generation. The cluster turns certificates of lower generations down than it
//     has noted for the principal: so all of them can be revoked without a list.
//   - A peer is who a certificate says it is of.
//   - Trust is the authorities whose signatures count.
//   - A credential is a key, its certificate and trust; or trust alone, of a client
//     that proves itself otherwise. It is kept as one file.
//   - An endpoint makes TLS configurations, and can change its credential at any time.
//   - The rotator renews a node's certificate.
//   - A listener takes connections whose handshake is done, from any number of hosts that
//     may be slow, silent or hostile.
//
// # Certificates
//
// X.509, version 3. Who the subject is stands in the one URI of its alternative names,
// and is read from nowhere else:
//
//	stele://<cluster>                                 the authority
//	stele://<cluster>/node/<id>                       a node
//	stele://<cluster>/principal/<name>/<generation>   a principal
//
// Each name is 1 to 64 of a-z A-Z 0-9 - _ . @, the first a letter or digit. The common
// name is for people. Nodes also have the names and addresses of their hosts, for
// clients in other languages that check those; a client of ours takes any node of the
// cluster, since it is sent from one to the other, and nodes check the id of whom they
// mean. Nodes' certificates are for servers and clients and last 30 days, principals'
// are for clients and last a year unless asked otherwise, the authority's 20 years.
//
// # Clocks
//
// A certificate is judged by the wall clock of who looks at it. It begins to be valid a
// day before it was made, so that clocks may be a day behind the signer's, and a node's
// has ten days left when it is renewed, so that they may be days ahead. The rotator
// also counts by the monotonic clock, in case the wall clock is set back.
//
// # Files
//
// PEM. A credential: PRIVATE KEY (PKCS #8), the CERTIFICATE of it, and the CERTIFICATEs
// of one to four authorities. An authority: PRIVATE KEY and CERTIFICATE. Trust: one to
// four CERTIFICATEs. Files with keys are for their owner alone, and are refused if
// other users can read or replace them; they are written as a whole, durably, under a
// new name first.
//
// # Memory
//
// TLS writes a record of 16 KiB at a time. What one Conn.Write comes to is kept back, and
// goes out 128 KiB at a time, if one of 32 buffers is to be had; else record by record.
//
// # Goroutines
//
//	goroutine   started by  ends with            does
//	accept      Listen      Listener.Close       takes connections from the inner listener
//	handshakes  accept      10 s, Close          at most 256 at once; then the oldest gives way
//	ends        a Conn      its Close            a runtime timer: closes it with its certificate
//
// Rotator.Run runs on its caller's.
//
// # Invariants
//
//	K1. No handshake is done below TLS 1.3, or with a peer whose certificate is not
//	    the cluster's, is out of its time or for another use; a connection to a node
//	    is to the node that was meant.
//	K2. A principal's certificate never passes for a node's.
//	K3. From Swap's return on, no new connection uses the old credential.
//	K4. A crash in a renewal leaves the old or the new credential, key and certificate
//	    together.
//	K5. No error, log line or String holds anything of a private key.
//	K6. A joining host gives nothing away to a server that does not have the
//	    authority of the fingerprint that it was given.
//	K7. A connection ends when its peer's certificate does, and that of who has none soon,
//	    unless he proves otherwise who he is.
//	K8. Who does not finish a handshake keeps nobody out, and holds one of so many places;
//	    so do strangers, in places of their own.
//	K9. Once Refuse turns a peer away and Sever has returned, it has no connection.
//	K10. Of one principal there are at most PrincipalConnsMax connections, by whatever he
//	    has shown.
package pki
