// Package lease is the lock service that the leader of a group runs on the replicated state machine:
// sessions with leases, consistent client caches, watches, and the queues for locks.
//
// It does what Chubby's master does beside its database (Bigtable §4, "Building blocks"). Package
// raftmeta replicates the commands, starts and stops the Service with its server's leadership; package fsm applies
// them. Package raftmeta/session is the client.
//
// # Nouns
//
//   - A Service is the lock service of one server. It serves while the server leads.
//   - The lease manager is the leader's state outside the log, for one term: lease deadlines,
//     pending KeepAlives, which session caches and watches what, and the queues for locks.
//   - A lease is the time for which the leader keeps a session without a KeepAlive; a KeepAlive
//     extends it. Only a verification of leadership may extend what the client was promised: the
//     proof is at answerLocked.
//   - A Replica is the server of the group as the service uses it.
//
// # Goroutines
//
//	goroutine        started by  ends with               owns, waits for
//	run              a manager   the manager             the heap of deadlines
//	answerLoop       a manager   the manager             verification for all KeepAlives that are due
//	expire           a manager   the manager, or no work at most 8: caches and the log, for expired sessions
//	resolve          a manager   the manager, or no work at most one: the log, for writes of unknown outcome
//
// # Queues
//
//	pending KeepAlives        1 each     of a session: a new one supersedes it, and it is dropped
//	                                     with its connection
//	events of a session       4096       replaced by one FailedOver; also if all sessions together
//	                                     have 1 Mi, those of users 512 Ki, or of one user 128 Ki
//	watches                   1 Mi       Watch fails: *TooLargeError; also above the caller's Quota
//	files cached              1 Mi       Get does not permit caching; also above the caller's Quota
//	waiting Acquires          unbounded  each is a caller's goroutine; those of a user fail above
//	                                     the caller's Quota: *TooLargeError
//
// # Invariants
//
// Their numbers are those of raftmeta. The client's view of its lease ends before a command ends the
// session, if all clocks run within 5% of the true rate (RM10). From the expiry of the holder of a
// lock to the end of its lock-delay no session holds it (RM11). When a change of a file commits, no
// session with a valid lease has an older version in its cache (RM12). A write waits for a session
// that caches the file no longer than its lease (RM13).
package lease
