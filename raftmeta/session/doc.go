// Package session is the client of the lock service: sessions, locks, a consistent cache, and
// watches.
//
// Bigtable (§4) uses Chubby through such a library: "each Chubby client maintains a session
// with a Chubby service", "Chubby clients can also register callbacks", and "the Chubby client
// library provides consistent caching of Chubby files". Chubby's paper (§2.7 to §2.9)
// describes how: leases extended by KeepAlives, jeopardy and a grace period, and invalidations
// that are acknowledged before a write is made.
//
// # Departures
//
// In jeopardy, Chubby's library blocks calls. This one does not. Instead no lock is Held, and
// the cache does not answer.
//
// Chubby's cache also holds handles and the absence of files. This one holds only files.
//
// Applications poll queues and channels (Watcher.Next, Session.Changed) instead of
// registering callbacks, because a slow callback would delay KeepAlives.
//
// # Nouns
//
//   - A Client finds the leader through a Locator, which lists addresses, and a Dialer, which
//     connects. It makes calls, and retries them where that is safe.
//   - A Session is extended by its keepalive goroutine. The client relies on the lease until
//     it ends on the client's own Clock. The state goroutine reports to the application:
//     valid, jeopardy, valid again, or expired.
//   - A Lock is held while the lease is valid. Its hold is one acquisition of it.
//   - The cache holds files with the leader's permission. A fetch is a Get in progress.
//   - A Version is what a Get has read. It is current as long as the leader must invalidate
//     the session before it changes the file.
//   - A Directory is a copy of a directory's files, which its Read brings up to date. It is for
//     directories of which many clients need all files: the leader keeps no state for it, and a
//     write does not wait for it, but each Read is a call.
//   - A Watcher is a queue of events of some paths.
//
// # The lease
//
// If a KeepAlive was sent at s on this clock, and its answer grants a lease of L, the client
// relies on the lease until s + api.LocalLease(L): the server cannot have counted from before
// s, and both clocks may be wrong by 5 %. Held compares that with the clock and makes no call.
// The events of an answer are processed before its lease takes effect. The next KeepAlive
// acknowledges them, and is sent at once.
//
// # The cache
//
// The answer of a Get may arrive after the invalidation of its file. Both carry sequence
// numbers. The answer is not cached if an event with a larger number has been processed for
// its path, or a FailedOver with a larger number, or if its term is not that of the last
// KeepAlive. The whole cache is dropped on FailedOver, when the lease ends, and on a new term,
// before the client acknowledges that term to the new leader. A lease that has ended is
// renewed only after the cache was dropped.
//
// # Goroutines
//
//	goroutine     started by       ends with             owns, waits for
//	keepalive     Open             the session           KeepAlives, term, events; the answer
//	                                                     or a timer
//	stateLoop     Open             the session           the state; the end of lease and grace
//	resetter      FailedOver       all watches are set   setting watches again, 32 at a time;
//	                               or the session        one per session
//	undo          a failed         the leader's answer   releasing a lock whose acquisition has
//	              Acquire          or the session        an unknown outcome
//	retryRelease  a failed         the leader's answer   releasing a lock
//	              Release          or the session
//	unset         Remove, Close    5 s, or the session   one Unwatch for each path
//	              of a Watcher
//	runSearch     the first call   a connection, or      the dials; one per Client
//	              that needs it    failure of all
//	dial          runSearch        DialTimeout, or the   connecting; at most 8
//	                               end of the search
//	monitor       a call           1 s without calls     probing a server with calls in
//	                               or Client.Close       progress; one per connection
//	retire        a KeepAlive      one lease, or         closing a connection that does not
//	              without answer   Client.Close          answer
//
// Session.Close waits for the goroutines of the session, Client.Close for those of
// connections.
//
// # Unresponsive servers
//
// A partitioned server does not close its connections. A session abandons its server when a
// KeepAlive is not answered in time. For calls without a session, the Client probes a server
// that has answered none of them for 1 s, and abandons it if the probe is not answered within
// 2 s. A link that needs more than 3 s for a file of 256 KiB therefore counts as dead. The
// calls end, are retried on another server where that is safe, and otherwise have an unknown
// outcome. To find another server, the Client dials one more address every 200 ms, and uses
// the first that answers.
//
// # Queues
//
//	answers of KeepAlives        16                the oldest wait; further ones are lost
//	events of one Watcher        Options.QueueMax  dropped; the Watcher gets FailedOver
//	files in the cache           Options           an arbitrary one is evicted
//	connections                  8                 an arbitrary one is closed
//
// # Invariants
//
//	RS1. Held is false before the leader can grant the lock to another session, even if
//	    messages are lost, delayed or duplicated, and if clocks are wrong by up to 5 %.
//	RS2. Get returns the file as it was at some moment during the call, cached or not.
//	RS3. A Watcher misses no event after Add without receiving FailedOver, and what it reads
//	    after FailedOver is watched.
//	RS4. A change is made at most once, unless its error is api.ErrOutcomeUnknown or making it
//	    twice has the same effect.
//	RS5. A lock that was released, or whose Acquire failed, is free at the leader once the
//	    leader can be reached, at the latest when the session ends.
//	RS6. No goroutine remains after Close.
//	RS7. While the lease is valid and a Version is current, no change made after the version
//	    was read has returned.
//	RS8. Directory.Read returns each file as it was at some moment during the call.
package session
