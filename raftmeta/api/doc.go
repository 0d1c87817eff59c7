// Package api is the lock service (Chubby's role, Bigtable §4) as callers see it:
// its words, its errors, the interface that its leader offers, and all of that on
// the wire. Servers (raftmeta) and clients (raftmeta/session) share it. docs/rpc.md
// says the same for writers of clients in other languages; a test holds the two
// together.
//
// Chubby's paper gives calls and their meaning, and no protocol. Ours is
// MessagePack-RPC with positional parameters; the last parameter of every method is
// an optional map of options. Chubby sends events from server to client on the
// answers of KeepAlives, and so does this.
//
// # Nouns
//
//   - A Service is what a leader offers. Serve puts one behind an rpc.Server,
//     Remote is the one at the other end of a connection.
//   - A shape says which parameters and options a method takes. One request struct
//     serves all methods; its shape tells which of its fields count.
//   - ToRPC and FromRPC turn Go errors into errors of the wire and back.
//   - A session is a client's standing with the group, kept by KeepAlives. A hold is
//     one time that it had a lock. A watch is its wish to hear of a path.
//
// # Lost and delayed messages
//
// Whatever a client sends may arrive after it has given up waiting, and after what
// it sent since. So what ends something names it: a Release its hold, an Unwatch its
// watch, a compare-and-set its generation. Watch adds and never takes away.
// KeepAlives may come in any order: Term and Acked only grow in effect.
//
// # Invariants
//
//	M1. What is written is read back as equal; so do clients of any MessagePack
//	    library, who may send text where bytes are meant.
//	M2. No input makes a decoder panic, recurse without bound, or allocate more
//	    than a constant factor of its size, nor more than its field's bound.
//	M3. FromRPC(ToRPC(err)) matches, by errors.Is and errors.As, what err matched
//	    of this package's errors; only ErrClosed becomes ErrNotReady.
//	M4. An error that says Retryable was given before anything was executed. A
//	    change that Remote cannot rule out is ErrOutcomeUnknown.
//	M5. Durations are rounded so that nobody believes in a lease for longer than
//	    it was granted.
//
// The package starts no goroutine.
package api
