// Package api is the data API as it crosses the wire: the names of its methods,
// the form of their parameters and results, its error codes, and the Go errors
// that the codes stand for. Clients and nodes share it. docs/rpc.md is the same
// for writers of clients in other languages; a test holds the two together.
//
// The paper (§3) gives an API but no protocol. Ours is MessagePack-RPC with
// positional parameters; the last parameter of every method is an optional map of
// options, so that options can be added without breaking anyone.
//
// # Nouns
//
//   - A request struct, such as MutateRequest, is the parameters of a method. Its
//     Append writes them, as a client does; its Decode reads them, as a node does.
//   - Functions such as AppendTimestamp and DecodeTimestamp do the same for results.
//   - ToRPC and FromRPC turn Go errors into errors of the wire and back, by the
//     table of kinds in codes.go.
//
// # The hot path
//
// Decode fills a struct that is used again and again: slices keep their memory,
// names that come again keep their strings, and byte strings alias the message.
// So a request that resembles the last one decodes without an allocation, and
// nothing in the struct may be used after the message is gone.
//
// # Invariants
//
//	A1. What Append writes, Decode reads back as equal; so do clients of any
//	    MessagePack library, who may send text where bytes are meant.
//	A2. No input makes Decode panic, recurse without bound, or allocate more than
//	    a constant factor of its size; counts are checked against table.Limits
//	    before room is made for them.
//	A3. FromRPC(ToRPC(err)) matches, by errors.Is and errors.As, what err matched
//	    of the errors listed in docs/rpc.md.
//	A4. An error that says Retryable was given before anything was executed.
//
// The package starts no goroutine.
package api
