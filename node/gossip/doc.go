// Package gossip maintains the cluster's membership: which nodes exist, their addresses, and their
// zone, version, and free disk space. Its view is a hint. It notices quickly that a host is gone, but the
// authority on that is the lock on /servers/<node>.
//
// Bigtable (§4) learns of servers by their files in Chubby's servers directory alone. Here gossip comes
// before that: nodes must find each other to run the lock service at all, and gossip notices a death
// before a lease expires. The protocol is SWIM, by hashicorp/memberlist, which this package configures and
// hides.
//
// # Departures from memberlist
//
// Each run of a node has its own name in memberlist, "<id>#<start>". A node that restarts at another
// address is therefore a member at once. Under one name memberlist would reject it until its last run is
// declared dead, and old incarnation numbers would still apply. Members lists one entry for each node: a
// live run before a dead one, a later run before an earlier one.
//
// Memberlist forgets a dead node after 30 s and never tries it again. Here dead nodes and seeds are
// retried every 5 s, so that the sides of a healed partition merge, and dead nodes are listed for
// Config.Keep.
//
// Memberlist does not report to its delegates which nodes are suspect, nor whether a node died or left.
// This package announces leaving by a note of its own. Suspect nodes count as alive.
//
// Names are resolved here, since memberlist queries name servers over TCP first.
//
// # Times
//
// A node probes another every 250 ms, and after 125 ms asks others to probe it, too. A node that has
// answered none of them after 250 ms is suspect. It is dead if it does not refute that within 1 s (up to
// 10 nodes; 2.3 s with 200), or twice that if no other node suspects it. A dead host is therefore noticed
// after 1.3 to 2.2 s in a small cluster. A process that is paused for less than a second is never declared
// dead. A longer pause may be, and the node is alive again as soon as it resumes.
//
// Measured by TestScale, with all members in one process on two busy cores. For 200 members, which those
// cores cannot run, all times were 4 times longer and the figures are divided by 4:
//
//	members  new member known to all  its news known to all  its death known to all
//	20       0.2 to 0.4 s             0.2 to 0.3 s           1.7 to 2.2 s
//	200      0.25 s                   0.7 s                  2.8 s
//
// # Wire format
//
// Packets and streams carry the cluster's id as their label. With a key they are encrypted with
// AES-256-GCM, which also authenticates the label. Messages with another label or key are dropped, and
// logged once in 10 minutes for each host. Keys are replaced while gossip runs (SetKeys).
//
// A node's meta is a MessagePack array of at most 512 bytes. Fields are only ever appended, with a new
// version:
//
//	[version 1, id, start, name, rpc, http, zone, program version,
//	 capacity bytes, free bytes, 0.0, voter, raft epoch, growth, growth over]
//
// The 0.0 is in the place of a field that is no longer used. The last two, by how many bytes a day the used space grows and over how many seconds that was observed, may be missing.
//
// Example: node n1 at its start 5, named a, RPC h:1, HTTP h:3, zone z, version v1, 1 MiB of which 1000
// bytes are free, voter, epoch 2, and 7 bytes a day less used, as the last hour shows:
//
//	9f 01 a2 6e 31 05 a1 61 a3 68 3a 31 a3 68 3a 33 a1 7a a2 76 31
//	ce 00 10 00 00 cd 03 e8 cb 00 00 00 00 00 00 00 00 c3 02 f9 cd 0e 10
//
// A note is [version 1, kind, id, start]. Kind 1: that run has left. Kind 2: the node was removed, and its
// runs up to start are not listed. Notes of removals are also exchanged with full state lists.
//
// # Bounds
//
// The label is no secret, so any host that reaches the port reaches memberlist's buffers. These are not
// bounded: up to 20 MiB for each of any number of streams, before decryption. A transport of this package
// therefore bounds what reaches memberlist:
//
//	inbound streams     64; 8 of one host, which is an IPv4 address or an IPv6 /64; 32 of hosts without
//	                    a known member. Further ones are closed at once.
//	bytes of a stream   1.25 MiB, a list of 1000 nodes (budget.go). A longer message is rejected as soon
//	                    as its length is known.
//	memory of streams   12 MiB (Config.StreamMemory): 32 KiB for each stream, memberlist's buffers for
//	                    lists received and sent and, with a key, the copy that is checked first. Two
//	                    thirds of it for hosts without a known member, and for one host the memory of one
//	                    list. A stream that exceeds a bound ends, and its node tries again.
//	time of a stream    3 s to receive everything, however slowly, and 3 s for the answer: memberlist's
//	                    TCPTimeout
//	packet size         2 KiB; memberlist sends at most 1405 bytes
//	queued packets      1024 of each of two kinds (HandoffQueueDepth), 4 MiB; further ones are dropped.
//	                    With a key only members' packets get there.
//
// The list of a node that knows only itself fits into the memory reserved for each stream. It is accepted
// even while unknown hosts use all the memory that they may. While unknown hosts, at least four of them,
// hold all of their streams, a new node cannot join by itself. It joins when a member learns of it in
// another way, such as package formation, and connects to it.
//
// Also rejected are compressed messages, lists that announce more than they can contain, messages in
// which a value claims more bytes than there are (message.go), and more than 1000 indirect probe requests
// a second. Encrypted messages are decrypted and checked first (decrypter.go), since memberlist trusts
// every holder of the key: it panics at an empty message, and allocates 4 GiB for a message of 20 bytes
// that claims so much. Not bounded is the number of nodes that a holder of the key announces; without a
// key, that any host announces.
//
// Warnings that unknown hosts can cause are logged at most 20 times a minute; Stats counts all rejections.
//
// # Goroutines
//
//	goroutine      started by  ends with  owns, waits for
//	acceptStreams  Start       Close      streams until memberlist takes them; the hosts of members
//	acceptPackets  Start       Close      a packet until memberlist takes it
//	logs           Start       Close      the log: neither memberlist nor table waits for it
//	publishMeta    Start       Close      sending the node's own meta; 300 ms at most
//	reconnect      Start       Close      joins of dead nodes and seeds; pruning the table
//	joins          Join        Close      one exchange each, 3 s at most
//	memberlist's   Start       Close      its sockets; some end a moment after Close
//
// # Queues
//
//	log lines          256    further ones are dropped and counted; lines that unknown hosts can cause,
//	                          memberlist's among them, use at most half
//	own meta updates   1      the latest one is sent
//	removed nodes      1024   further ones are not recorded
//	dead runs          4096   listed for only a minute when there are more
//
// # Invariants
//
//	G1. A delegate that memberlist calls never blocks and never calls memberlist.
//	G2. Members lists each node once.
//	G3. No message of another cluster, or without the key, changes what Members returns.
//	G4. Changed is closed after each change of Members, and blocks no other goroutine.
//	G5. Streams and packets use no more memory than stated above, unless their sender has the key.
package gossip
