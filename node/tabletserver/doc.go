// Package tabletserver is the node as a tablet server (paper §5): what the master's commands load and unload, split and merge, on top of package
// tablet, which serves one server's tablets.
//
// The holder of the lock of /servers/<node> is a tablet server, named by the node and the lock's generation. In fact it is two (open.go): the
// one for METADATA's tablets has its own commit logs, from when it gets, or may get, its first tablet (expect.go). So METADATA is available
// soon after a node's death, and users' writes do not delay changes of it. Both start without tablets.
//
// A Service has the current Server. To load a tablet (server.go), a server makes the tablet's row of METADATA its own by a compare-and-set,
// reads what the tablet consists of, and serves it. From then on it has the only copy of the row (rows.go), and writes it with each change
// of the tablet's files or bounds. When the lock is lost, the server is closed. Under the next lock there is another one, without tablets.
//
// # Goroutines
//
//	goroutine        started by   ends with       does
//	lock watch       Open         its end         cancels it when the lock is lost
//	renewSchemas     Open         lock, Ctx       rereads changed schemas, unloads dropped tables
//	expectMetadata   Open         lock, Ctx       begins METADATA's commit log when a node with some of it is gone
//	split            TrySplit     its end         one at a time of users' tablets, and one of METADATA's
//
// # Invariants
//
//	TS1. A server checks before each change of METADATA, and package tablet before each operation and its answer, that it holds its lock
//	    (I4).
//	TS2. Load and unload of a tablet take turns (Busy), and a tablet that is being split off is neither loaded nor unloaded.
//	TS3. A tablet is loaded only with all sorted logs of the dead servers in its row (I1).
//	TS4. A tablet begins where the one before it ends, and that one cannot be removed by a server that died while merging them (I5).
package tabletserver
