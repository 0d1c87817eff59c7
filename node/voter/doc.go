// Package voter is a node's member of the Raft group of the lock service (package raftmeta), if it has one. The paper's Chubby cell has
// five replicas of its own (§4); here up to five nodes vote. The master chooses them: its command StartVoting makes this node create an
// empty Raft log and wait to be added. The command has an invitation, a committed entry of the group: until the log has it, the node does not
// vote (raftmeta.Invitation). When the group removes the node, the log is set aside.
//
// The Raft epoch distinguishes the Raft groups of one cluster: "stele raft recover" makes a new group from a voter's log, with the next
// epoch. A voter gives up its log for a group with a later epoch only if its own group has no leader, and only if the later group's leader
// confirms it by /cluster. Gossip, or a message, may start the check but proves nothing. The recovered group serves no client before its
// node has verified, as far as it can, that the old group has no leader (SettleEpoch): its epoch is known by gossip first, and it looks for
// that leader for 5 s. A voter that starts while another node has a later epoch opens its log only if that epoch is not confirmed in 20 s
// (checkReturn). Voters of the old group that start before they can reach the recovered node are not prevented from electing a leader:
// the output of "stele raft recover" names them, and states that they must not be started with their old data.
//
// Opening and closing of the group are serialized, with changes of the node's identity that belong to them (Lock). Group does not wait
// for them.
//
// Goroutines: Accept, by its caller, ends with Config.Claims. RemoveOldLogs, by its caller, ends with Config.Ctx. A removal by the group ends the vote on a goroutine of the group.
package voter
