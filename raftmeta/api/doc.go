// Package api defines the lock service (Chubby's role, Bigtable §4) as its callers see it:
// types, errors, the Service interface, and their encoding on the wire. The server (raftmeta)
// and the client (raftmeta/session) share it. docs/rpc.md describes the same protocol for
// clients in other languages; a test compares the two.
//
// Chubby's paper describes calls but no protocol. This one is MessagePack-RPC with positional
// parameters; the last parameter of every method is an optional map of options. As in Chubby,
// events are sent to the client in the answers of KeepAlives.
//
// # Nouns
//
//   - A Service is the interface that a leader offers. ServeCurrent exposes one on an
//     rpc.Server; Remote returns the one at the other end of a connection.
//   - A shape is the list of parameters and options of a method. One request struct serves
//     all methods; the shape determines which of its fields are used.
//   - ToRPC and FromRPC convert between Go errors and errors on the wire.
//   - A session is a client's lease with the group, extended by KeepAlives. A hold is one
//     acquisition of a lock by a session. A watch is a session's subscription to events of a
//     path.
//
// # Lost and delayed messages
//
// A request may arrive after its client has stopped waiting, and after later requests of the
// same client. Requests that end something therefore identify it: Release by its hold,
// Unwatch by its watch, a compare-and-set by its generation. Watch only adds kinds of events.
// KeepAlives may arrive in any order: the effect of Term and Acked only grows.
//
// # Invariants
//
//	RA1. A decoded value equals the encoded one, for clients of any MessagePack library,
//	    including those that send text where bytes are expected.
//	RA2. No input makes a decoder panic, recurse without bound, or allocate more than a
//	    constant factor of the input's size, or more than the bound of the field.
//	RA3. FromRPC(ToRPC(err)) matches, by errors.Is and errors.As, every error of this
//	    package that err matched; only ErrClosed becomes ErrNotReady.
//	RA4. An error that is Retryable was returned before anything was executed. If Remote
//	    cannot rule out that a change was made, the error is ErrOutcomeUnknown.
//	RA5. Durations are rounded so that no client relies on a lease for longer than granted.
//
// The package starts no goroutine.
package api
