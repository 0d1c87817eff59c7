package client

import "sync/atomic"

// locator says at which node a row is.
type locator interface {
	// locate returns the address of the node that serves the row; of any node for
	// an empty table.
	locate(table string, row []byte) (addr string)
	// wrong reports that the node at addr could not be reached or does not serve
	// what it was asked for.
	wrong(table string, row []byte, addr string)
	// alternatives is the number of nodes that locate may name in turn.
	alternatives() int
}

// fixed is the locator of a cluster of one, known by one or more addresses. It
// stays with an address until that one fails.
type fixed struct {
	addrs   []string
	current atomic.Uint32
}

func (f *fixed) locate(string, []byte) string { return f.addrs[f.current.Load()] }

func (f *fixed) wrong(_ string, _ []byte, addr string) {
	if i := f.current.Load(); f.addrs[i] == addr {
		f.current.CompareAndSwap(i, (i+1)%uint32(len(f.addrs)))
	}
}

func (f *fixed) alternatives() int { return len(f.addrs) }
