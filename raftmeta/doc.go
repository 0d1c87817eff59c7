// Package raftmeta is the lock service of a Stele cluster, in the role of Chubby: a small
// replicated tree of files with locks, sessions, watches and consistent client caches.
//
// Bigtable (§4, "Building blocks") uses Chubby for the location of the root tablet, the
// schemas, the discovery of tablet servers and the election of the master. Chubby is "a
// namespace that consists of directories and small files", where "reads and writes to a file
// are atomic", on "five active replicas" of which one is elected master. A Group is one
// server of such a service. hashicorp/raft replicates a log of commands, and each command
// changes the namespace.
//
// # Departures
//
// Chubby is a separate service. This is a library in every node; at most five nodes vote.
// Addresses of servers may change at any time: in Raft's configuration the address of a
// server is its id, and Config.Streams resolves ids.
//
// Set creates missing parent directories. They are nodes with an instance and a generation,
// and stay until they are deleted. In Chubby the caller creates them.
//
// Chubby has open handles. Here calls name paths, and the instance number, which Chubby keeps
// in a handle, is returned with the file. What Chubby ties to handles belongs to the session:
// a lock, and an ephemeral file, which is deleted with the session that created it.
//
// Chubby's locks are advisory and do not affect Delete. Here Delete fails if the node's lock
// is held by another session or is in its lock-delay, because holders check locks from local
// state. Ephemeral files have no locks for the same reason: the file and its lock-delay would
// disappear together.
//
// After a failover, Chubby's leader asks every session what it caches. Here the log records
// when a file is first cached, so that most writes wait for no session.
//
// # Nouns
//
//   - A node is a file or a directory of the namespace. Its instance number is larger than
//     that of any earlier node at the same path. Its content generation grows when a file is
//     written, or when a child of a directory is created or deleted. Both are raft indexes.
//   - A command is one change, as encoded in the log. A result is the outcome of a command.
//   - The machine is raft's FSM: it applies commands to the namespace.
//   - A snapshot is the namespace at one index. It replaces the log up to that index.
//   - Term, index, voter and leader are Raft's. A leader has caught up when its machine has
//     applied everything committed before its term.
//   - A session is a client with a lease. The lease is the time for which the leader keeps
//     the session without a KeepAlive; a KeepAlive extends it. The session ends by a command,
//     which deletes its ephemeral files and frees its locks, or puts them into their
//     lock-delay if the session expired.
//   - A lock belongs to a node. Its generation is the index at which it last went from free
//     to held; a sequencer contains it, so that third parties can validate a lock. A hold is
//     one session's ownership of a lock.
//   - A lock-delay is the time for which the lock of an expired session is not granted again,
//     because requests sent under it may still be in flight.
//   - The lease manager is the leader's state outside the log, for one term: lease deadlines,
//     pending KeepAlives, which session caches and watches what, and the queues for locks.
//   - A file is marked as cached once the first session may cache this version of it.
//   - A member is a server in Raft's configuration, voter or not. A joining server waits
//     until the leader adds it, and gets a vote when it has caught up.
//   - An invitation is a committed entry of the leader, made for a server that is not a
//     member. It is pending until the server's log has the entry.
//   - A read round is one request for the term of each voter, shared by all waiting reads and
//     KeepAlives. To verify leadership is to have answers of a quorum to requests that were
//     sent after the verification began.
//
// # Goroutines
//
//	goroutine        started by  ends with               owns, waits for
//	watchLeadership  Open        raft, in Close          raft's NotifyCh, which must not block
//	catchUpLoop      Open        Close                   the barrier after an election
//	watchLeader      Open        raft, in Close          raft's observations of the leader
//	verifier.loop    Open        Close                   the current read round
//	pollTerm         verifier    verifier.loop           one per other voter: its answer, 1 s
//	memberLoop       Open        Close                   other voters, whether this server is a member
//	admission.loop   Open,       Close, or the entry     the pending invitation; the log
//	                 Invited     of the invitation
//	detector.loop    Open        Close                   probing whether the leader's process has exited
//	a change         its caller  raft's answer           the future of one membership change
//	acceptLoop       Open        the transport           Config.Streams
//	serveConn        a peer      its connection          one message at a time; raft's main goroutine
//	heartbeatLoop    Open        the transport           raft's main goroutine
//	proposeLoop      Open        Close                   the batch of commands in flight; raft's queue
//	answerLoop       Open        proposeLoop             the futures of commands, in order
//	snapshotter.loop Open        Close                   taking a snapshot
//	serviceLoop      Open        Close                   service: starting and stopping the lease manager
//	OnFatal          a failure   the node                runs Config.OnFatal, once; not waited for
//	OnRemoved        a member    the node                runs Config.OnRemoved, likewise
//	disconnect       a failure   at once                 closes all connections
//	stall timers     each write  the write               runtime timers, not goroutines
//	raft's own       Open        Close, after all above  run (term, vote, log), runFSM (the machine), runSnapshots
//
// Raft may never resolve some of its futures when it stops. Close therefore first stops the
// goroutines that wait for futures, and then raft. In between it closes the connections to
// other servers. A failure of this server closes them at once. The goroutines of the
// transport end with their connections.
//
// # Queues
//
//	commands in flight        32 MiB     Set and Delete wait, as long as their context allows
//	futures to be answered    512        proposeLoop waits
//	raft's queue              256        proposeLoop waits
//	connections from peers    256        further ones are closed; 48 from one authenticated server
//	a message                 5 MiB      it holds fewer entries
//	heartbeats for raft       1          further ones are answered but not passed on
//	reads of one round        unbounded  each is a caller's goroutine
//
// # Invariants
//
//	RM1. A change whose Set or Delete returned nil is on the disks of a majority, and
//	    visible to every Get or List that begins later.
//	RM2. The calls on one path are linearizable.
//	RM3. Apply does not fail, and every voter computes the same result.
//	RM4. No generation of a path is ever reused, even if the node is deleted and
//	    created again.
//	RM5. A data directory is initialized once, as the first voter of a new group or as
//	    a joining server. Until its log has its final name it is neither. After that
//	    no flag changes the voters; only Recover does.
//	RM6. After a write or fsync failed or stalled, nothing is written again and nothing
//	    is acknowledged.
//	RM7. Open accepts only what was written: a damaged byte in the live log or in the
//	    newest snapshot is an error that names the file and the offset.
//	RM8. Every parent of a node is a directory.
//	RM9. Memory and disk are bounded: NamespaceBytesMax and NodesMax for the namespace,
//	    inFlightBytesMax for commands, and for the log the larger of
//	    Config.SnapshotBytes and the size of the namespace, plus Config.TrailingLogs entries.
//	RM10. The client's view of its lease ends before a command ends the session, if all
//	    clocks run within 5% of the true rate.
//	RM11. At most one session holds an exclusive lock, both in the log and in the view
//	    of clients. From the expiry of its holder to the end of its lock-delay no
//	    session holds it.
//	RM12. When a change of a file commits, no session with a valid lease has an older
//	    version in its cache.
//	RM13. A write waits for a session that caches the file no longer than its lease.
//	RM14. A command has an effect only in the term of the leader that proposed it.
//	RM15. The command that ends a session deletes its ephemeral files.
//	RM16. When verify returns a term, no server had been elected in a later term when
//	    verify was called.
//	RM17. The term of a server never decreases, and only raft's main goroutine changes it.
//	RM18. A message to one server is never answered by another, whatever addresses
//	    they have.
//	RM19. Members change one at a time, and no change leaves fewer live voters than a
//	    quorum. A server gets a vote only once it has the log.
//	RM20. No input from another server makes this one panic, or allocate more than the
//	    bound of a message.
//	RM21. A snapshot from another server discards nothing that was applied or
//	    acknowledged here, and gets its final name only if its checksums are valid.
//	RM22. The log has no gap, and there is no gap between the newest snapshot and the log.
//	RM23. A user never holds more than the Quota of the command that allocated it. The
//	    recorded usage equals the actual usage, on every voter and after any restart.
//	RM24. A server that joins with an empty log, which may have been a member before,
//	    votes for no candidate, calls no election, and follows no leader of a term before
//	    its invitation's, until its log has the entry of the invitation. That entry was
//	    committed when the server was not a member, so the log then has every earlier
//	    configuration that names it. This holds after any restart. No server gets a vote
//	    before its log has the entry.
//
// # Messages
//
// Servers exchange messages over connections of Config.Streams. Each request and each answer
// is a MessagePack array after a header. The checksum is CRC-32C over length and array.
// Integers of the header are big-endian.
//
//	+--------+-----+--------+
//	| length | crc | array  |
//	| 4      | 4   | length |
//	+--------+-----+--------+
//
// The first message of a connection is ["stele raft", 1, from, to]: the version, and the ids
// of the servers at both ends. It is answered only if it is rejected. After it, requests and
// answers alternate. Both begin with the kind of the message.
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
// An entry is [index, term, type, time in ns since 1970, data]. Members are in raft's
// encoding. The answer [0, code, index, text] is an error; code 2 means that the sender has
// not been a member since the entry at index. Numbers of kinds and codes are never reused.
//
// Example: n1 opens a connection to n2 and sends a heartbeat of term 3:
//
//	00 00 00 13 f5 5e 03 b9 94 aa 73 74 65 6c 65 20 72 61 66 74 01 a2 6e 31 a2 6e 32
//	00 00 00 03 59 e3 78 8a 92 02 03
//
// # Formats
//
// The data directory, the log and the files of snapshots are specified in raftmeta/storage, commands
// and the stream of a snapshot in raftmeta/fsm.
package raftmeta
