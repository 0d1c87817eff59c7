// Rollout is the load that a cluster is under while it is rolled out, upgraded and changed by the playbooks of ansible/:
// the part of run.sh that speaks to it as users' programs do. See run.sh for the hosts and what is done with them.
//
//	make test-ansible        all of it
//
// # Nouns
//
//   - A worker writes rows of its own, one after the other, and reads some that it has written before. It remembers which
//     writes were acknowledged.
//   - An operation is one write or one read. One that ends with an error, not within half a minute, or with another value
//     than was written, has failed.
//   - A phase is the time between two questions of run.sh, which come as lines on standard input; each is answered by one line.
//     "phase" requests the counts of the phase, "verify" reads everything again.
package main
