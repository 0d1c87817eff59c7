// Package slowlog keeps the last requests of a node that took long, and samples of the others: which method, table and row, from which user,
// how long it waited and ran, how it ended, and its trace: what it looked at in the tablets and where it waited. The paper's §9 names
// "detailed traces of a sample of the important actions" as what helped its authors to find problems.
//
// A request is kept for one of three reasons: it took long, the node has sampled it, or its caller has. Each reason has a ring of its own, so that
// callers which sample all their requests displace no slow one. A request without a trace of its caller begins one.
//
// Only requests of users' methods are kept, not those of nodes to nodes, nor those that wait on purpose. internal/trace has the cost of the
// others. The package starts no goroutine.
//
// Failed and slow requests are also counted by method, table and user, by the minute: no flood of requests displaces others from the counts.
//
//	TRC1. At most TracesMax requests are kept for each reason, with keys of at most SlowRowBytesMax: 1.5 MiB a node, whatever users send. The counts have
//	    at most 256 kinds a minute, and 32 of a user.
package slowlog
