// Package lockserver is the lock service as a voter offers it to other nodes, to users and to the clients of an open cluster. The lock
// service itself is the Raft group of package raftmeta, in the role of Chubby (paper §4); a node uses the group's service directly.
//
// Each caller gets the group's service with the restrictions that apply to it:
//
//	caller                          may change                         counted
//	the master, a node of an open   everything                         no
//	another node                    everything but rights and tokens   no
//	a client of an open cluster     everything but Config.SystemPaths  all clients together
//	a user with the right to write  paths below namespace.LocksDir     for the user: see ShareOf
//
// Rights are checked when a call is admitted (Guard), and again before a lock that was waited for is granted, and before a session is
// extended: locks and sessions of a user without the right any more are released. A keep_alive must not wait, so its rights are looked up
// beside it, once at a time for each connection.
//
// Goroutines, all in Config.Background:
//
//	goroutine    started by                                  ends with      does
//	lookUpRight  a keep_alive whose rights are not known     its answer     looks up the right; one for each connection
//	still        a keep_alive that waited as rights changed  its answer     checks the right again
package lockserver
