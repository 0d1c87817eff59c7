package node

import (
	"sync"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// filterCache knows compiled filters by their coding. Clients send the same few
// filters again and again, and compiling one costs as much as a read.
type filterCache struct {
	mu       sync.RWMutex
	programs map[string]*table.Program
	bytes    int64 // of the programs, by estimate
}

// Bounds of the cache: programs, their bytes together, and bytes of one filter's coding. A program takes 1 KiB mostly, and
// half a MiB at most.
const (
	filtersMax      = 256
	programBytesMax = 4 << 20
	filterBytesMax  = 4 << 10
)

// program returns the compiled filter of a call. To compile one is work, which is done in a turn of the user, for
// callers that may read the table. Errors: those of filterCache.program, access.mayRead, turns.Take.
func (n *Node) program(c *rpc.Call, name string, coded []byte) (*table.Program, error) {
	if len(coded) == 0 || n.filters.has(coded) {
		return n.filters.program(coded, &n.limits)
	}
	if a := n.access(c, name); a != nil {
		defer a.release()
		if err := a.mayRead(c.Context()); err != nil {
			return nil, err
		}
	}
	if t := n.turnsFor(c, name); t != nil {
		if err := t.Take(c.Context()); err != nil {
			return nil, err
		}
		defer t.End()
	}
	return n.filters.program(coded, &n.limits)
}

// has reports whether a filter was compiled before.
func (c *filterCache) has(coded []byte) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.programs[string(coded)] != nil
}

// program returns the compiled filter for one call, nil for none: what it samples is
// drawn for that call. Errors: table.ErrBadFilter,
// table.ErrBadEncoding, table.ErrLimit.
func (c *filterCache) program(coded []byte, limits *table.Limits) (*table.Program, error) {
	if len(coded) == 0 {
		return nil, nil
	}
	c.mu.RLock()
	p := c.programs[string(coded)]
	c.mu.RUnlock()
	if p != nil {
		return p.Draw(), nil
	}
	d := wire.NewDecoder(coded)
	f, err := table.DecodeFilter(&d, limits)
	if err != nil {
		return nil, err
	}
	if p, err = table.CompileLimits(f, limits); err != nil {
		return nil, err
	}
	if len(coded) > filterBytesMax {
		return p, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.programs[string(coded)] != nil { // compiled by another call meanwhile
		return p, nil
	}
	if c.programs == nil || len(c.programs) >= filtersMax || c.bytes+p.Bytes() > programBytesMax {
		c.programs, c.bytes = make(map[string]*table.Program), 0 // the filters in use come back at once
	}
	c.programs[string(coded)] = p
	c.bytes += p.Bytes()
	return p, nil
}
