// Package wire encodes and decodes MessagePack without reflection, without an allocation per value
// and without trusting its input.
//
// The paper's servers use an RPC system of their own. Stele uses MessagePack
// (https://github.com/msgpack/msgpack/blob/master/spec.md), and this codec serves both network
// messages and small records on disk. General-purpose libraries suit neither: they use reflection,
// copy values and trust the sizes in a message. A 5-byte array header can make one allocate
// gigabytes, and nested arrays can overflow its stack.
//
// # Nouns
//
//   - An Encoder appends values to a growable buffer. It cannot fail, except in Any.
//   - A Walker finds the end of a value in bytes that may still be arriving. It keeps its position,
//     so that a large message that arrives in many pieces is walked once. Check walks a value with
//     a single call.
//   - A Decoder reads values from a complete input. The byte strings that it returns alias the
//     input. Its first error is sticky: after it every read returns a zero value, so a codec checks
//     Err once, at its end.
//
// # Hostile input
//
// A byte string aliases the input and thus cannot be larger than it. A count is at most the number
// of remaining bytes, since no value is shorter than one byte. A caller that allocates a slice of
// structs from a count still multiplies the input's size by the size of the struct. Such callers
// bound the count with ArrayMax or grow the slice as elements are read.
//
// # Invariants
//
//	W1. What Check accepts, a Decoder walks from end to end without an error.
//	W2. No input makes Check, a Walker or a Decoder panic, recurse, or allocate
//	    more than the input's own size.
//	W3. Any MessagePack reader decodes what an Encoder writes to the same value,
//	    and the other way round. Integers take their shortest form.
//
// The package starts no goroutines.
package wire
