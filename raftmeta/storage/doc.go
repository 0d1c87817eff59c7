// Package storage is the data directory of one server of the lock service: the Raft log, Raft's term
// and vote, and the snapshots.
//
// A Log is raft-boltdb with a checksum of each value, a deadline for each write, and no write after
// the first failure. Snapshots has each snapshot in one file with checksums. CheckDir reads a
// directory without bbolt, which trusts its file, and finds what is corrupt in it. A log may have
// another store than bbolt (OpenFunc), which is then checked through it.
//
// # Goroutines
//
// The package starts none, except a runtime timer for each write. A Log and Snapshots are safe for
// concurrent use. Raft's goroutines call them.
//
// # Invariants
//
// Their numbers are those of raftmeta. After a write or fsync failed or stalled, nothing is written
// again and nothing is acknowledged (RM6). A damaged byte in the live log or in the newest snapshot
// is an error that names the file and the offset (RM7). A snapshot gets its final name only if its
// checksums are valid (RM21). The log has no gap (RM22).
//
// # Data directory
//
//	raft.db              the log, and raft's term and vote; a bbolt file
//	raft.db.new          a log that is being created
//	snapshots/T-I-M.snap a snapshot: term, index, and time in ms, all hexadecimal
//	snapshots/*.tmp      a snapshot that is being written
//	LOCK                 locked by the process that has the directory open
//
// # Log entries
//
// raft-boltdb stores entry i under the key i, 8 bytes big-endian, as a MessagePack map of the
// fields of raft.Log. Extensions has 5 bytes: the version, which is 1, and a CRC-32C,
// big-endian, over index and term (8 bytes each), type (1), time in ns since 1970 (8), and
// data, all big-endian. Raft's own values (term, vote) are followed by a CRC-32C, big-endian,
// over key and value. This package adds values: ServerID, the id of the server; Joining, which is
// 1 while the server waits to be added to a group; and InvitationTerm and InvitationIndex, of its
// invitation (RM24). The last three have 8 bytes, big-endian.
//
// # Snapshot files
//
// Integers are big-endian, checksums CRC-32C. A file is a header and a stream.
//
//	+-----------+---------+--------+-----+-------------+-----------
//	| STELESNF  | version | length | crc | description | stream ...
//	| 8         | 4: 1    | 4      | 4   | length      |
//	+-----------+---------+--------+-----+-------------+-----------
//
// The checksum covers the other header fields and the description. The description is a
// MessagePack array: raft's snapshot version, index, term, index of the members, and the
// members, each [suffrage, id, address]; suffrage 0 is a voter.
//
// Package raftmeta/fsm specifies the stream.
//
// Example: the header of the snapshot at index 7, term 2, of a group with the single server n1:
//
//	53 54 45 4c 45 53 4e 46  00 00 00 01  00 00 00 0e  ef d9 16 f4
//	95 01 07 02 01 91 93 00 a2 6e 31 a2 6e 31
package storage
