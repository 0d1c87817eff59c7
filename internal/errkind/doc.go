// Package errkind maps the Go errors of an API to error codes on the wire and back, so that
// errors.Is and errors.As give the same results on both sides. An API declares its kinds of errors
// in a Table. On the server, the Table converts errors to errors of package rpc; on the client, it
// converts them back.
//
// # Nouns
//
//   - A Kind maps a code to a Go error.
//   - A Form encodes the fields of a typed error as details.
//   - A Table holds the kinds of one API.
//
// # Invariants
//
//	EK1. FromRPC(ToRPC(err)) matches, by errors.Is, the target of the first kind that
//	    err matched, or the Table's meaning of its code. By errors.As it matches the
//	    type of the kind's Form, with the fields of that.
//	EK2. The text of an error is the same on both sides.
//
// A call that succeeds does not use this package. The package starts no goroutines.
package errkind
