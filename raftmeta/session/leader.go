package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// peersMax bounds the open connections. It exceeds the number of voters in a group.
const peersMax = 8

// peer is a connection to one server.
type peer struct {
	addr string
	Peer
	once  sync.Once
	calls callTracker
}

func (p *peer) close() {
	p.once.Do(func() {
		if p.Close != nil {
			_ = p.Close()
		}
	})
}

// leaders finds the leader, and keeps connections to the servers that it has used.
type leaders struct {
	cfg    *Config
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		current *peer // the leader, as far as known; nil: search for it
		peers   map[string]*peer
		hint    string // the leader's address, as named by another server
		next    int    // position in the Locator's list
		search  *search
		closed  bool
	}
}

func newLeaders(cfg *Config) *leaders {
	l := &leaders{cfg: cfg}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.mu.peers = make(map[string]*peer)
	return l
}

// failed records that p did not serve a call because of err. It returns true if another server was
// named as the leader, so that no pause is needed.
func (l *leaders) failed(p *peer, err error) (moved bool) {
	var other *api.NotLeaderError
	// A server that has closed is not called again: a new one may listen at its address.
	lost := errors.Is(err, rpc.ErrConnLost) || errors.Is(err, api.ErrClosed)
	if !lost && !errors.Is(err, api.ErrNotReady) {
		return false
	}
	l.mu.Lock()
	if l.mu.current == p {
		l.mu.current = nil
		if errors.As(err, &other) && other.Address != p.addr {
			l.mu.hint = other.Address
		}
	}
	moved = l.mu.hint != "" || l.mu.current != nil && l.mu.current != p
	if lost {
		l.forgetLocked(p)
	}
	l.mu.Unlock()
	switch {
	case errors.Is(err, rpc.ErrDraining): // its calls in progress are still answered
		l.suspect(p, 2*time.Second)
	case lost:
		p.close()
	}
	return moved
}

func (l *leaders) forgetLocked(p *peer) {
	if l.mu.peers[p.addr] == p {
		delete(l.mu.peers, p.addr)
	}
}

// suspect directs new calls to another server or connection, because p has not answered in time.
// Its calls in progress get the time left to complete.
func (l *leaders) suspect(p *peer, left time.Duration) {
	l.mu.Lock()
	if l.mu.current == p {
		l.mu.current = nil
	}
	l.forgetLocked(p)
	closed := l.mu.closed
	if !closed {
		l.wg.Go(func() {
			t := time.NewTimer(left)
			defer t.Stop()
			select {
			case <-t.C:
			case <-l.ctx.Done():
			}
			p.close()
		})
	}
	l.mu.Unlock()
	if closed {
		p.close()
	}
}

// close closes all connections.
func (l *leaders) close() {
	l.mu.Lock()
	l.mu.closed = true
	peers := l.mu.peers
	l.mu.peers, l.mu.current = nil, nil
	l.mu.Unlock()
	l.cancel()
	for _, p := range peers {
		p.close()
	}
	l.wg.Wait()
}

// address returns the address of the server that is believed to lead, empty during a search.
func (l *leaders) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.current == nil {
		return ""
	}
	return l.mu.current.addr
}
