package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// peersMax bounds the connections that are kept: more than a group has voters.
const peersMax = 8

// peer is a connection to one server.
type peer struct {
	addr string
	Peer
	once  sync.Once
	calls vigil
}

func (p *peer) close() {
	p.once.Do(func() {
		if p.Close != nil {
			_ = p.Close()
		}
	})
}

// leaders finds the server that leads, and keeps connections to those it has asked.
type leaders struct {
	cfg    *Config
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		current *peer // who leads, as far as is known; nil: look for it
		peers   map[string]*peer
		hint    string // where a server says that the leader is
		next    int    // in the Locator's list
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

// failed notes that p did not serve a call, for reasons that err tells. It returns
// true if another server was named as the leader, so that there is no need to wait.
func (l *leaders) failed(p *peer, err error) (moved bool) {
	var other *api.NotLeaderError
	// A server that has closed is not asked again: another one may answer there.
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
	case errors.Is(err, rpc.ErrDraining): // its calls under way are still answered
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

// suspect makes new calls go elsewhere, or over another connection, since p has not
// answered in time. Its calls under way have some time left to be answered.
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

// close ends all connections.
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

// at returns the address of the server that is believed to lead, empty when it is
// being looked for.
func (l *leaders) at() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.current == nil {
		return ""
	}
	return l.mu.current.addr
}
