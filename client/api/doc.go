// Package api defines the data API on the wire: method names, parameters, results and error codes,
// and the Go errors for these codes. Clients and nodes share it. docs/rpc.md is the specification
// for clients in other languages; tests check that both agree.
//
// The paper (§3) defines an API but no protocol. Stele uses MessagePack-RPC with positional
// parameters. The last parameter of every method is an optional map of options, so that options can
// be added compatibly.
//
// # Nouns
//
//   - A request struct, such as MutateRequest, holds the parameters of a method. Its Append encodes
//     them for a client; its Decode decodes them for a node.
//   - Functions such as AppendTimestamp and DecodeTimestamp do the same for results.
//   - Results with json tags are printed by the commands with --json. Their lists are empty after
//     Decode, and not nil, so that JSON spells them [].
//   - ToRPC and FromRPC convert Go errors to wire errors and back, with the table of kinds in
//     codes.go.
//
// # The hot path
//
// Decode fills a struct that the caller reuses: slices keep their memory, repeated names keep their
// strings, and byte strings alias the message. A request that resembles the previous one therefore
// decodes without an allocation. Nothing in the struct is valid after the message has been released.
//
// # Invariants
//
//	AP1. Decode returns an equal value for what Append writes. It also accepts what
//	    any MessagePack library writes, which may be text in place of bytes.
//	AP2. No input makes Decode panic, recurse without bound, or allocate more than
//	    a constant factor of its size; counts are checked against table.Limits
//	    before memory is allocated for them.
//	AP3. FromRPC(ToRPC(err)) matches, by errors.Is and errors.As, those errors listed
//	    in docs/rpc.md that err matched.
//	AP4. An error that is Retryable was returned before anything was executed.
//
// The package starts no goroutines.
package api
