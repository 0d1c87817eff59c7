// Package token has what hosts and clients show before they have a certificate, and
// what the cluster keeps of it.
//
// A join token lets a host become a node; an access token makes who bears it a
// principal. The paper has neither: its machines are all of one house.
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
//	fingerprint  SHA-256 of the certificate of the cluster's authority: who has the
//	             token knows from it whom to give it to
//	ends         seconds since 1970 after which it is of no use, 0: never. For its
//	             owner; the cluster has its own note of it
//	checksum     CRC-32C of the prefix and all bytes before
//
// Readers take capitals, I and L for 1, O for 0, white space anywhere, and quotes
// around it. Worked example, with id 0102030405060708, a secret of 16 bytes a1, a
// fingerprint of 32 bytes f2, and the end at 2027-01-01 00:00:00 UTC:
//
//	stele-join-040g40r40m30e251m6gt38d1m6gt38d1m6gt38d1ybsf5wqj
//	ybsf5wqjybsf5wqjybsf5wqjybsf5wqjybsf5wqjybs00tspxj020zt4dm
//
// # Records
//
// MessagePack. A time is in milliseconds since 1970, 0: never. The hash is SHA-256 of
// "stele ", the kind, " token 1", a zero byte, id and secret: the secret has 128 random
// bits, which need no slow hash.
//
//	join    [1, id, hash, created, ends, uses left, node or "", [[node, hash of its key]...]]
//	access  [1, id, hash, created, ends, principal, generation, comment]
//
// # Invariants
//
//	T1. Who reads all that the cluster keeps can use no token.
//	T2. Nothing but Reveal tells a token's secret: no fmt verb, log, marshaller or
//	    error of this package.
//	T3. A token is used as often as it may be and not once more, however many ask at
//	    a time, and not after its end. The same node with the same key may ask again.
//	T4. Whether an id is unknown or a secret wrong is not told, nor shown by the time
//	    that it takes.
//	T5. A token that was cut, or in which a character is wrong, is known for that
//	    before it goes anywhere; one for another cluster is not given to it.
//
// The package starts no goroutine.
package token
