// Package node is one running Stele node: it creates the parts, connects them, owns the ports, and starts, drains and
// stops them. It translates remote calls to the parts, and enforces rights (see Rights), quotas (Quotas) and membership of
// the cluster (Certificates).
//
//	rpc ──▶ authz, dispatch
//	    ├─▶ dataapi, tabletadmin ──▶ tablet.Server ──▶ blobfs.Store
//	    ├─▶ tables        ──▶ namespace ──▶ session  ──▶ the lock service's leader
//	    ├─▶ blobs, roots                      stored files ──▶ blobfs.Store
//	    ├─▶ formation, members, gossip        members of the cluster, and their addresses
//	    ├─▶ raftstreams ──▶ raftmeta.Group    if the node votes
//	    └─▶ command                           commands of the master
//
// # Files
//
//	<each data directory>/identity   the node and cluster it belongs to: package node/identity
//	<each data directory>/lock       locked by the process that is the node
//	<first data directory>/peers     last known addresses of the other nodes
//	<first data directory>/removed   the removed nodes, if the node has certificates: package removal
//	<one data directory>/raft        the Raft log and snapshots, if the node votes
//	<first data directory>/security  keys and certificate, if any: package security/keydir
//	<each data directory>/blobs      extents of SSTables and commit logs
//
// In the namespace of the lock service:
//
//	/cluster               the cluster's id and name
//	/master                its lock makes a node the master
//	/servers/<node>        its lock makes a process the node; has its address, as JSON
//	/nodes/<node>          a node's name, zone and address, and whether it is draining, as JSON
//	/removed/<node>        a node that an operator has removed for good
//	/ids                   the next id of a table or tablet
//	/tables/<name>         a table's schema; the table exists if and only if this file does
//	/root                  the root tablet: package client/metadata
//	/logs/<server>/<log>   the replicas of a commit log: package blobfs
//	/recovery/<server>     the progress of sorting a dead server's logs: package master
//	/blobs/<id>            a stored file
//	/acl/...               principals and grants: package security/acl; created with the cluster
//	/acl/tokens/<id>       an access token: package security/token
//	/security/join/<id>    a join token: package security/token
//	/sweep                 the current round of garbage collection: package blobfs
//	/backups/ID            a backup: package node/backup
//	/schedules/NAME        a schedule of backups: package node/backup
//	/replication           replications and their progress (/replicating): package node/replication
//	/clusters/NAME         another cluster whose health this one shows: package node/registry
//	/profiles/ID           an app profile of Cloud Bigtable's API: package node/appprofiles
//	/schemabundles/ID      the schema bundles of a table: package node/schemabundles
//	/quota/...             quotas, and the owners of tables: package node/quota
//	/locks/...             files and locks of users: package node/lockserver
//
// # Disk and network
//
// A node reaches its data directories and keys only through Config.FS, and others only through Config.Network, except for the HTTP port. Its
// Raft log is a file of Config.OpenRaftLog. Therefore several nodes with their own disks and a network can run in one process, which a node
// does not configure: Config.RuntimeMemory is for the program that is one node.
//
// # Start
//
// The port opens first, but data is served last: until then, methods about data return "unavailable" and what the start waits
// for. The steps in between: formation (a fresh node founds or joins a cluster, others announce themselves), gossip, the node's
// Raft group if it votes, a session with the group's leader, the lock of its server file, the block store, the tablet server. A
// crash between writing a file and referencing it leaves garbage.
//
// # The tablet server
//
// The holder of the lock of /servers/<node> is a tablet server (package tabletserver). The master's commands (package command) load and unload
// its tablets; what the master reads and writes for that is in package assign. Acquiring a tablet is a compare-and-set on its row of
// METADATA (package metarows), which a node accesses as any client does.
//
// # The lock service
//
// Every node is a client of the lock service, with one session (package lockclient). Up to five nodes are also its servers (package
// voter). The master chooses them (package master) and sends commands: a new voter creates an empty Raft log, waits to be added, and
// becomes a voter once it has caught up. Other nodes, users and clients get the service with restrictions (package lockserver). The
// session finds the leader; if it is this node, requests do not use the network. An expired session is replaced by another one.
//
// # Certificates
//
// A node with a directory of keys speaks only TLS (package certs). The node on which Initialise was run founds the cluster, alone. A
// host without keys sends a join token to any node, which forwards it to the master's (package enrol). The authority's key is on the
// voters, one of which is the master; they renew the members' certificates (package authority). Gossip is encrypted (package gossipkey).
// A client without a certificate has access to few methods, for a minute, unless it sends an access token (package tokenauth).
// certificates.go connects these packages.
//
// # Rights
//
// Each method is registered with a guard (packages method and dispatch): it admits nodes, all principals, or those with a right on the
// cluster or a table, or the method checks rights itself. Rights are known as of an epoch (package authz), through the session
// with the lock service, and checked again before an answer: a node whose session is in doubt knows no rights, and returns unavailable.
// For each data request the tablet server consults an access (package authz) with the schema that it uses. Changes of rights (package
// users) are made by the master's node, to which others forward requests in the principal's name (package dispatch). Both
// check the rights. Each change that waits for its turn (package changes) has a subject (authz.ChangeRequest), which is authorized again when
// it is its turn, and is written only under the mastership in which that happened. So no change is made for a user after a revocation
// of its rights has returned. Actions of administrators, and refusals, are in the audit log.
//
// # Quotas
//
// Quotas (package quota) are stored in the lock service, and each node rereads them when their epoch changes (package quotas): the node that
// makes a change before it answers, the others soon after. A request is admitted by the meters of its table and its principal
// (quotas.Metered) on the node that serves the row, without calls to other nodes; without quotas it checks one pointer. Each node reports its demand to
// the master and gets its shares, and the tables that may not grow.
//
// # Operations
//
// operations.go connects the services for operators: packages nodeadmin (list, drain and remove nodes), status (the methods ping and status,
// metrics of tablets) and monitor (the HTTP port with metrics, health and profiles). Other services send their own metrics. Package disks
// stops the node when a disk does not answer.
//
// # Goroutines
//
//	goroutine        started by       ends with           does
//	rpc serve        Start            rpc's Shutdown      accepts connections
//	serve            Start            Close               package monitor: the same for HTTP
//	cursor sweep     Start            Close               drops idle cursors
//	upload sweep     Start            Close               ends idle uploads of blobs
//	accept           Start            rpc's Shutdown      passes Raft's connections to the group
//	CollectGarbage   Start            Close               package blobs: collects garbage while this node is master
//	backups.Run      Start            Close               package backups: makes backups while this node is master; so does backups.RunReplays
//	replication.Run  Start            Close               package replication: follows tables of other clusters while this node is master
//	keepSession      Start            Close               replaces an expired session
//	keepCertificate  Start            Close               renews the node's certificate, if it has one
//	quotas.Follow    Start            Close               reads quotas, and reports demand
//	RemoveOrphans    Start            Close               package tables: removes orphaned files of tables, once per mastership
//	PurgeExpired     Start            Close               package tables: deletes dropped tables whose time is over
//	Follow           Start            Close               package authority: performs a replacement of the authority on this node
//	Follow           Start            Close               package gossipkey: performs a rotation of the gossip key on this node
//	Keep             Start            Close               package authority: has the authority's key while the node votes
//	Follow           Start            Close               package removal: rejects and forgets removed nodes
//	Watch            Start            Close, removal      package removal: stops the node when it is removed
//	watch            Start            Close               package disks: one for each data directory: stops the node when its
//	                                                      disk does not answer
//	disconnectRejected Start          Close               closes connections of rejected principals
//	disconnect       removal          some seconds later  closes connections of a removed node
//	mastership watch a change; gc     its end          cancels what only the master may do
//	AwaitServed      create_table     all is served       package tables: nudges the master for a new table
//	dropRuns         a recovery done  a minute at most    removes what a recovery has left
//	mutate           mutate           its answer          a write that waits; as many as requests in flight
//	welcome          raftstreams      its greeting        greets one connection of Raft
//	probe            Alive            its part answers    package monitor: one for each part, at most one at once
//	change           a change         itself, one at once a change of the catalog whose caller may leave
//
// # Invariants
//
//	N1. METADATA and the namespace reference a file only once the file is durable. A file is deleted only after its
//	    last reference is gone, or after the schema of its table: the rows of a dropped table may still name it (I1, I6).
//	N2. A table is served by one schema at a time, and the namespace has the schema before any write uses it.
//	N3. A command of a master is rejected once one with a higher epoch was seen (I9).
//	N4. A Raft connection is accepted only from a node of the same cluster and Raft epoch, and only if it is for this
//	    node.
//	N5. A removed node has no connection some seconds later, and gets no certificate.
package node
