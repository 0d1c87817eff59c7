// Package identity keeps what each data folder of a node says of itself: whose it
// is, and which folders belong with it. It is looked at before anything is opened.
//
// The paper's tablet servers keep nothing on their own disks; here a node is what
// its folders hold, and a wrong list of folders must never pass for a new node: the
// blobs of the old one would look like leftovers and be deleted.
//
// # The file
//
// <data folder>/identity is JSON, version 2. All folders of a node say the same but
// for "folder":
//
//	format     2. Version 1 had neither fresh nodes nor nodes that are no voters
//	revision   grows with each write; the highest of a node's folders holds
//	cluster    the cluster's id; empty for a fresh node
//	node       the node's id
//	folder     this folder's id
//	starts     number of the node's starts
//	raft       id of the folder that holds raft/; empty for a node that is no voter
//	raft_new   the log is being made: it may be missing
//	raft_aside id of the folder whose raft/ is to become raft.aside/
//	raft_epoch of the Raft group that the node knows
//	founding   until the cluster's id is in its namespace
//	formation  a fresh node's promise and attempt, see package formation
//	folders    all folders: id, and path at the last start
//
// # What a node is
//
//	fresh ──Found──▶ founding ──Founded──▶ voter ◀──CompleteVoter── new voter
//	  └─────Join───▶ member ◀──EndVoter─────┘                           ▲
//	                    └──────────────────BeginVoter───────────────────┘
//
// The order of the folders does not matter, and an empty folder may be added. A
// folder of another node or cluster, one that is missing, and data without an
// identity or without the Raft log of a voter are refused. Before a node serves it
// has nothing to lose, so that a first start that was broken off is taken up again.
//
// # Invariants
//
//	D1. Inspect changes nothing.
//	D2. A change is durable in all folders when the call returns. A crash in the
//	    midst leaves the old or the new identity, as a whole.
//	D3. A node whose log another voter counts on does not start without that log.
//	D4. A node belongs to one cluster for as long as its folders live.
//
// The package starts no goroutine.
package identity
