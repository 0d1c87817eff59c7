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

// lent is what the caches give way to, which there is much of only now and then: connections, and sorts of dead servers' logs (I13).
type lent struct {
	// mu guards the fields in it, and keeps what is lent in order.
	mu struct {
		sync.Mutex
		bytes int64
		lend  func(bytes int64) // nil until there are caches
	}
}

// change has so many bytes more lent, or fewer.
func (l *lent) change(by int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.bytes += by
	if l.mu.lend != nil {
		l.mu.lend(l.mu.bytes)
	}
}

// from says what lends memory from now on.
func (l *lent) from(lend func(bytes int64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.lend = lend
	lend(l.mu.bytes)
}
