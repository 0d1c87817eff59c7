// Package api defines the methods that the store of one node serves to other nodes: request and
// result types, errors, interfaces and the wire encoding. Package blobfs implements the interfaces
// on the serving side and calls them on the other.
//
// As in GFS (§3.1 and §3.2 of its paper), data is pushed along a chain of replicas, each of which
// forwards what it receives.
//
// # Nouns
//
//   - A Peer is the store of a node. Serve registers one with an rpc.Server; a [Remote] is its
//     client.
//   - A stream is one extent being written. It has one sender: the writer or the previous node of
//     the chain. Its calls take effect in order, and any number may be unanswered, up to the
//     window.
//   - A shape lists the parameters of a method. One request struct serves all methods of extents;
//     the shape determines which of its fields are used.
//   - A round of garbage collection has a number. A node takes part in one round at a time.
//   - ToRPC and FromRPC convert between Go errors and wire errors.
//
// # Invariants
//
//	BA1. Decoding returns what was encoded, also if a later version has appended values.
//	BA2. No input makes a decoder panic, allocate more than a constant factor of its size, or
//	    exceed a field's bound.
//	BA3. FromRPC(ToRPC(err)) matches, by errors.Is and errors.As, the errors of this package
//	    that err matched. A failure that is not an answer of the node is ErrUnreachable.
//	BA4. The bytes of a piece or a read are copied once on each side, into or out of the
//	    message.
//
// A Remote starts no goroutines except those of its connections.
package api
