// Package identity manages the identity file in each data folder of a node: which node and cluster the
// folder belongs to, and the node's other folders. It is checked before anything else is opened.
//
// The paper's tablet servers keep no data on their own disks. Here a node is what its folders hold, and
// a wrong list of folders must never pass for a new node: the blobs of the old node would look like
// orphans and be deleted.
//
// # The file
//
// <data folder>/identity is JSON, version 3. It is the same in all folders of a node but for "folder"
// and "crc":
//
//	format     3. Version 1 had neither fresh nodes nor nodes that are no voters; versions 1 and 2 had no crc
//	revision   grows with each write; the highest among a node's folders is valid
//	cluster    the cluster's id; empty for a fresh node
//	node       the node's id
//	folder     this folder's id
//	starts     number of the node's starts
//	raft       id of the folder that holds raft/; empty for a node that is no voter
//	raft_new   the log is being created: it may be missing
//	raft_aside id of the folder whose raft/ is to be renamed to raft.aside.TIME/
//	raft_epoch of the Raft group that the node knows
//	founding   set until the cluster's id is in its namespace
//	formation  a fresh node's promise and attempt, see package formation
//	folders    all folders: id, and path at the last start
//	crc        CRC-32C of all bytes before the comma that precedes it, as eight hexadecimal digits
//
// The checksum comes last, and what follows the bytes that it covers is always the same 24 bytes but for
// the digits. A file with one wrong bit is a CorruptError, never another identity. A file of version 1 or
// 2 has no checksum, and gets one at the next write, which each start does.
//
// For example:
//
//	{
//	  "format": 3,
//	  "revision": 7,
//	  "cluster": "c1",
//	  "node": "n1",
//	  "folder": "f1",
//	  "starts": 4,
//	  "raft": "",
//	  "raft_epoch": 2,
//	  "folders": [
//	    {
//	      "id": "f1",
//	      "path": "/data"
//	    }
//	  ],
//	  "crc": "7202b84e"
//	}
//
// # Node states
//
//	fresh ──Found──▶ founding ──Founded──▶ voter ◀──CompleteVoter── new voter
//	  └─────Join───▶ member ◀──EndVoter─────┘                           ▲
//	                    └──────────────────BeginVoter───────────────────┘
//
// Folders may be given in any order, and an empty folder may be added. These are rejected: a folder of
// another node or cluster, a missing folder, data without an identity file, and a voter without its Raft
// log. A node that has never served has nothing to lose, so an interrupted first start is resumed.
//
// # Invariants
//
//	ID1. Inspect changes nothing.
//	ID2. A change is durable in all folders when the call returns. A crash during the call leaves the old
//	    or the new identity, as a whole.
//	ID3. A node whose log another voter counts on does not start without that log.
//	ID4. A node belongs to one cluster for as long as its folders live.
//	ID5. No single wrong bit in a file of version 3 changes an identity or passes for another error.
//
// Self gives the parts of a running node concurrent access to its folders. The package starts no goroutine.
package identity
