// Package fsm is the replicated state machine of the lock service: a namespace of files with locks,
// sessions and quotas, and the commands that change it.
//
// It is the data structure of Chubby (Bigtable §4, "Building blocks"). Package raftmeta replicates
// the commands with Raft and applies them on each voter. Package fsm does not import Raft: an entry
// of the log is an index, a term and the bytes of a command.
//
// The package has no goroutines, and reads no clock, file or random number: the state depends only
// on the commands and their indexes and terms. Durations are stored, and measured elsewhere: see
// raftmeta/lease. A Machine is safe for concurrent use; a Namespace is not.
//
// # Nouns
//
//   - A node is a file or a directory of the namespace. Its instance number is larger than
//     that of any earlier node at the same path. Its content generation grows when a file is
//     written, or when a child of a directory is created or deleted. Both are raft indexes.
//   - A command is one change, as encoded in the log. A result is the outcome of a command.
//   - A change is one effect of a command, as reported to the observer of a machine.
//   - A session is a client with a lease. A hold is one session's ownership of a lock, or of an
//     ephemeral file, which is deleted with the session.
//   - A lock belongs to a node. Its generation is the index at which it last went from free to
//     held; a sequencer contains it, so that third parties can validate a lock.
//   - A lock-delay is the time for which the lock of an expired session is not granted again.
//   - A snapshot is the namespace at one index.
//   - An owner is a user whose quota is charged for what the user creates. The cluster itself has
//     no quota.
//
// # Invariants
//
// Their numbers are those of raftmeta. Apply does not fail, and every voter computes the same result
// (RM3). No generation of a path is ever reused (RM4). Every parent of a node is a directory (RM8).
// Limits bound the namespace (RM9). At most one session holds an exclusive lock, and none from the
// expiry of its holder to the end of its lock-delay (RM11). A command has no effect in an entry of
// another term than its own (RM14). The command that ends a session deletes its ephemeral files
// (RM15). A user never holds more than the quota of the command that allocated it, and the recorded
// usage equals the actual usage (RM23). Reading a snapshot verifies it (RM7).
//
// # Commands
//
// A command is a MessagePack array: the version, the number of the operation, the term of the
// leader that proposed it, and its operands. The version is 2, or 3 if a quota follows the
// operands: the command is then charged to a user (see Quota). In version 4 the quota may be nil, and
// AbsentSince of a set follows, an index. In version 5 the path and the generation of From follow: a set
// that creates a file and deletes that one, which is a rename.
//
//	set            [2, 1, term, path, data, generation, session, ephemeral, guard]
//	delete         [2, 2, term, path, generation, session, guard]
//	open session   [2, 3, term, name, lease]
//	close session  [2, 4, term, session]
//	expire         [2, 5, term, [session...]]
//	acquire        [2, 6, term, session, path, mode, lock-delay]
//	release        [2, 7, term, session, path, hold]
//	end lock-delay [2, 8, term, [[path, index]...]]
//	mark cached    [2, 9, term, path, generation]
//	set ACL        [2, 10, term, path, ACL name, session, guard]
//	quota          [owner, bytes, bytes of all, sessions, sessions of all]
//
// Path and names are text, the data is a byte string, "ephemeral" a boolean. A generation is
// an integer or nil: zero requires that the node does not exist, nil matches any. Session
// zero is none. A guard is nil, or the sequencer [path, mode, instance, lock generation] that
// must be valid. Leases and delays are in ms. Mode 1 is exclusive, 2 shared. Hold zero
// matches any. The index of a lock-delay is that of the command that began it. One command
// ends at most 128 sessions or lock-delays.
//
// If the term of a command differs from the term of its log entry, the command has no effect,
// because the leader's view of leases and caches is out of date. Term zero matches any.
//
// Version 1 had [1, 1, path, data, generation] and [1, 2, path, generation]. Numbers of
// operations are never reused. A program that reads a newer version or operation stops,
// because it cannot compute the state of the group any further.
//
// Example: set /cluster, which must not exist, to the bytes ca fe, in term 3:
//
//	99 02 01 03 a8 2f 63 6c 75 73 74 65 72 c4 02 ca fe 00 00 c2 c0
//
// # Snapshots
//
// A snapshot is a stream of bytes with its own checksums. Voters store it in a file, and send it to
// each other. Integers are big-endian, checksums CRC-32C.
//
//	+-----------+---------+-----+        +--------+-----+---------+
//	| STELENSP  | version | crc |        | length | crc | records |
//	| 8         | 4: 2-4  | 4   |        | 4      | 4   | length  |
//	+-----------+---------+-----+        +--------+-----+---------+
//	 once                                 a frame, one or more
//
// The first checksum covers the 12 bytes before it. The checksum of a frame continues from
// the previous one, over the length and the records, so that a missing, repeated or misplaced
// frame is detected. A frame has at most 329,215 bytes of records. A record is a MessagePack
// array that begins with its kind:
//
//	session [4, id, name, lease]
//	node    [1, path, is a directory, instance, generation, data]
//	or      [3, path, is a directory, instance, generation, data,
//	         ephemeral's session, cached, ACL name, ACL generation,
//	         lock generation, lock-delay, its mode, its index]
//	hold    [5, session, path, mode, lock-delay, since]
//	owner   [6, user, session, path]
//	removal [7, path, index]
//	end     [2, index of the last command, number of nodes, bytes,
//	         number of sessions, number of holds]
//
// Records come in this order: sessions by id; nodes by directory, then name, the root first,
// so that each comes after its directory; holds by session, then path; owners; removals. A hold is a
// lock, or with mode zero an ephemeral file. An owner is the user whose quota is charged for
// a session, or if the session is zero, for the node at path. A removal is the index at which a
// directory last lost a child, or a directory at its path did before it was created. The version is 4 if
// there is a removal, else 3 if there is an owner, else 2. Usage is not stored: it is recomputed when a snapshot is read. Cached
// is the index since which sessions may cache the file, since the index at which the session
// got the hold. The holders of a lock and its mode are only in the holds. Durations are in
// ms. Bytes is the sum of path, data and ACL name of every node except the root. Nothing
// follows the end record. Version 1 had only kinds 1 and 2, and four values in the end
// record. Numbers of kinds are never reused; a new kind requires a new version.
//
// Example: the snapshot after entry 6. Entry 4 set /cluster, entry 5 opened the session n1 with a
// lease of 2 s, and entry 6 granted it the lock of /master with a lock-delay of 1 s:
//
//	53 54 45 4c 45 4e 53 50  00 00 00 02  8f b6 46 84
//	00 00 00 52  26 48 a4 c7
//	94 04 05 a2 6e 31 cd 07 d0
//	96 01 a1 2f c3 00 06 c4 00
//	96 01 a8 2f 63 6c 75 73 74 65 72 c2 04 04 c4 02 ca fe
//	9e 03 a7 2f 6d 61 73 74 65 72 c2 06 06 c4 00 00 00 a0 00 06 00 00 00
//	96 05 05 a7 2f 6d 61 73 74 65 72 01 cd 03 e8 06
//	96 02 06 03 11 01 01
package fsm
