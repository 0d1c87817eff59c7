// Package node is one running Stele node: it builds the parts, wires them
// together, owns the ports, and starts, drains and stops them. It has no logic
// of its own beyond that and the translation of remote calls to the parts:
//
//	rpc ──▶ data.go, scan.go, admin.go ──▶ tablet.Server ──▶ blobfs.Store
//	                       └─▶ catalog.go ──▶ raftmeta.Group
//
// # What a node keeps
//
//	<each data folder>/identity   whose the folder is
//	<one data folder>/raft        the Raft log and snapshots: schema, tablets' metadata
//	<each data folder>/blobs      extents of SSTables and commit logs
//
// The identity is JSON: the ids of cluster, node and folder, the id of the folder
// that holds raft/, and all folders of the node with the paths that they had at the
// last start. It is looked at before anything is opened. The order of the folders
// does not matter; a folder of another node or cluster, one that is missing, and
// data without an identity or without the Raft log are refused, since blobs that no
// metadata names are deleted. An empty folder may be added. "founding" is true
// until the cluster's id is in the namespace: until then a start that was broken
// off is taken up again.
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
