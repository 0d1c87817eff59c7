// Package session is the client of the lock service: sessions, locks, a consistent
// cache, and watches.
//
// Bigtable (§4) uses Chubby through such a library: "each Chubby client maintains a
// session with a Chubby service", "Chubby clients can also register callbacks", and
// "the Chubby client library provides consistent caching of Chubby files". Chubby's
// paper (§2.7 to §2.9) says how: leases that KeepAlives extend, jeopardy and a grace
// period, invalidations that are acknowledged before a write is made.
//
// # Departures
//
// A session in jeopardy does not block calls; it only believes in nothing: its locks
// are not Held, and its cache does not answer. Chubby's library blocks.
//
// Chubby's cache also holds handles and the absence of files. This one holds files.
//
// Applications look at queues (Watcher.Next, Session.Changed) in place of callbacks: a
// callback that is slow would hold up KeepAlives.
//
// # Nouns
//
//   - A Client finds the server that leads, through a Locator (which addresses) and
//     a Dialer (how), and makes calls, again where that is safe.
//   - A Session is kept alive by its keeper. Its lease is believed in until its end on
//     the client's own Clock. Its warden tells the application: valid, jeopardy, safe
//     (valid again), expired.
//   - A Lock is held while the lease is. Its hold is one time of having it.
//   - The cache holds files with the leader's leave. A fetch is a Get under way.
//   - A Version is what a Get has read, as long as the leader must ask the session before it changes.
//   - A Watcher is a queue of events of some paths.
//
// # The lease
//
// A KeepAlive that was sent at s, on this clock, and is answered with a lease of L
// is believed until s + api.LocalLease(L): the server cannot have counted from before
// s, and both clocks may be wrong by 5 %. Held compares that with the clock and asks
// nobody. Events of an answer are dealt with before its lease is believed, and are
// acknowledged by the next KeepAlive, which goes out at once.
//
// # The cache
//
// A Get's answer may be overtaken by the invalidation of what it says. Both bear
// numbers: the answer is not kept when an event with a larger number than its own has
// been processed for its path (or FailedOver), or when it is of another term than the
// last KeepAlive. All is dropped on FailedOver, on a new term before the new leader is
// told of it, and when the lease ends; one that ended lives again only after that.
//
// # Goroutines
//
//	goroutine   started by       ends with             owns, waits for
//	keeper      Open             the session           KeepAlives, term, events; the answer
//	                                                   or a timer
//	warden      Open             the session           the state; the end of lease and grace
//	resetter    FailedOver       all watches are set   setting watches again, 32 at a time;
//	                             or the session        one a session
//	undo        a failed         the leader's answer   giving back a lock whose outcome is
//	            Acquire          or the session        not known
//	give-back   a failed         the leader's answer   releasing a lock
//	            Release          or the session
//	unset       Remove, Close    5 s, or the session   one Unwatch for each path
//	            of a Watcher
//	seek        the first call   a connection, or      the dials; one a Client
//	            that needs it    none to be had
//	dial        seek             DialTimeout, or the   connecting; at most 8
//	                             end of seek
//	watch       a call           1 s without calls     whether a server with calls under
//	                             or Client.Close       way lives; one a connection
//	retire      a KeepAlive      one lease, or         closing a connection that does not
//	            without answer   Client.Close          answer
//
// Session.Close joins the session's, Client.Close the connections'.
//
// # Silence
//
// A server that is cut off closes no connection. A session gives it up when a KeepAlive
// is not answered in time. For calls without a session the Client asks a server that
// has answered none of them for 1 s whether it lives, and gives it up when there is no
// answer to that for 2 s: so a link that needs more than 3 s for a file of 256 KiB is
// taken for dead. The calls end, are made again elsewhere where that is safe, and have
// an unknown outcome where it is not. Looking for another, the Client asks one address
// after the other each 200 ms, and takes the first that answers.
//
// # Queues
//
//	answers of KeepAlives        16                the oldest wait; more are lost, as if on the way
//	events of one Watcher        Options.QueueMax  dropped; the Watcher gets FailedOver
//	files in the cache           Options           any one goes
//	connections                  8                 any one goes
//
// # Invariants
//
//	S1. Held is false before the leader can give the lock to another, whatever is
//	    lost, late or doubled, and however clocks run within 5 %.
//	S2. Get returns what was the file at some moment of the call, cached or not.
//	S3. A Watcher misses no event after Add without getting FailedOver, and what it
//	    reads after FailedOver is watched.
//	S4. A change is made at most once, unless its error is api.ErrOutcomeUnknown or it
//	    is the same twice.
//	S5. A lock that was given up or released is free at the leader once that can be
//	    reached, at the latest when the session ends.
//	S6. After Close no goroutine is left.
//	S7. While the lease holds and a Version is current, no change has returned that was made after what the
//	    Version is of.
package session
