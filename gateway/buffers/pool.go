// Package buffers has the memory of messages of the Cloud Bigtable API.
//
// The default pool of google.golang.org/grpc/mem clears the whole of each buffer before it is used again, and has no sizes between 32 KiB and
// 1 MiB: an answer of 256 KiB occupied 1 MiB, and clearing that took a tenth of the time of a scan. The buffers of this pool are not cleared. Users
// write a buffer before they read or send it, and send no more than they wrote.
package buffers

import (
	"slices"
	"sync"

	"google.golang.org/grpc/mem"
)

// sizes are the capacities of buffers, ascending. Frames of HTTP/2 have up to 16 KiB. A message of a scan has 256 KiB or 1 MiB, and a row or
// a piece of a value beyond that.
var sizes = [...]int{512, 2 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 288 << 10, 576 << 10, 1<<20 + 64<<10, 2<<20 + 64<<10}

// Pool has the buffers of all gateways of the process. It is safe for concurrent use. A buffer that is larger than all sizes is allocated, and not kept.
var Pool mem.BufferPool = &pool{}

type pool struct{ free [len(sizes)]sync.Pool }

// Get returns a buffer of a length. It may have data of an earlier use.
func (p *pool) Get(length int) *[]byte {
	at, _ := slices.BinarySearch(sizes[:], length)
	if at == len(sizes) {
		b := make([]byte, length)
		return &b
	}
	if b, ok := p.free[at].Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, sizes[at])
	return &b
}

// Put returns a buffer for use by another Get. A buffer that was replaced by one of another capacity is not kept.
func (p *pool) Put(b *[]byte) {
	if at, found := slices.BinarySearch(sizes[:], cap(*b)); found {
		p.free[at].Put(b)
	}
}
