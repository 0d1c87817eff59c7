package node

import "sync"

const (
	// connBytes is the memory of a connection, without requests and answers: with certificates 46 KiB while it is idle, and up to
	// 86 KiB after large TLS records, some of which the limit of read buffers counts.
	connBytes = 64 << 10
	// connsMost is the largest number of connections of any node, connMemory the memory of the node per connection on small nodes.
	connsMost, connMemory = 4096, 512 << 10
	// principalShare is the divisor of the share of connections that one principal may have.
	principalShare = 4
)

// connsMax is the number of connections that a node accepts.
func (c Config) connsMax() int { return int(min(connsMost, c.MemoryBytes/connMemory)) }

// reservation is cache memory that is reserved for connections and for the sorting of dead servers' logs (I13).
type reservation struct {
	// mu guards the fields in it, and orders the calls of lend.
	mu struct {
		sync.Mutex
		bytes        int64
		reserveBytes func(bytes int64) // nil until there are caches
	}
}

// change changes the reserved bytes.
func (l *reservation) change(by int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.bytes += by
	if l.mu.reserveBytes != nil {
		l.mu.reserveBytes(l.mu.bytes)
	}
}

// from sets the function that reserves memory of the caches from now on.
func (l *reservation) from(reserveBytes func(bytes int64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.reserveBytes = reserveBytes
	reserveBytes(l.mu.bytes)
}
