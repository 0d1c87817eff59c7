package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// timings returns memberlist's configuration for nodes of one site, with all times multiplied by
// slower. The package comment states the resulting times.
func timings(slower time.Duration) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	// A node probes another each 250 ms, and all in turn. So some node notices a death within about
	// 400 ms, however many nodes there are.
	c.ProbeInterval = 250 * time.Millisecond
	// Far more than the 99th percentile of a LAN's round trip, and than the pauses of a Go process.
	// Late answers, through other nodes and over TCP, have the rest of the interval.
	c.ProbeTimeout = 125 * time.Millisecond
	// A suspect can refute within 1 s with up to 10 nodes, 2.3 s with 200; twice that if no other
	// node suspects it. A process that is paused for a second survives.
	c.SuspicionMult = 4
	c.SuspicionMaxTimeoutMult = 2
	// A node whose suspicions are refuted probes up to 8 times less often: otherwise starved
	// processes overload each other with refutations.
	c.AwarenessMaxMultiplier = 8
	// 18 transmissions of each message at 200 nodes, 6 at up to 9, which is two rounds. With one
	// round, the same three nodes may be chosen by several senders. What is lost nevertheless
	// arrives with the next full list.
	c.RetransmitMult = 6
	// A message reaches all nodes in about log(n) rounds of 100 ms.
	c.GossipInterval = 100 * time.Millisecond
	c.GossipNodes = 3
	// Full lists are exchanged with one other node each 10 s; above 32 nodes less often.
	c.PushPullInterval = 10 * time.Second
	// Long enough for lists of thousands of nodes. A join at a dead address takes as long.
	c.TCPTimeout = 3 * time.Second
	// A node that restarts at another address need not wait: it has another memberlist name, see
	// instanceName.
	c.DeadNodeReclaimTime = time.Nanosecond
	// Packets are small, and lists are rare: not worth LZW.
	c.EnableCompression = false
	c.DNSConfigPath = "" // names are resolved before
	for _, d := range []*time.Duration{&c.ProbeInterval, &c.ProbeTimeout, &c.GossipInterval, &c.PushPullInterval, &c.TCPTimeout, &c.GossipToTheDeadTime} {
		*d *= slower
	}
	return c
}
