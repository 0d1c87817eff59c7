// Package api is the lock service (Chubby's role, Bigtable §4) as callers see it:
// its words, its errors, the interface that its leader offers, and all of that on
// the wire. Servers (raftmeta) and clients (raftmeta/session) share it.
//
// The package starts no goroutine.
package api
