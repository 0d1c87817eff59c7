// Package formation makes a fresh node part of exactly one cluster, and helps one
// that was started again to find the others.
//
// Bigtable (§4) finds a Chubby cell that operators have set up. Here there is
// nothing but nodes with the same flags, started in any order. They ask each other
// by RPC (cluster.hello, cluster.promise, cluster.join; see docs/rpc.md) before
// gossip starts, since gossip needs to know the cluster's id.
//
// # Rules
//
// Without addresses to join a node founds a cluster of one at once. With addresses
// it joins the first cluster that answers there, and founds none. With a number of
// nodes to expect, N, it joins a cluster if one answers, and else forms one with
// other fresh nodes:
//
//   - Fresh nodes tell each other by hello who they are, and whom else they know.
//   - Of those that are heard, the one with the lowest id begins an attempt, when
//     there are N of them, and asks all others for their promise that it alone may
//     found a cluster.
//   - A promise is durable before it is told. A node that has promised founds
//     nothing, and promises nobody else, until the founder says that the attempt is
//     over without a cluster. Attempts are numbered, and never taken up again once
//     given up, so that this stays true however late it is heard.
//   - A node that hears of a lower id that is free gives its own attempt up, durably.
//   - With the promises of N-1 others, among them those at most of the addresses to
//     join, it founds. The others hear of the cluster by hello, and join it.
//
// Two sets of nodes that would do share one, who promises once: with less than 2N
// nodes because of their number, with more because all were given the same
// addresses. A node whose promise is with one that is gone for good waits, and says
// in the log what to do: a fresh node cannot know whether there is a cluster now.
//
// A node that belongs to a cluster looks for others at the addresses to join and at
// those of remembered peers, and goes on when one has answered, or asked. A voter
// goes on at once, and so does a node that knows no address. All go on looking
// for those that gossip does not know: after 0.5 s, 1 s, 2 s, and so on to every 15 s.
// Gossip is told at once of a member that speaks from an address that is new to it.
//
// A node of another cluster, or with another gossip key, is refused by both sides;
// each says so in its log once in 10 minutes. It looks on at its other addresses for
// 10 s, and then gives up with an error.
//
// # Nouns
//
//   - A fresh node belongs to no cluster. It is the machine: messages in, actions
//     out, without clock, network or disk; the explorer in the tests drives it.
//   - The Former carries the machine's actions out, and tells of the cluster once
//     there is one.
//   - A seed is an address to join, a name's addresses one by one.
//   - A round is a hello to all seeds, to some fresh nodes and to the founder that
//     was promised: each 500 ms, sooner at first.
//   - The file "peers" is JSON: format 1, the cluster, and up to 256 of its members.
//
// # Goroutines
//
//	goroutine     started by      ends with          owns, waits for
//	questions     rounds          their answer, 2 s  one call; one of a kind to an address at a time
//	keepGreeting  Run, at its end Close              the search for members that gossip does not know
//
// Run itself runs on its caller's.
//
// # Invariants
//
//	F1. Of nodes with the same flags at most one ever founds a cluster.
//	F2. If all live and talk, one does, and all are in it.
//	F3. What a node has promised or founded is durable before anybody hears of it.
//	F4. A node that was told where to find a cluster, and not how many nodes to
//	    expect, founds none.
//	F5. What comes from a node of another cluster, or without certificates of another key, changes nothing.
//	F6. A node that Config.Removed reports is in no hello and, after the next ForgetRemoved, not
//	    in the file.
package formation
