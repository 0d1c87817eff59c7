// Package raftmeta is Stele's Chubby: a small tree of files that every server
// sees alike, kept by a few servers with Raft.
//
// Bigtable (§4, "Building blocks") leans on Chubby for what must be one and the
// same everywhere: the location of the root tablet, the schemas, who is alive,
// who is master. Chubby is "a namespace that consists of directories and small
// files", where "reads and writes to a file are atomic", on "five active
// replicas" of which one is elected master. Here a Group is one server's part
// in that: hashicorp/raft replicates a log of commands, each of which changes
// the namespace.
//
// # Departures
//
// Chubby is a service apart; this is a library in every node, of which at most
// five vote. Their addresses may change at any time: in Raft's configuration a
// server's address is its id, and Config.Streams knows where that is.
//
// Set makes the directories that it needs. They are nodes of their own, with an
// instance and a generation, and stay until deleted. Chubby's caller makes them.
//
// Chubby has open handles. Here calls name paths; the instance number, which
// Chubby keeps in a handle, comes with the file. What Chubby ties to handles is
// tied to the session: a lock, an ephemeral file (which here goes with the
// session that made it, not with the last handle).
//
// Chubby's locks are advisory and say nothing of Delete. Here a node whose lock is
// held by another session, or is in its lock-delay, is not deleted: holders answer
// from their own memory that they hold it. For the like reason ephemeral files
// have no locks: file and lock-delay would go together.
//
// Chubby's leader knows who caches what by asking every session after a failover.
// Here a file is marked in the log when the first session may cache it, so that
// most writes have nobody to wait for.
//
// # Nouns
//
//   - A node is a file or a directory of the namespace. It has an instance
//     number, larger than that of any node that had its path before, and a
//     content generation, which grows when a file is written, or a child of a
//     directory made or deleted. Both are raft indexes.
//   - A command is one change, as it stands in the log. A result is what came
//     of it: done, or why not.
//   - The machine is raft's FSM: it applies commands to the namespace.
//   - A snapshot is the namespace at one index; it takes the place of the log
//     before that.
//   - Term, index, voter, leader are Raft's. A leader has caught up when its
//     machine holds everything committed before its term.
//   - A session is a client that has a lease: the time for which the leader holds
//     what the session has without hearing from it. KeepAlives make it longer.
//     Its end is a command, by which its ephemeral files go and its locks are
//     free, or in their lock-delay if it expired.
//   - A lock belongs to a node. Its generation is the index at which it last went
//     from free to held; a sequencer names it so that others can check. A hold is
//     one session's having it.
//   - A lock-delay is the time for which a lock whose holder expired is not
//     given to another, since the holder's last requests may be under way.
//   - A keeper is what the leader knows beside the log, for one term: the ends of
//     leases, KeepAlives that hang, who caches and watches what, who stands in
//     line for a lock.
//   - A file is marked (as cached) from when the first session may cache this
//     version of it.
//   - A member is a server of Raft's configuration, voter or not. A server that
//     joins waits until the leader adds it, and votes once it has caught up.
//   - A read round is one question to the voters, "what is your term?", shared
//     by all reads and KeepAlives that wait for it. To verify leadership is to
//     have a quorum's answers to questions sent at its beginning or later.
//
// # Goroutines
//
//	goroutine        started by  ends with               owns, waits for
//	watchLeadership  Open        raft, in Close          raft's NotifyCh, which must never wait
//	catchUpLoop      Open        Close                   the barrier after an election
//	watchLeader      Open        raft, in Close          raft's word of who leads
//	readLoop         Open        Close                   the running read round
//	askers           readLoop    readLoop                one for each other voter: its answer, 1 s
//	memberLoop       Open        Close                   the others' word whether this server is a member
//	suspectLoop      Open        Close                   a look whether the leader's process has ended
//	a change         its caller  raft's answer           the future of one change of the members
//	acceptLoop       Open        the transport           Config.Streams
//	serveConn        a peer      its connection          one message at a time; raft's main goroutine
//	nudgeLoop        Open        the transport           raft's main goroutine
//	proposeLoop      Open        Close                   the batch of commands under way; raft's queue
//	answerLoop       Open        proposeLoop             the futures of commands, in order
//	snapshotLoop     Open        Close                   taking a snapshot
//	keeperLoop       Open        Close                   service: making and dropping the keeper
//	keeper's run     a keeper    its end                 the heap of deadlines
//	answerLoop       a keeper    its end                 verification, for all KeepAlives that are due
//	expire           a keeper    its end, or no work     at most 8: caches, and the log, for what is to end
//	settle           a keeper    its end, or no work     at most one: the log, for writes in doubt
//	OnFatal          a failure   the node                runs Config.OnFatal, once; nobody waits for it
//	OnRemoved        a member    the node                runs Config.OnRemoved, likewise
//	cut              a failure   at once                 closes all connections
//	stall timers     each write  the write               runtime timers, not goroutines
//	raft's own       Open        Close, after all above  run (term, vote, log), runFSM (the machine), runSnapshots
//
// Raft forgets to answer some of its futures when it stops. So Close first ends
// those who ask, and they get their answers, and only then raft. The connections
// to other servers are cut in between, and at once when this server fails: the
// transport's goroutines end with them.
//
// # Queues
//
//	commands under way      32 MiB     Set and Delete wait, as long as their context lets them
//	futures to be answered  512        proposeLoop waits
//	raft's queue            256        proposeLoop waits
//	connections from peers  256        further ones are closed, of one that has proved who it is after 48
//	a message               5 MiB      it takes fewer entries
//	heartbeats for raft     1          further ones are answered, and forgotten
//	reads of one round      unbounded  each is a caller's goroutine
//	KeepAlives that hang    1 a session a further one supersedes it, and it is dropped with its connection
//	events of a session     4096       they give way to one FailedOver, as when all sessions
//	                                   together have 1 Mi, those of users 512 Ki, of one user 128 Ki
//	watches                 1 Mi       Watch fails: *TooLargeError, also beyond the caller's Share
//	files cached            1 Mi       Get gives no leave to cache, also beyond the caller's Share
//	Acquires that wait      unbounded  each is a caller's goroutine; those of a user fail beyond
//	                                   the caller's Share: *TooLargeError
//
// # Invariants
//
//	R1. A change whose Set or Delete returned nil is on the disk of a majority,
//	    and in every state that a Get or List that begins later sees.
//	R2. The calls on one path are linearizable.
//	R3. Apply does not fail, and every voter comes to the same result.
//	R4. No generation of a path is ever used twice, not even after the node was
//	    deleted and made again.
//	R5. A folder is born once, as a new group's first voter or as a server that
//	    waits to be added. Until its log has its final name it is neither, and
//	    from then on no flag changes who the voters are; only Recover does.
//	R6. After a write or fsync failed or stalled, nothing is written again and
//	    nothing is acknowledged.
//	R7. What Open accepts is what was written: a damaged byte of the log in use
//	    or of the newest snapshot is an error that names the file and the place.
//	R8. Every parent of a node is a directory node.
//	R9. Memory and disk are bounded: NamespaceBytesMax and NodesMax for the
//	    namespace, inFlightBytesMax for commands, and for the log the larger
//	    of Config.SnapshotBytes and the namespace's size, plus trailingLogs
//	    entries.
//	R10. A client's belief in its session ends before a command ends the session,
//	    if all clocks run within 5% of the true rate.
//	R11. At most one session holds an exclusive lock, in the log and in the belief
//	    of clients. From its holder's expiry to the end of its lock-delay it is
//	    nobody's.
//	R12. When a change of a file is committed, no session that believes in its lease
//	    has an older version in its cache.
//	R13. A write waits for a session that caches the file no longer than its lease.
//	R14. A command does nothing but in the term whose leader decided on it.
//	R15. A session's ephemeral files go with the command that ends it.
//	R16. When verify returns a term, no server had been elected in a later term
//	    when it was called.
//	R17. A server's term only grows, and only raft's main goroutine changes it.
//	R18. What was sent to one server is answered by no other, whatever addresses
//	    they have.
//	R19. The members change one at a time, and no change leaves fewer live voters
//	    than a quorum. A server votes only once it has the log.
//	R20. No bytes from another server make this one panic, or take more memory
//	    than a message may have.
//	R21. A snapshot from another server takes nothing away that was applied or
//	    acknowledged here, and gets no name unless its checksums hold.
//	R22. The log has no gap, and none lies between the newest snapshot and it.
//	R23. What a user holds is never more than the Share under which it was taken, and
//	    what it is counted as is what there is, on every voter and after any restart.
//
// # The folder
//
//	raft.db              the log, and raft's term and vote; a bbolt file
//	raft.db.new          one that is being made
//	snapshots/T-I-M.snap a snapshot: term, index, and time in ms, all hexadecimal
//	snapshots/*.tmp      one that is being written
//	LOCK                 locked by the process that has the folder open
//
// # Commands
//
// A command is a MessagePack array: the version, the number of the operation,
// the term whose leader decided on it, and its operands. The version is 2, or 3
// if a share follows the operands: the command is a user's then (see Share).
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
//	share          [owner, bytes, bytes of all, sessions, sessions of all]
//
// Path and names are text, the data a byte string, "ephemeral" a boolean. A
// generation is an integer or nil: zero means that there must be no such node,
// nil that any will do. Session zero is none. A guard is nil, or the sequencer
// [path, mode, instance, lock generation] that must be valid. Leases and delays
// are in ms; mode 1 is exclusive, 2 shared. Hold zero is any. Of a lock-delay
// the index is that of the command that began it. At most 128 sessions or
// lock-delays end by one command.
//
// An entry whose own term is not the command's does nothing, since what its
// leader knew of leases and caches is out of date; term zero is any.
//
// Version 1 had [1, 1, path, data, generation] and [1, 2, path, generation].
// Operations get new numbers; none is ever used again. A program that meets a
// newer version or operation stops, since it cannot follow the group further.
//
// Example: to set /cluster, which must not exist, to the bytes ca fe, in term 3:
//
//	99 02 01 03 a8 2f 63 6c 75 73 74 65 72 c4 02 ca fe 00 00 c2 c0
//
// # Log entries
//
// raft-boltdb keeps entry i under the key i, 8 bytes big-endian, as a
// MessagePack map of raft.Log's fields. Its field Extensions has 5 bytes: the
// version, which is 1, and a CRC-32C, big-endian, over index and term (8 bytes
// each), type (1), time in ns since 1970 (8), and data, all big-endian. Raft's
// own values (term, vote) are followed by a CRC-32C, big-endian, over key and
// value. Two values are ours: ServerID, whose folder this is, and Joining, 8 bytes
// big-endian, which is 1 while the server waits to be added to a group.
//
// # Messages
//
// Servers talk over connections of Config.Streams. Each message, and each answer,
// is a MessagePack array after a header; the checksum is CRC-32C over length and
// array, integers of the header are big-endian.
//
//	+--------+-----+--------+
//	| length | crc | array  |
//	| 4      | 4   | length |
//	+--------+-----+--------+
//
// The first message of a connection is ["stele raft", 1, from, to]: the version,
// and the ids of the servers at both ends. It has no answer, unless it is refused.
// After it messages and answers take turns. Both begin with the message's kind.
//
//	append    [1, term, index before, its term, commit index, [entry...]]
//	          → [1, term, last index, success, again at once]
//	heartbeat [2, term] → as append
//	vote      [3, term, last index, its term, leadership transfer] → [3, term, granted]
//	pre-vote  [4, term, last index, its term] → [4, term, granted]
//	snapshot  [5, term, version, index, its term, index of the members, members, bytes]
//	          → [5, term, success]; the snapshot's stream follows the message
//	elect     [6] → [6, 0, true]
//	term      [7] → [7, term, true]
//
// An entry is [index, term, type, time in ns since 1970, data], and members are
// as raft encodes them. The answer [0, code, index, text] is a refusal; code 2
// means that the sender is no member since the entry at index. Kinds and codes get
// new numbers.
//
// Example: n1 greets n2 and sends a heartbeat of term 3:
//
//	00 00 00 13 f5 5e 03 b9 94 aa 73 74 65 6c 65 20 72 61 66 74 01 a2 6e 31 a2 6e 32
//	00 00 00 03 59 e3 78 8a 92 02 03
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
// The checksum covers the header but itself. The description is a MessagePack
// array: raft's snapshot version, index, term, index of the members, members,
// each [suffrage, id, address]; suffrage 0 is a voter.
//
// The stream is what one voter sends another, too, so it has its own checksums.
//
//	+-----------+---------+-----+        +--------+-----+---------+
//	| STELENSP  | version | crc |        | length | crc | records |
//	| 8         | 4: 2, 3 | 4   |        | 4      | 4   | length  |
//	+-----------+---------+-----+        +--------+-----+---------+
//	 once                                 a frame, at least one
//
// The first checksum covers the 12 bytes before it. A frame's checksum goes on
// from the one before it, over the length and the records: a frame that is
// missing, repeated or out of place is found. Frames have at most 329,215 bytes
// of records. A record is a MessagePack array that begins with its kind:
//
//	session [4, id, name, lease]
//	node    [1, path, is a directory, instance, generation, data]
//	or      [3, path, is a directory, instance, generation, data,
//	         ephemeral's session, cached, ACL name, ACL generation,
//	         lock generation, lock-delay, its mode, its index]
//	hold    [5, session, path, mode, lock-delay, since]
//	owner   [6, user, session, path]
//	end     [2, index of the last command, number of nodes, bytes,
//	         number of sessions, number of holds]
//
// They come in this order: sessions by id; nodes by directory, then name, the
// root first, so that each comes after its directory; holds by session, then
// path; owners. A hold is a lock, or of mode zero an ephemeral file. An owner is
// the user in whose share a session counts, or if that is zero the node at path;
// the version is 3 if there is one, else 2. What users hold is counted anew when
// a snapshot is read. Cached is an index,
// since the index at which the session got it. Who holds a lock, and
// how, is only in the holds. Durations are in ms. Bytes sums up path, data and
// ACL name of every node but the root. Nothing follows the end record. Version 1
// had kinds 1 and 2 alone, and four values in the end record. Kinds get new
// numbers; a new kind needs a new version.
//
// Example: the snapshot at index 7, term 2, of server n1 alone, where entry 4
// set /cluster, entry 5 opened the session n1 with a lease of 2 s, entry 6 gave
// it the lock of /master with a lock-delay of 1 s, and entry 7 was no command:
//
//	53 54 45 4c 45 53 4e 46  00 00 00 01  00 00 00 0e  ef d9 16 f4
//	95 01 07 02 01 91 93 00 a2 6e 31 a2 6e 31
//	53 54 45 4c 45 4e 53 50  00 00 00 02  8f b6 46 84
//	00 00 00 52  26 48 a4 c7
//	94 04 05 a2 6e 31 cd 07 d0
//	96 01 a1 2f c3 00 06 c4 00
//	96 01 a8 2f 63 6c 75 73 74 65 72 c2 04 04 c4 02 ca fe
//	9e 03 a7 2f 6d 61 73 74 65 72 c2 06 06 c4 00 00 00 a0 00 06 00 00 00
//	96 05 05 a7 2f 6d 61 73 74 65 72 01 cd 03 e8 06
//	96 02 06 03 11 01 01
package raftmeta
