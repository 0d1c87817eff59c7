// Package master is Bigtable's master (§5.1, §5.2): the one node of a cluster that
// sees to it that the others have what they need. It holds the master lock, decides
// who votes in the lock service, gives out the tablets, and has the commit logs of
// dead servers sorted.
//
// In the paper the master takes a lock in Chubby so that there is one, and Chubby's
// cell is somebody else's business. Here the lock service is part of the nodes, so
// the master also keeps its voters: Plan.
//
// # Voters
//
// Plan first chooses the set of voters from the nodes that are able to vote now, then takes the first safe step
// toward that set. A node that fails to join the group, or that does not catch up with its log, is left out of
// the choice until its next attempt. The pause before that doubles with each failure.
//
// # Tablets
//
// PlanTablets is what the paper's §5.2 says a master does, as a function of what the master knows:
// who lives (who holds the lock of a server file), what METADATA says, and what the servers say
// that they have. Tablets are given out level by level: the root tablet, METADATA's others, users'.
// METADATA's have servers of their own, one on each node, with commit logs of their own: so those are sorted
// first, and loaded before the logs of users' tablets are, which are sorted meanwhile. The
// assigner reads that state in an order in which it is safe to act on, and has the orders carried out.
// A server takes a tablet itself, by compare-and-set on its row, and carries out one order for a tablet at a
// time: who gives another meanwhile is refused. So a master whose time is over can do no harm. What a dead server
// had in its commit logs is sorted first, by those that live, in pieces; whoever loads a tablet reads its part.
// Logs are removed when no tablet needs them.
//
// # Wishes and merges
//
// People move tablets to nodes and merge neighbours: MoveTablet, MergeTablets. Such a wish is kept in memory, and
// ends with the mastership; who waits for it asks the next master, who may find it fulfilled. Neighbours on two
// servers are brought together first. A tablet that was moved stays where it is wanted for ten minutes, whatever the
// balance says, unless that server goes.
//
// Tablets are split by their servers, and merged by the master alone: SmallNeighbours finds two that have together
// less than a sixteenth of what a tablet is split at, and that have been small and idle for six hours, as this master has
// seen. One pair at a time, one a minute at most, and none while a server leaves or is silent. So a table that is cut
// for a load to come keeps its tablets for that long, and one that was emptied loses them by and by.
//
// # Goroutines
//
//	goroutine     started by   ends with              does
//	Run           the node     its ctx                holds the lock, keeps the voters
//	leader watch  reign        the reign              ends it when leadership changes
//	lock watch    work         the mastership         ends it when the lock is lost
//	hail          voterKeeper  its answer             tells one node who is master
//	assigner      work         the mastership         looks each Pause, or when an order has ended
//	order         the assigner itself, or the reign   one order; at most one for each tablet and server
//	help          an order     the order              has one server sort pieces; ends with that server, too
//
// # Invariants
//
//	A1. A tablet is given to another server only after the logs of the one that had it have been ended
//	    and sorted (I1, I4).
//	A2. A dead server's logs are removed only when all of METADATA was read after it was known to be
//	    dead and no row names it (I1, I6). A tablet that waits for a recovery must not split.
//	A3. A piece of a log is sorted again only if its sorter failed, or under another master.
//	A4. Nobody waits for a server that is known to be gone: what it was told to do is told to another.
package master
