// Package raftstreams carries the connections between voters of the lock service over the node's port, and accepts only those that are
// for this node and its Raft group (N4 of package node). It is not in the paper, whose Chubby (§4) is a service of its own.
//
// A connection begins with FirstByte. It is followed by a greeting, a MessagePack array [version, cluster, Raft epoch, from, to] after
// its length in two bytes, big-endian:
//
//	'R' 0 n 95 01 <cluster> <epoch> <from> <to>
//
// The answer is a length in two bytes and that many bytes of text: none if the connection is accepted, otherwise the reason. The
// remainder of the connection is hashicorp/raft's.
//
// Goroutines:
//
//	goroutine   started by          ends with                 does
//	welcomeAll  the first Accept    Streams.Close             accepts connections that are to be greeted
//	welcome     welcomeAll          its greeting, or 2 s      greets one connection; at most greetingsMax
package raftstreams
