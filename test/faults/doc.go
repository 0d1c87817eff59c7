// Package faults holds the tests that run a cluster as operators do, and break it:
// real processes of the program, each on a host of its own (internal/netlab), that are
// killed, paused and cut off from each other while clients, also processes, use the
// lock service. Chubby's paper (§4.1, §4.2) is where most outages were of this kind.
//
// # Nouns
//
//   - A cluster is nodes on hosts, their data folders and their logs.
//   - A client is a process with sessions. It writes what it asked, what it was
//     answered and what it believed to a history, with times of the machine's monotonic
//     clock, which all processes share.
//   - A register is a file that clients read, through caches and not, and change by
//     compare-and-set. An era is the registers of a moment: outcomes that are not known
//     would otherwise pile up on one file until no order can be found.
//   - A hold is one time that a session had a lock. It lasts from when Acquire returned
//     to the last moment at which the session believed, by Held, to have it.
//   - The judge is a third party, with no part in the lock service, that is shown
//     sequencers.
//   - A fault is something done to the cluster for a while.
//
// # Invariants
//
// Whatever the faults:
//
//	F1. Operations on a register are linearizable (Porcupine), reads from a session's
//	    cache, operations of unknown outcome and a read of each in the end included.
//	    An error that does not say that the outcome is unknown means that nothing was
//	    changed.
//	F2. Holds of a lock by different sessions do not overlap, unless all are shared.
//	F3. Lock generations grow with each hold of an exclusive lock: no two sessions show
//	    the judge the same one, and who is refused for an old one does not believe to
//	    hold the lock.
//	F4. A sequencer is valid while its holder believes in the lock, and not any more
//	    once it was released.
//	F5. A session's ephemeral file is there while the session believes in its lease, and
//	    gone once the session is closed.
//	F6. After each fault the service answers again within recoverTime; nodes that were
//	    not killed do not end.
//	F7. In the end there is one leader, all voters are back and hold the same files, the
//	    clients' locks and ephemeral files are gone, and all nodes stop in order.
package faults
