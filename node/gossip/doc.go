// Package gossip tells who is in the cluster, where, and what they offer: addresses,
// zone, version, capacity, load. What it says is a hint, fast to notice that a host
// is gone, and never the authority on it: that is the lock on /servers/<node>.
//
// Bigtable (§4) learns of servers by their files in Chubby's servers directory
// alone. Here gossip goes before that, since nodes must find each other to have a
// Chubby at all, and since it notices a death sooner than a lease ends. It is
// hashicorp/memberlist (SWIM): this package tunes it and hides it.
//
// # Departures from memberlist
//
// Each run of a node has a name of its own in memberlist, "<id>#<start>". So a node
// that comes back at another address is there at once, while memberlist alone would
// hold it to be an impostor until its last run is declared dead, and old
// incarnation numbers mean nothing. Members shows one entry for each node: a run
// that is alive before one that is not, a later before an earlier.
//
// Memberlist forgets a dead node after 30 s and never tries it again. Here dead
// nodes and seeds are tried every 5 s, so that two halves that could not see each
// other meet again, and the dead are listed for Config.Keep.
//
// Memberlist tells its delegates neither who is suspect nor whether a node died or
// left. That a node leaves is a note of our own; the suspect count as alive.
//
// Names are looked up here, since memberlist asks name servers over TCP first.
//
// # Times
//
// A node probes another every 250 ms, and starts to ask others to do so after
// 125 ms. One that has not answered anybody after 250 ms is suspect, and dead if it
// does not say otherwise within 1 s (up to 10 nodes; 2.3 s with 200), or twice that
// when nobody else suspects it. So a dead host is noticed after 1.3 to 2.2 s in a
// small cluster, and a process that is paused for less than a second never dies. One
// that is paused for longer may, and is alive again as soon as it goes on.
//
// Measured by TestFleet, all members in one process on two busy cores; of 200, which
// those cannot feed, with all times 4 times longer and the figures divided by 4:
//
//	members  new member known to all  its news known to all  its death known to all
//	20       0.2 to 0.4 s             0.2 to 0.3 s           1.7 to 2.2 s
//	200      0.25 s                   0.7 s                  2.8 s
//
// # What is sent
//
// Packets and streams carry the cluster's id as their label, and are encrypted with
// AES-256-GCM if there is a key, the label authenticated. What has another label or
// key is dropped; the log says so once in 10 minutes for each host. Keys are replaced
// while gossip runs (SetKeys).
//
// A node's meta is a MessagePack array of at most 512 bytes. Fields are only ever
// appended, with a new version:
//
//	[version 1, id, start, name, rpc, http, zone, program version,
//	 capacity bytes, free bytes, load, voter, raft epoch]
//
// Example: node n1 at its start 5, named a, RPC h:1, HTTP h:3, zone z, version v1,
// 1 MiB of which 1000 bytes are free, load 0.5, voter, epoch 2:
//
//	9d 01 a2 6e 31 05 a1 61 a3 68 3a 31 a3 68 3a 33 a1 7a a2 76 31
//	ce 00 10 00 00 cd 03 e8 cb 3f e0 00 00 00 00 00 00 c3 02
//
// A note is [version 1, kind, id, start]: kind 1, that run has left; kind 2, the
// node was removed, and its runs up to start are not listed. Notes of removals are
// exchanged with whole lists, too.
//
// # Bounds
//
// The label is no secret, so anybody who reaches the port gets as far as memberlist's buffers, which have no bound of their
// own: 20 MiB for each stream before it is decrypted, for any number of streams. So its sockets are behind a transport of ours:
//
//	streams that come in       64; 8 of one host, which is an IPv4 address or an IPv6 /64; 32 of
//	                           hosts without a known member. One more is closed at once.
//	what one stream brings     1.25 MiB, a list of 1000 nodes (room.go); a longer one is refused
//	                           as soon as it says how long it is
//	memory for them            12 MiB (Config.StreamMemory): 32 KiB for each, and what memberlist
//	                           buffers of lists that come and go, and, with a key, what is held
//	                           to be looked at before; two thirds for hosts without a
//	                           member, and what one list takes for one host. A stream
//	                           that finds no more ends, and its node tries again.
//	time                       3 s until all has come, however slowly, and 3 s for the answer:
//	                           memberlist's TCPTimeout
//	a packet                   2 KiB; memberlist sends no more than 1405 bytes
//	packets that wait          1024 of each of two kinds (HandoffQueueDepth), 4 MiB; further ones
//	                           are dropped. With a key none but members' get there.
//
// A node that knows only itself brings less than a stream's place has, so while strangers hold all memory that they may, it
// is let in. While they hold all places, from at least four hosts, a new node is not until a member has heard of it otherwise,
// such as by package formation, and goes to it.
//
// Nothing is taken that memberlist would decompress, no list that announces more than it can bring, no message of which a value
// claims more bytes than there are (message.go), and no more than 1000 requests in a second to ask other nodes. What is encrypted is
// decrypted first (sealed.go), since memberlist believes whatever comes with the key: it panics at a message without bytes, and takes
// 4 GiB for one of 20 that says so. But holders of the key, and everybody without one, may say that
// there are nodes without number, and are trusted not to.
//
// What strangers can cause is logged 20 times a minute; Stats counts it all.
//
// # Goroutines
//
//	goroutine    started by  ends with  owns, waits for
//	takeStreams  Start       Close      streams until memberlist takes them; what hosts have members
//	takePackets  Start       Close      a packet until memberlist takes it
//	lines        Start       Close      the log: neither memberlist nor table waits for it
//	tell         Start       Close      sending the node's own meta; 300 ms at most
//	reconnect    Start       Close      joins of dead nodes and seeds; tidying the table
//	joins        Join        Close      one exchange each, 3 s at most
//	memberlist's Start       Close      its sockets; some end a moment after Close
//
// # Queues
//
//	lines for the log   256    further ones are dropped and counted; half of them are not for
//	                           what strangers can cause, memberlist's lines among it
//	own news            1      the latest holds
//	removed nodes       1024   further ones are not taken
//	runs not alive      4096   listed for a minute only, when there are more
//
// # Invariants
//
//	G1. What memberlist calls never waits, and never calls memberlist.
//	G2. Members shows each node once.
//	G3. Nothing of another cluster, or without the key, changes what Members shows.
//	G4. Changed is closed after each change of Members, and holds nobody up.
//	G5. Streams and packets take no more memory than said above, unless who sends them has the key.
package gossip
