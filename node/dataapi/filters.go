package dataapi

import (
	"sync"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// filterCache caches compiled filters by their encoding. Clients send the same few filters again and again, and compiling one costs as much
// as a read.
type filterCache struct {
	mu       sync.RWMutex
	programs map[string]*table.Program
	bytes    int64 // of the programs, estimated
}

// Bounds of the cache: the number of programs, their bytes together, and the bytes of one filter's encoding. A program usually takes 1 KiB,
// and half a MiB at most.
const (
	filtersMax      = 256
	programBytesMax = 4 << 20
	filterBytesMax  = 4 << 10
)

// program returns the compiled filter of a call, or nil for none. A costly filter is compiled in a turn of the user, if the caller may read
// the table. Errors: those of filterCache.compile, access.mayRead, turns.Take.
func (d *Service) program(c *rpc.Call, name, view string, coded []byte) (*table.Program, error) {
	if len(coded) == 0 {
		return nil, nil
	}
	if p := d.filters.get(coded); p != nil {
		return p, nil
	}
	if a := d.Authz.Access(c, name, view); a != nil {
		defer a.Release()
		if err := a.MayRead(c.Context()); err != nil {
			return nil, err
		}
	}
	f, err := decodeFilter(coded, d.Limits)
	if err != nil {
		return nil, err
	}
	if table.CheapToCompile(f) {
		return d.filters.compile(coded, f, d.Limits)
	}
	return d.compileInTurn(c, name, coded, f)
}

// compileInTurn compiles a filter when it is the caller's turn.
func (d *Service) compileInTurn(c *rpc.Call, name string, coded []byte, f table.Filter) (*table.Program, error) {
	if t := d.turnsFor(c, name); t != nil {
		defer t.release()
		if err := t.Take(c.Context()); err != nil {
			return nil, err
		}
		if p := d.filters.get(coded); p != nil { // compiled by another call meanwhile
			return p, nil
		}
	}
	return d.filters.compile(coded, f, d.Limits)
}

// decodeFilter decodes a filter. Errors: table.ErrBadEncoding, table.ErrLimit.
func decodeFilter(coded []byte, limits *table.Limits) (table.Filter, error) {
	d := wire.NewDecoder(coded)
	return table.DecodeFilter(&d, limits)
}

// get returns the compiled filter for one call, or nil if it is not cached. Samples are drawn anew for each call.
func (c *filterCache) get(coded []byte) *table.Program {
	c.mu.RLock()
	p := c.programs[string(coded)]
	c.mu.RUnlock()
	if p == nil {
		return nil
	}
	return p.Draw()
}

// compile compiles a filter and caches the program. Errors: table.ErrBadFilter.
func (c *filterCache) compile(coded []byte, f table.Filter, limits *table.Limits) (*table.Program, error) {
	p, err := table.CompileLimits(f, limits)
	if err != nil {
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
		c.programs, c.bytes = make(map[string]*table.Program), 0 // filters in use are compiled again
	}
	c.programs[string(coded)] = p
	c.bytes += p.Bytes()
	return p, nil
}
