package session

import (
	"context"
	"errors"
	"fmt"
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
	once sync.Once
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
		dialing *dial
		closed  bool
	}
}

// dial is an attempt to connect that callers share.
type dial struct {
	done chan struct{}
	err  error
}

func newLeaders(cfg *Config) *leaders {
	l := &leaders{cfg: cfg}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.mu.peers = make(map[string]*peer)
	return l
}

// get returns the server that is believed to lead, connecting if need be. It makes
// one attempt; errors are ErrUnreachable, api.ErrClosed, and ctx's.
func (l *leaders) get(ctx context.Context) (*peer, error) {
	l.mu.Lock()
	p, d, err := l.lookLocked()
	l.mu.Unlock()
	if p != nil || err != nil {
		return p, err
	}
	select {
	case <-d.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if d.err != nil {
		return nil, d.err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.current == nil { // lost again before we looked
		return nil, fmt.Errorf("%w: lost", ErrUnreachable)
	}
	return l.mu.current, nil
}

// lookLocked returns a peer that is there, or the dial to wait for.
func (l *leaders) lookLocked() (*peer, *dial, error) {
	if l.mu.closed {
		return nil, nil, api.ErrClosed
	}
	if l.mu.current != nil {
		return l.mu.current, nil, nil
	}
	if l.mu.dialing != nil {
		return nil, l.mu.dialing, nil
	}
	addr := l.mu.hint
	l.mu.hint = ""
	if addr == "" {
		servers := l.cfg.Locator.Servers()
		if len(servers) == 0 {
			return nil, nil, fmt.Errorf("%w: no server of the lock service is known", ErrUnreachable)
		}
		addr = servers[l.mu.next%len(servers)]
		l.mu.next++
	}
	if p := l.mu.peers[addr]; p != nil {
		l.mu.current = p
		return p, nil, nil
	}
	d := &dial{done: make(chan struct{})}
	l.mu.dialing = d
	l.wg.Go(func() { l.connect(addr, d) })
	return nil, d, nil
}

// connect dials once.
func (l *leaders) connect(addr string, d *dial) {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.DialTimeout)
	defer cancel()
	made, err := l.cfg.Dialer.Dial(ctx, addr)
	p := &peer{addr: addr, Peer: made}
	l.mu.Lock()
	l.mu.dialing = nil
	var drop *peer
	switch {
	case err != nil:
		d.err = &UnreachableError{addr, err}
	case l.mu.closed:
		d.err, drop = api.ErrClosed, p
	default:
		drop = l.roomLocked()
		l.mu.peers[addr], l.mu.current = p, p
	}
	close(d.done)
	l.mu.Unlock()
	if drop != nil {
		drop.close()
	}
}

// roomLocked forgets a peer when there are too many, and returns it.
func (l *leaders) roomLocked() *peer {
	if len(l.mu.peers) < peersMax {
		return nil
	}
	for addr, p := range l.mu.peers {
		delete(l.mu.peers, addr)
		return p
	}
	return nil
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
