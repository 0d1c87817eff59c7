// Package node is one running Stele node: it builds the parts, wires them
// together, owns the ports, and starts, drains and stops them. It has no logic
// of its own beyond that and the translation of remote calls to the parts:
//
//	rpc ──▶ data.go, scan.go, admin.go ──▶ tablet.Server ──▶ blobfs.Store
//	                       └─▶ catalog.go ──▶ raftmeta.Group
//
// # What a node keeps
//
//	<first data folder>/node      its name in the Raft group, one line
//	<first data folder>/raft      the Raft log and snapshots: schema, tablets' metadata
//	<each data folder>/blobs      extents of SSTables and commit logs
//
// In the namespace of raftmeta:
//
//	/cluster         the cluster's id and name
//	/ids             the next id of a table or tablet
//	/tables/<name>   a table's schema; there is a table if and only if this file is
//	/tablets/<id>    a tablet's metadata row, until METADATA tablets hold those
//
// # Start
//
// The namespace first, then the block store, then the tablets (which recover
// from their files and the commit log), then the ports: a node that answers
// serves. Blobs that no metadata names are removed before tablets write new ones;
// a crash between writing a file and naming it leaves such.
//
// # Goroutines
//
//	rpc serve     started by Start, ends with Close; accepts connections
//	http serve    the same for HTTP
//	cursor sweep  started by Start, ends with Close; drops idle cursors
//
// # Invariants
//
//	N1. The namespace names a file only after the file is durable, and a file is
//	    deleted only after no name is left (I1, I6).
//	N2. A table is served by one schema at a time, and the namespace has it before
//	    any write is made by it.
package node
