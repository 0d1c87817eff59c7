// Package api is what the store of one node offers to the others: the words, the
// errors, the interface, and all of that on the wire. Package blobfs implements
// the interface on one side and calls it on the other.
//
// GFS (§3.1, §3.2 of its paper) has the same flow of data: it is pushed along a chain
// of replicas, each of which forwards what it receives.
//
// # Nouns
//
//   - A Peer is what a node offers. Serve puts one behind an rpc.Server, a [Remote] is the
//     one at the other end of connections.
//   - A stream is one extent being written. It has one sender, the writer or the node before; what
//     it sends is done in order, and any number of calls may be under way, up to the window.
//   - A shape says which parameters a method takes. One request struct serves all methods of
//     extents; its shape tells which of its fields count.
//   - A round of the sweep for garbage has a number. A node takes part in one at a time.
//   - ToRPC and FromRPC turn Go errors into errors of the wire and back.
//
// # Invariants
//
//	N1. What is written is read back as equal, also by a later version that appends.
//	N2. No input makes a decoder panic, or allocate more than a constant factor of its
//	    size, nor more than its field's bound.
//	N3. FromRPC(ToRPC(err)) matches, by errors.Is and errors.As, what err matched of
//	    this package's errors. What is no answer of the node's is ErrUnreachable.
//	N4. The bytes of a piece or a read are copied once on each side, into or out of
//	    the message.
//
// A Remote starts no goroutine of its own but those of its connections.
package api
