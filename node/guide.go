package node

import (
	"context"
	"sync/atomic"
	"time"
)

// whereabouts finds tablets.
type whereabouts interface {
	// Locate returns the address and the node id of the server that has the row, which is not the node called asker;
	// ok is false if it does not find out before ctx ends.
	Locate(ctx context.Context, table string, row []byte, asker string) (addr, node string, ok bool)
}

// Bounds of what it costs a node to name another one in a refusal.
const (
	// guideTimeout is how long a request waits for that. METADATA is in memory: a lookup takes a millisecond.
	guideTimeout = 250 * time.Millisecond
	// guideCalls is how many requests wait at a time: they occupy workers.
	guideCalls = 4
	// guideRest is the pause after a lookup that was in vain, in which refusals name no node.
	guideRest = time.Second
)

// guide finds the node that serves a row for those who ask the wrong one. It gives up early: while METADATA cannot be
// read, requests for rows that are here must not wait for workers that wait for it.
type guide struct {
	from whereabouts
	busy chan struct{} // has a value for each call
	rest atomic.Int64  // until when no lookup is made, in nanoseconds
}

func newGuide(from whereabouts) *guide {
	return &guide{from: from, busy: make(chan struct{}, guideCalls)}
}

// find is whereabouts.Locate within these bounds.
func (g *guide) find(ctx context.Context, table string, row []byte, asker string) (addr, node string, ok bool) {
	now := time.Now()
	if now.UnixNano() < g.rest.Load() {
		return "", "", false
	}
	select {
	case g.busy <- struct{}{}:
		defer func() { <-g.busy }()
	default:
		return "", "", false
	}
	ctx, cancel := context.WithTimeout(ctx, guideTimeout)
	defer cancel()
	if addr, node, ok = g.from.Locate(ctx, table, row, asker); !ok && ctx.Err() != nil {
		g.rest.Store(now.Add(guideRest).UnixNano())
	}
	return addr, node, ok
}
