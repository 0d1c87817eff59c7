// Package formation makes a fresh node part of exactly one cluster, and helps a restarted node to find
// the other members.
//
// Bigtable (§4) uses a Chubby cell that operators have set up. Here there are only nodes with the same
// flags, started in any order. They call each other by RPC (cluster.hello, cluster.promise, cluster.join;
// see docs/rpc.md) before gossip starts, since gossip needs the cluster's id.
//
// # Rules
//
// Without addresses to join, a node founds a cluster of one at once. With addresses, it joins the first
// cluster that answers there, and founds none. With a number of nodes to expect, N, it joins a cluster if
// one answers, and otherwise forms one with other fresh nodes:
//
//   - By hello, fresh nodes exchange their identities and those of the fresh nodes that they know.
//   - When there are N of them, the live node with the lowest id starts an attempt. It requests the
//     promise of all others that it alone may found a cluster.
//   - A promise is durable before it is sent. A node that has promised founds no cluster and gives no
//     other promise until the founder reports that the attempt is over without a cluster. Attempts are
//     numbered and never resumed once given up, so that such a report holds however late it arrives.
//   - A node that learns of a lower id without a promise gives up its own attempt, durably.
//   - With the promises of N-1 others, among them those at most of the addresses to join, a node founds
//     the cluster. The others learn of it by hello, and join it.
//
// Any two sets of nodes that suffice share a node, and that node promises once. With fewer than 2N nodes
// this follows from their number, with more from the addresses, which are the same for all. A node whose
// promise was given to a founder that is gone for good waits, and logs what to do: a fresh node cannot
// know whether a cluster exists by now.
//
// A node that belongs to a cluster looks for members at the addresses to join and at those of remembered
// peers, and continues when one has answered or called. A voter, and a node that knows no address, continue
// at once. All keep looking for members that gossip does not know: after 0.5 s, 1 s, 2 s, and so on up to
// every 15 s. Gossip is informed at once of a member that calls from an address unknown to it.
//
// A member that cannot admit a node now, for example because the lock service has no leader, answers with
// "unavailable". The node asks again each round, without a limit of time, and logs why it waits. Only a refusal ends
// its start.
//
// A node of another cluster, or with another gossip key, is rejected by both sides. Each logs that once in
// 10 minutes. A node that only meets such nodes tries its other addresses for 10 s, then fails. So does a fresh
// node without a certificate that only meets nodes which require one.
//
// # Nouns
//
//   - A fresh node belongs to no cluster. Its logic is the machine: messages in, actions out, without
//     clock, network or disk. The explorer in the tests drives it.
//   - The Service executes the machine's actions, and informs other nodes of the cluster once there is one.
//   - A seed is an address to join; a name counts as each of its addresses.
//   - A round is a hello to all seeds, to some fresh nodes and to the founder that was promised: each
//     500 ms, more often at first.
//   - The file "peers" is JSON: format 1, the cluster, and up to 256 of its members.
//
// # Goroutines
//
//	goroutine    started by      ends with          owns, waits for
//	calls        rounds          their answer, 2 s  one call; one of a method to an address at a time
//	findMembers  Run, at its end Close              the search for members that gossip does not know
//
// Run itself runs on its caller's goroutine.
//
// # Invariants
//
//	F1. Of nodes with the same flags at most one ever founds a cluster.
//	F2. If all are live and connected, one founds a cluster, and all join it.
//	F3. What a node has promised or founded is durable before any other node learns of it.
//	F4. A node with addresses to join and without a number of nodes to expect founds no cluster.
//	F5. A message from a node of another cluster or, without certificates, of another key, changes nothing.
//	F6. A node that Config.Removed reports is in no hello and, after the next ForgetRemoved, not in the
//	    file.
//	F7. After a crash the file has the members of its last complete write, or of the one that the crash
//	    interrupted.
//	F8. A request to join that no member refuses never ends Run: it is repeated until one admits the node.
package formation
