package node

import "sync"

const (
	// connBytes is what a connection takes of a node, its requests and answers aside: with certificates 46 KiB while it is idle, and up
	// to 86 KiB once large records have come by it, of which the gate of read buffers counts some.
	connBytes = 64 << 10
	// connsMost is how many there are on any node, and connMemory how much of it there is for each on small ones.
	connsMost, connMemory = 4096, 512 << 10
	// principalShare is which part of them one principal may have, kept which is kept for nodes at most.
	principalShare, keptShare = 4, 8
)

// connsMax is how many connections a node takes.
func (c Config) connsMax() int { return int(min(connsMost, c.MemoryBytes/connMemory)) }

// connCount has the caches give way to connections: there may be many, and hardly ever are (I13).
type connCount struct {
	// mu guards the fields in it, and keeps what is lent in order.
	mu struct {
		sync.Mutex
		open int64
		lend func(bytes int64) // nil until there are caches
	}
}

// change counts a connection more, or one less.
func (c *connCount) change(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.open += int64(by)
	if c.mu.lend != nil {
		c.mu.lend(c.mu.open * connBytes)
	}
}

// from says what lends memory from now on.
func (c *connCount) from(lend func(bytes int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.lend = lend
	lend(c.mu.open * connBytes)
}
