package locate

import (
	"context"
	"sync/atomic"
	"time"
)

// Locator locates tablets.
type Locator interface {
	// Locate returns the address and node id of the server of a row, other than the node asker. ok is false if it is unknown when ctx
	// ends. id is the table's id, or 0.
	Locate(ctx context.Context, table string, id uint64, row []byte, asker string) (addr, node string, ok bool)
}

// Bounds of the cost of naming another node in a refusal.
const (
	// guideTimeout bounds the lookup for a request. METADATA is in memory: a lookup takes a millisecond.
	guideTimeout = 250 * time.Millisecond
	// guideCalls bounds concurrent lookups: they occupy workers.
	guideCalls = 4
	// guidePause is the pause after a failed lookup, during which refusals name no node.
	guidePause = time.Second
)

// guide finds the server of a row for clients that asked the wrong node. It gives up early: while METADATA is unreadable, requests
// for rows of this node must not wait for workers.
type guide struct {
	from   func() Locator
	busy   chan struct{} // has a value for each call
	paused atomic.Int64  // no lookups until then, in nanoseconds
}

func newGuide(from func() Locator) *guide {
	return &guide{from: from, busy: make(chan struct{}, guideCalls)}
}

// find is Locator.Locate within these bounds.
func (g *guide) find(ctx context.Context, table string, id uint64, row []byte, asker string) (addr, node string, ok bool) {
	now := time.Now()
	if now.UnixNano() < g.paused.Load() {
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
	if addr, node, ok = g.from().Locate(ctx, table, id, row, asker); !ok && ctx.Err() != nil {
		g.paused.Store(now.Add(guidePause).UnixNano())
	}
	return addr, node, ok
}
