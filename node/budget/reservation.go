package budget

import "sync"

const (
	// ConnBytes is the memory of a connection, without requests and answers: with certificates 46 KiB while it is idle, and up to
	// 86 KiB after large TLS records, some of which the limit of read buffers counts.
	ConnBytes = 64 << 10
	// connsMost is the largest number of connections of any node: a thousand nodes have two each to that of the master, and each client
	// may have one to the server of METADATA. connMemory is
	// the memory of the node per connection on small nodes.
	connsMost, connMemory = 16384, 512 << 10
	// PrincipalShare is the divisor of the share of connections that one principal may have.
	PrincipalShare = 4
)

// ConnsMax returns the number of connections that a node of that memory accepts.
func ConnsMax(memory int64) int { return int(min(connsMost, memory/connMemory)) }

// Reservation is cache memory that is reserved for connections and for the sorting of dead servers' logs (I13).
type Reservation struct {
	// mu guards the fields in it, and orders the calls of reserveBytes.
	mu struct {
		sync.Mutex
		bytes        int64
		reserveBytes func(bytes int64) // nil until there are caches
	}
}

// Change changes the reserved bytes.
func (r *Reservation) Change(by int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.bytes += by
	if r.mu.reserveBytes != nil {
		r.mu.reserveBytes(r.mu.bytes)
	}
}

// From sets the function that reserves memory of the caches from now on.
func (r *Reservation) From(reserveBytes func(bytes int64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.reserveBytes = reserveBytes
	reserveBytes(r.mu.bytes)
}
