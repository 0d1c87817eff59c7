// Package wire reads and writes MessagePack without reflection, without an
// allocation per value, and without trusting its input.
//
// The paper's servers speak an RPC system of their own; ours is MessagePack
// (https://github.com/msgpack/msgpack/blob/master/spec.md), and the same codec
// serves messages on the network and small records on disk. A general-purpose
// library is the wrong tool on both paths: it reflects, it copies, and it
// believes the sizes that a message claims (a 5-byte array header can make it
// allocate gigabytes, nested arrays can overflow its stack).
//
// # Nouns
//
//   - An Encoder appends values to a growable buffer. It cannot fail.
//   - A Walker finds where a value ends in bytes that may still be arriving; it
//     keeps its place, so that a large message that comes in many pieces is
//     walked once. Check is a Walker used once.
//   - A Decoder reads values from bytes that are all there. Byte strings that it
//     hands out alias its input. Its first error sticks: after it every read
//     yields a zero value, so that a codec checks Err once, at its end.
//
// # Reading hostile bytes
//
// A byte string aliases the input and thus cannot be larger than it. A count
// cannot be larger than the number of bytes that remain, since no value is
// shorter than one byte. Still, a caller that makes a slice of structs from a
// count multiplies the input's size by that of the struct: such callers bound
// the count with ArrayMax, or grow the slice as elements arrive.
//
// # Invariants
//
//	W1. What Check accepts, a Decoder walks from end to end without an error.
//	W2. No input makes Check, a Walker or a Decoder panic, recurse, or allocate
//	    more than the input's own size.
//	W3. What an Encoder writes, any MessagePack reader reads back as the same
//	    value, and the other way round. Integers take their shortest form.
//
// The package starts no goroutine.
package wire
