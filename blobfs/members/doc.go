// Package members is the other nodes of a cluster as one node's block store sees them: the
// membership, a failure detector, and calls to nodes. The paper's GFS (§4) keeps this knowledge in
// its master; here each node has its own.
//
// # Nouns
//
//   - The [Membership] lists the nodes. It is a hint: a member reported as alive may be dead, and the
//     other way round.
//   - [Peers] are the members as this node reaches them. A node that did not answer is suspected for
//     ten seconds, or until it answers. A suspected node gets no new replicas and is read from last.
//
// # Goroutines
//
//	name   started by          stopped by         owns
//	probe  Peers.Suspect       an answer, the     probing one suspected node; one per node
//	                           group's Stop
//	each   EachInBackground    ReplyTimeout       calls to nodes whose errors are ignored
//
// # Invariants
//
//	ME1. No decision that can lose data depends on the membership or on suspicion alone.
//	ME2. A suspected node is probed until it answers, or until the suspicion ends and the membership
//	    reports it as dead.
package members
