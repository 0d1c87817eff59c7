// Package errkind is how the errors of an API cross the wire and are the same on
// the other side. An API declares its kinds of errors in a Table; the Table turns a
// server's error into one of package rpc, and that into one which matches what the
// server's matched.
//
// # Nouns
//
//   - A Kind ties a code to the Go error that it stands for.
//   - A Form is how the fields of a typed error travel, as details.
//   - A Table is the kinds of one API.
//
// # Invariants
//
//	K1. FromRPC(ToRPC(err)) matches, by errors.Is, the target of the first kind that
//	    err matched, or what the Table says that its code means; and by errors.As,
//	    with the fields of its Form, the type of that.
//	K2. The text of an error is the same on both sides.
//
// All of it is for calls that failed: a call that succeeds spends nothing here. The
// package starts no goroutine.
package errkind
