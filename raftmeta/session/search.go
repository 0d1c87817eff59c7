package session

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

const (
	// dialStagger is how long an address may take to answer before another is dialed in parallel. A
	// partitioned server never answers, and waiting for each in turn would cost a session its lease
	// if two of them are partitioned.
	dialStagger = 200 * time.Millisecond
	// searchMax bounds the addresses of one search.
	searchMax = 8
)

// search is one attempt to connect to a server, shared by all callers.
type search struct {
	done  chan struct{}
	tried map[string]bool // addresses; used only by the search's goroutine once it runs
	err   error
}

// get returns the server that is believed to lead, and connects if necessary. It makes one attempt.
// Errors are ErrUnreachable, api.ErrClosed, and ctx's.
func (l *leaders) get(ctx context.Context) (*peer, error) {
	l.mu.Lock()
	p, s, err := l.lookLocked()
	l.mu.Unlock()
	if p != nil || err != nil {
		return p, err
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.err != nil {
		return nil, s.err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.current == nil { // lost again meanwhile
		return nil, fmt.Errorf("%w: lost", ErrUnreachable)
	}
	return l.mu.current, nil
}

// lookLocked returns an existing connection, or the search to wait for.
func (l *leaders) lookLocked() (*peer, *search, error) {
	if l.mu.closed {
		return nil, nil, api.ErrClosed
	}
	if l.mu.current != nil {
		return l.mu.current, nil, nil
	}
	if l.mu.search != nil {
		return nil, l.mu.search, nil
	}
	s := &search{done: make(chan struct{}), tried: make(map[string]bool)}
	addr := l.nextLocked(s)
	if addr == "" {
		return nil, nil, fmt.Errorf("%w: no server address is known", ErrUnreachable)
	}
	if p := l.mu.peers[addr]; p != nil {
		l.mu.current = p
		return p, nil, nil
	}
	l.mu.search = s
	l.wg.Go(func() { l.runSearch(s, addr) })
	return nil, s, nil
}

// nextLocked returns an address that the search has not tried: the leader hint of a server, or else
// the next of the Locator's. It is empty if there is none.
func (l *leaders) nextLocked(s *search) string {
	addr := l.mu.hint
	l.mu.hint = ""
	if addr == "" || s.tried[addr] {
		addr = ""
		servers := l.cfg.Locator.Servers()
		for range servers {
			at := servers[l.mu.next%len(servers)]
			l.mu.next++
			if !s.tried[at] {
				addr = at
				break
			}
		}
	}
	if addr != "" {
		s.tried[addr] = true
	}
	return addr
}

// dialed is the outcome of an attempt to connect.
type dialed struct {
	p   *peer
	err error
}

// runSearch connects to one server: the first to answer of addr and further addresses.
func (l *leaders) runSearch(s *search, addr string) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel() // stops the slower dials
	results := make(chan dialed)
	tick := time.NewTicker(dialStagger)
	defer tick.Stop()
	dial := func(addr string) { l.wg.Go(func() { l.dial(ctx, addr, results) }) }
	dial(addr)
	for open := 1; ; {
		select {
		case r := <-results:
			open--
			if r.err == nil || open == 0 {
				l.end(s, r)
				return
			}
		case <-ctx.Done(): // the dials stop without sending a result
			l.end(s, dialed{err: api.ErrClosed})
			return
		case <-tick.C:
			if len(s.tried) >= searchMax {
				continue
			}
			l.mu.Lock()
			addr := l.nextLocked(s)
			p := l.mu.peers[addr]
			l.mu.Unlock()
			switch {
			case p != nil:
				l.end(s, dialed{p: p})
				return
			case addr != "":
				open++
				dial(addr)
			}
		}
	}
}

// dial connects to addr for a search until ctx ends.
func (l *leaders) dial(ctx context.Context, addr string, results chan<- dialed) {
	limited, cancel := context.WithTimeout(ctx, l.cfg.DialTimeout)
	defer cancel()
	r := dialed{}
	made, err := l.cfg.Dialer.Dial(limited, addr)
	if err == nil {
		r.p = &peer{addr: addr, Peer: made}
	} else {
		r.err = &UnreachableError{addr, err}
	}
	select {
	case results <- r:
	case <-ctx.Done():
		if r.p != nil {
			r.p.close()
		}
	}
}

// end ends a search with its result.
func (l *leaders) end(s *search, r dialed) {
	l.mu.Lock()
	l.mu.search = nil
	var drop *peer
	switch {
	case r.err != nil:
		s.err = r.err
	case l.mu.closed:
		s.err, drop = api.ErrClosed, r.p
	default:
		if l.mu.peers[r.p.addr] != r.p {
			drop = l.evictLocked(r.p.addr)
		}
		l.mu.peers[r.p.addr], l.mu.current = r.p, r.p
	}
	close(s.done)
	l.mu.Unlock()
	if drop != nil {
		drop.close()
	}
}

// evictLocked removes a connection if one to addr would exceed peersMax, or if there is already one
// to addr, and returns it.
func (l *leaders) evictLocked(addr string) *peer {
	if p := l.mu.peers[addr]; p != nil {
		return p
	}
	if len(l.mu.peers) < peersMax {
		return nil
	}
	for addr, p := range l.mu.peers {
		delete(l.mu.peers, addr)
		return p
	}
	return nil
}
