package main

import "math"

// A cluster is what limits the rate of each of its servers.
type cluster struct {
	name string
	// linkBits is the bandwidth of a machine's link, and rootBits that of the network's root, in bits per second; 0 is enough for all.
	linkBits, rootBits float64
	rack               int // servers of a rack: what stays in it does not pass the root
	// usedFixed and usedEach are the share of a server's processors that it needs without load, and for each other server.
	usedFixed, usedEach float64
	replicas            int // of what is written
}

// A workload is one line of the figure.
type workload struct {
	name string
	rate float64 // of one server alone, per second
	// shared is what is left of rate when there are more servers, beside other jobs and with imbalanced load.
	shared float64
	bytes  float64 // of an operation on the network
	writes bool
	// replicated is the part of rate that is left when each write has its replicas.
	replicated float64
}

// Resources that bind.
const (
	processors = "processors"
	link       = "link"
	root       = "root of the network"
)

// perServer returns the operations per second of each of n servers, and the resource that binds.
func (c *cluster) perServer(w *workload, n int) (rate float64, binds string) {
	rate, binds = w.rate*(1-c.usedFixed-c.usedEach*float64(n-1)), processors
	if n > 1 {
		rate *= w.shared
	}
	bytes := w.bytes
	if w.writes {
		copies := math.Min(float64(c.replicas), float64(n))
		bytes *= copies
		if copies > 1 {
			rate *= w.replicated
		}
	}
	if byLink := c.linkBits / 8 / bytes; c.linkBits > 0 && byLink < rate {
		rate, binds = byLink, link
	}
	through := 1 - math.Min(1, float64(c.rack)/float64(n))
	if byRoot := c.rootBits / 8 / bytes / float64(n) / through; c.rootBits > 0 && through > 0 && byRoot < rate {
		rate, binds = byRoot, root
	}
	return rate, binds
}

// The paper's cluster (§7). Random reads transfer a block of 64 KiB. What is left beside other jobs is fitted to 50 servers, the root's
// bandwidth to 500.
var (
	paper = cluster{name: "paper's cluster, model", linkBits: 1e9, rootBits: 63e9, rack: 1}

	paperReads = workload{name: "random reads", rate: 1212, shared: 593.0 / 1212, bytes: 64 << 10}
	// paperRates are those of Figure 6.
	paperRates = map[int]float64{1: 1212, 50: 593, 250: 479, 500: 241}
)

// This program's cluster on two networks: with machines of 2 processors that the clients share. A server's needs without load are those
// of an idle node of 10 to 100 (docs/scale.md): 0.6 ms per second and 0.013 ms for each other node, of two processors.
var (
	today   = cluster{name: "links of 10 Gbit/s, no limit at the root", linkBits: 10e9, rack: 40, usedFixed: 0.0006 / 2, usedEach: 0.000013 / 2, replicas: 3}
	asPaper = cluster{name: "the paper's network: links of 1 Gbit/s, root of 63 Gbit/s", linkBits: 1e9, rootBits: 63e9, rack: 1, usedFixed: 0.0006 / 2, usedEach: 0.000013 / 2, replicas: 3}

	// The rates are those of a million rows, one row per call (docs/performance.md). A value takes 1,100 bytes with the rest of its message.
	// A write costs all nodes 41.5 µs with three replicas, and 15.1 µs without.
	workloads = []workload{
		{name: "random reads", rate: 135_363, shared: 1, bytes: valueBytes},
		{name: "random reads (mem)", rate: 155_912, shared: 1, bytes: valueBytes},
		{name: "random writes", rate: 90_118, shared: 1, bytes: valueBytes, writes: true, replicated: 15.1 / 41.5},
		{name: "sequential reads", rate: 172_932, shared: 1, bytes: valueBytes},
		{name: "sequential writes", rate: 93_752, shared: 1, bytes: valueBytes, writes: true, replicated: 15.1 / 41.5},
		{name: "scans", rate: 862_021, shared: 1, bytes: valueBytes},
	}
)

const valueBytes = 1100
