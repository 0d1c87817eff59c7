// Package master implements Bigtable's master (§5.1, §5.2). One node of a cluster holds the master
// lock. It decides which nodes vote in the lock service, assigns tablets to tablet servers, and has
// the commit logs of dead servers sorted.
//
// In the paper Chubby is a separate service that operators run. Here the nodes themselves run the
// lock service, so the master also manages its voters (Plan).
//
// # Voters
//
// Plan chooses the set of voters from the nodes that are able to vote now, then returns the first safe
// step toward that set. A node that fails to join the group, or that does not catch up with its log, is
// excluded until its next attempt. The pause before that attempt doubles with each failure.
//
// # Tablets
//
// PlanTablets is the tablet assignment of the paper's §5.2, as a pure function of the master's state:
// which servers are alive (hold the lock of their server file), the content of METADATA, and which tablets
// each server reports. The assigner reads that state in an order that makes it safe to act on, and
// executes the resulting orders.
//
// Tablets are assigned level by level: the root tablet, the other METADATA tablets, then user tablets.
// Each node runs a separate server for METADATA tablets, with its own commit log. Those logs are
// therefore sorted first, and METADATA tablets are loaded while the logs of user tablets are sorted.
//
// A server acquires a tablet by a compare-and-set on the tablet's row. It executes one order for a
// tablet at a time and rejects a second one. A master whose lock has expired can therefore do no harm.
//
// The commit logs of a dead server are sorted in pieces by live servers. A server that loads a tablet
// reads the tablet's part of the result. Logs are removed when no tablet needs them.
//
// # Moves and merges
//
// Operators move tablets to nodes and merge neighbours: MoveTablet, MergeTablets. Such a request is held
// in memory and ends with the mastership. A waiting client repeats it at the next master, which may find
// it already done. Neighbours on two servers are first brought to one server. A moved tablet is pinned to
// its node for ten minutes, regardless of the balance, unless that server stops or drains.
//
// Servers split their own tablets; only the master merges. SmallNeighbours finds two neighbours that
// together hold less than a sixteenth of the split size and that this master has seen small and idle for
// six hours. It merges one pair at a time, at most one a minute, and none while a server is draining or
// unresponsive. A table that was pre-split for a coming load keeps its tablets for that long. A table
// that was emptied loses them gradually.
//
// # Goroutines
//
//	goroutine     started by    ends with              does
//	Run           the node      its ctx                holds the lock, manages the voters
//	leader watch  serveLeader   leadership             cancels the mastership when leadership changes
//	lock watch    work          the mastership         cancels it when the lock is lost
//	announce      voterManager  its answer             announces this master to one node
//	assigner      work          the mastership         reconciles each Pause, or when an order has ended
//	order         the assigner  itself, or mastership  executes one order; at most one for each tablet and server
//	help          an order      the order              has one server sort pieces; ends also with that server
//
// # Invariants
//
//	A1. A tablet is assigned to another server only after the logs of its previous server have been
//	    closed and sorted (I1, I4).
//	A2. A dead server's logs are removed only when all of METADATA was read after the server was known
//	    to be dead and no row names it (I1, I6). A tablet that waits for a recovery must not split.
//	A3. A piece of a log is sorted again only if its sorter failed, or under another master.
//	A4. No order waits for a server that is known to be gone: its work is reassigned.
package master
