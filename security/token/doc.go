// Package token implements the bearer tokens that hosts and clients present before they have a
// certificate, and the records that the cluster stores of them.
//
// A join token lets a host become a node. An access token authenticates its bearer as a principal.
// The paper has neither, because its machines belong to one organization.
//
// # Text
//
// A token is one word, stele-join- or stele-access- and 106 characters of base 32 in
// Crockford's alphabet (0-9 a-z without i l o u): five bits each, highest first, the
// last two bits zero, of these bytes, integers big-endian:
//
//	 0         1      9        25            57     62         66
//	+---------+------+--------+-------------+------+----------+
//	| version | id   | secret | fingerprint | ends | checksum |
//	| 1: 1    | 8    | 16     | 32          | 5    | 4        |
//	+---------+------+--------+-------------+------+----------+
//
//	fingerprint  SHA-256 of the certificate of the cluster's authority, by which the
//	             bearer verifies the cluster before it sends the token
//	ends         expiry in seconds since 1970, 0: never. Informs the owner; the cluster
//	             checks its own record
//	checksum     CRC-32C of the prefix and all preceding bytes
//
// Parse accepts upper case, I and L for 1, O for 0, white space anywhere, and surrounding quotes.
// Worked example, with id 0102030405060708, a secret of 16 bytes a1, a fingerprint of 32 bytes f2,
// and an expiry of 2027-01-01 00:00:00 UTC:
//
//	stele-join-040g40r40m30e251m6gt38d1m6gt38d1m6gt38d1ybsf5wqj
//	ybsf5wqjybsf5wqjybsf5wqjybsf5wqjybsf5wqjybs00tspxj020zt4dm
//
// # Records
//
// Records are MessagePack. A time is in milliseconds since 1970, 0: never. The hash is SHA-256 of
// "stele ", the kind, " token 1", a zero byte, the id and the secret. The secret has 128 random
// bits, so a slow hash is not needed.
//
//	join    [1, id, hash, created, ends, uses left, node or "", [[node, hash of its key]...]]
//	access  [1, id, hash, created, ends, principal, generation, comment]
//
// # Invariants
//
//	TK1. Read access to everything that the cluster stores does not allow use of any token.
//	TK2. Only Reveal exposes a token's secret: no fmt verb, log, marshaller or error of
//	    this package does.
//	TK3. A token is used at most as often as allowed, also by concurrent requests, and not
//	    after its expiry. The same node with the same key may repeat its request.
//	TK4. Neither the error nor the duration reveals whether an id is unknown or a secret
//	    is wrong.
//	TK5. A token that is truncated or has a wrong character is rejected before it is sent.
//	    A token of another cluster is not sent to this one.
//
// The package starts no goroutine.
package token
