package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// timings returns memberlist's configuration for nodes of one site, that many times
// slower. The package comment tells what comes of it.
func timings(slower time.Duration) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	// A node asks another each 250 ms, and in turn everybody. So of any node that dies
	// somebody notices within about 400 ms, however many there are.
	c.ProbeInterval = 250 * time.Millisecond
	// Far more than the 99th percentile of a round trip on a LAN, and than a Go process
	// pauses; late answers through others and over TCP have the rest of the interval.
	c.ProbeTimeout = 125 * time.Millisecond
	// A suspect has 1 s to say otherwise with up to 10 nodes, 2.3 s with 200; twice
	// that if nobody else suspects it. A process that is paused for a second stays.
	c.SuspicionMult = 4
	c.SuspicionMaxTimeoutMult = 2
	// A node that finds itself slow, since others deny its suspicions, asks up to 8
	// times less often: without that, starved processes drown in each other's denials.
	c.AwarenessMaxMultiplier = 8
	// 18 times each at 200 nodes, 6 times at up to 9, which is two rounds: with one, the same three
	// nodes may be asked whom another needed. What is lost all the same comes with the next list.
	c.RetransmitMult = 6
	// News take about log(n) rounds of 100 ms.
	c.GossipInterval = 100 * time.Millisecond
	c.GossipNodes = 3
	// Whole lists are exchanged with one other each 10 s; above 32 nodes less often.
	c.PushPullInterval = 10 * time.Second
	// Long enough for lists of thousands; a join at a dead address waits as long.
	c.TCPTimeout = 3 * time.Second
	// A node that comes back at another address need not wait: it has another name in
	// memberlist, too, see instanceName.
	c.DeadNodeReclaimTime = time.Nanosecond
	// Packets are small, and lists rare: not worth LZW.
	c.EnableCompression = false
	c.DNSConfigPath = "" // names never get here
	for _, d := range []*time.Duration{&c.ProbeInterval, &c.ProbeTimeout, &c.GossipInterval, &c.PushPullInterval, &c.TCPTimeout, &c.GossipToTheDeadTime} {
		*d *= slower
	}
	return c
}
