// Package node is one running Stele node: it builds the parts, wires them
// together, owns the ports, and starts, drains and stops them. It translates
// remote calls to the parts, and decides who may make them (see Rights), how
// often (Quotas), and who belongs to the cluster (Certificates).
//
//	rpc ──▶ data.go, scan.go, admin.go ──▶ tablet.Server ──▶ blobfs.Store
//	    │                  └─▶ catalog.go ──▶ session ──▶ the lock service's leader
//	    ├─▶ blobmethods.go, uploads.go        files that people store ──▶ blobfs.Store
//	    ├─▶ formation, gossip                 who belongs to the cluster, and where
//	    ├─▶ streams.go ──▶ raftmeta.Group     if the node votes
//	    └─▶ command.go                        what the master tells nodes to do
//
// # What a node keeps
//
//	<each data folder>/identity   whose the folder is: package node/identity
//	<each data folder>/lock       locked by the process that is the node
//	<first data folder>/peers     where the other nodes were last
//	<first data folder>/removed   which nodes were removed, if it has certificates: removedFile
//	<one data folder>/raft        the Raft log and snapshots, if the node votes
//	<first data folder>/security  keys and certificate, if it has any: package security/folder
//	<each data folder>/blobs      extents of SSTables and commit logs
//
// In the namespace of the lock service:
//
//	/cluster               the cluster's id and name
//	/master                its lock makes a node the master
//	/servers/<node>        its lock makes a process the node; says where it runs, as JSON
//	/nodes/<node>          a node's name, zone, address, and whether it drains, as JSON
//	/removed/<node>        a node that the operator has taken out for good
//	/ids                   the next id of a table or tablet
//	/tables/<name>         a table's schema; there is a table if and only if this file is
//	/root                  the root tablet: package client/metadata
//	/logs/<server>/<log>   which nodes have what of a commit log: package blobfs
//	/recovery/<server>     how far the sorting of a dead server's logs has come: package master
//	/blobs/<id>            a file that somebody stored
//	/acl/...               who may what: package security/acl; made with the cluster
//	/acl/tokens/<id>       a token that makes its bearer a principal: package security/token
//	/security/join/<id>    a token by which hosts join: package security/token
//	/sweep                 the round of the sweep of the block store: package blobfs
//	/quota/...             quotas, and whose a table is: package node/quota
//	/locks/...             files and locks of users
//
// # Start
//
// The port opens first, but data is served last: methods about data answer
// "unavailable" with what the start waits for. In between: formation (a fresh node founds
// or joins a cluster, others say hello), gossip, the node's part in the Raft group if it
// has one, a session with the group's leader, wherever that is, the lock of its server file, then
// the block store and the tablet server. A crash between writing a file and naming it leaves a blob that is
// garbage.
//
// # The tablet server
//
// Who has the lock of /servers/<node> is a tablet server, named by the node and the lock's generation
// (tabletserver.go): two of them, in fact (bothservers.go). The one for METADATA's tablets has commit logs
// of its own, from when it is, or may be, given the first: so METADATA is there soon after a node has died,
// and users' writes do not hold up its changes. Both begin with no tablets; the master's commands have it load some (clustertablets.go,
// tabletcommand.go). Taking a tablet is a compare-and-set on its row of METADATA (metarows.go), which a node
// reaches as any client does. When the lock is lost, the server is closed, and under the next lock there
// is another one, with nothing. It asks before each operation, and again before it answers, whether the lock is
// surely held.
//
// # The lock service
//
// Every node is a client of the lock service, by one session; up to five are also
// servers of it. Which, the master decides (package master) and commands: a node that
// is to vote makes an empty Raft log, waits to be added, and is given its vote when it has
// caught up. The session finds the leader by itself; when it is this node, it asks
// without the network. A session that expires is followed by another one.
//
// # Certificates
//
// A node with a folder of keys (security.go) speaks TLS alone. The one that Initialise was run on founds
// the cluster, alone. A host without keys asks, by a token (enrol.go), any node, which passes that on to the
// master's (joinhost.go): there the token is used up, durably, before anything is signed. The authority's key is
// with the voters, of which the master is one (authority.go): a node gets it before it gets a vote, and
// deletes it, once it has none, when the master has it. Members have voters renew their certificates. A stranger,
// who has shown no certificate, may ask little (securityguard.go), for a minute, unless he shows a token (auth.go).
//
// # Rights
//
// Each method has a guard (guard.go), without which it cannot be registered: it is for nodes, for all principals, for those
// with a right on the cluster or on a table, or looks itself at what its caller may. What somebody may is known as of
// an epoch (rightscache.go), by the session with the lock service, and looked at again before an answer: a node whose session
// is not sure knows nothing, and answers unavailable. For each request about data the tablet server asks an access (access.go)
// with the schema by which it goes about it. Changes of rights (users.go, grants.go, rightschange.go) are made by the
// master's node, to which others pass requests on in the principal's name (behalf.go); both look at his rights. Such a change,
// and each other one that waits for its turn (change.go), is made for somebody (asked.go), whose right to it is looked at
// again when it is its turn, and is written only in the reign of the master that looked (reign.go): so nothing of what a
// user has asked for is made after a revocation that has returned. What administrators do, and who was refused, is in the
// audit log (auditing.go).
//
// # Quotas
//
// Quotas (package quota) are kept in the lock service, and read by each node when their epoch changes (quotas.go): the
// node that makes a change before it answers, the others soon after. A request is let in by the meters of its table and its principal (metered.go) where
// it comes to the tablet server, without asking anybody; where there is no quota it looks at one pointer. Each node reports to the
// master what it was asked for and gets its shares, and which of its tables may not grow (quotashare.go).
//
// # Goroutines
//
//	goroutine        started by       ends with           does
//	rpc serve        Start            rpc's Shutdown      accepts connections
//	http serve       Start            Close               the same for HTTP
//	cursor sweep     Start            Close               drops idle cursors
//	upload sweep     Start            Close               ends idle uploads of blobs
//	accept           Start            rpc's Shutdown      hands Raft's connections to the group
//	followMembers    joinCluster      Close               remembers where nodes are
//	tellLoad         joinCluster      Close               tells the others how full the disks are
//	blobFleet        openStore        Close               tells the block store who the nodes are
//	renewSchemas     the tablet server with its lock      reads schemas that have changed, lets dropped tables go
//	expectMetadata   the same                             begins METADATA's commit log when a node that has some is gone
//	sweepStore       Start            Close               sweeps the block store while this node is master
//	keepSession      Start            Close               opens a session after one that expired
//	keepCertificate  Start            Close               renews the node's certificate, if it has one
//	followQuotas     Start            Close               reads the quotas, and reports what was asked for
//	sweepLeftovers   Start            Close               takes away what is left over of tables, once a reign
//	followRollover   Start            Close               does what a replacement of the authority asks of the node
//	followGossipKey  Start            Close               does what a rotation of the gossip key asks of the node
//	await removal    followGossipKey  a change, Close     wakes it when a node is removed
//	keepAuthority    Start            Close               has the authority's key if the node votes, and else not
//	followRemoved    Start            Close               rejects and forgets nodes that were removed
//	watchRemoval     Start            Close, removal      ends the node when it is removed
//	watchDisk        Start            Close               one for each data folder: ends the node when its disk
//	                                                      does not answer
//	master           startMaster      Close               holds /master where the leader is
//	severRefused     Start            Close               ends connections of principals who are not let in
//	sever            followRemoved    some seconds later  ends connections of a node that was removed
//	joinGossip       joinCluster      an answer, Close    asks members to take this node in
//	lock watch       openTabletServer its end             gives it up when the lock is lost
//	reign watch      a change; sweep  its end, the reign  ends what only the master may do
//	split            a tablet's wish  its end             one at a time of users' tablets, and one of METADATA's
//	press            create_table     all is served       tells the master of a new table
//	dropRuns         a recovery done  a minute at most    removes what a recovery has left
//	askLockRight     a keep_alive     its answer          one at a time for a connection
//	mutate           mutate           its answer          a write that waits; as many as requests in flight
//	welcome          streams          its greeting        greets one connection of Raft
//	signs of life    Alive            their part answers  one for each part, at most one at once
//	change           a change         itself, one at once a change of the catalog whose caller may leave
//
// # Invariants
//
//	N1. The namespace names a file only after the file is durable, and a file is
//	    deleted only after no name is left (I1, I6).
//	N2. A table is served by one schema at a time, and the namespace has it before
//	    any write is made by it.
//	N3. A command of a master is refused once one with a higher epoch was seen (I9).
//	N4. A Raft connection is taken only from a node of the same cluster and raft epoch
//	    that means this node.
//	N5. A join token is used as often as it may be and not once more, and gives no host the
//	    certificate of a node that there is, or was, unless it was made for that one.
//	N6. A host gives its token to no other than a node of the cluster that has made it.
//	N7. The authority's key is on no node that does not vote for longer than the master needs to
//	    say that it has it, and never on none.
//	N8. A node that was removed has no connection some seconds later, and gets no certificate.
//	N9. A gossip key that is made after a removal is not given to the node that was removed.
package node
