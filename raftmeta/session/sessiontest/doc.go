// Package sessiontest starts a lock service of one voter in the process of a test.
//
// The goroutines are those of its raftmeta.Group and session.Client, which end with the test.
package sessiontest
