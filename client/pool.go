package client

import (
	"maps"
	"sync"
	"sync/atomic"
)

// pool holds the connections to all nodes.
type pool struct {
	cfg  *Config
	life *lifetime

	// nodes is by address. The map is copied on write.
	nodes atomic.Pointer[map[string]*node]
	mu    sync.Mutex // guards writes of nodes. Never held across I/O.
}

// init makes the pool ready, without connections.
func (p *pool) init(cfg *Config, life *lifetime) {
	p.cfg, p.life = cfg, life
	p.nodes.Store(&map[string]*node{})
}

// poolMax is the number of addresses at which those without a connection are forgotten. A cluster has fewer nodes, but a faulty one may name any addresses.
const poolMax = 4096

// node returns the connections to addr.
func (p *pool) node(addr string) *node {
	if n := (*p.nodes.Load())[addr]; n != nil {
		return n
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	nodes := *p.nodes.Load()
	if n := nodes[addr]; n != nil {
		return n
	}
	nodes = maps.Clone(nodes)
	if len(nodes) >= poolMax {
		maps.DeleteFunc(nodes, func(_ string, n *node) bool { return !n.connected() })
	}
	n := newNode(addr, p.cfg, p.life)
	nodes[addr] = n
	p.nodes.Store(&nodes)
	return n
}

// closeAll closes the open connections.
func (p *pool) closeAll() {
	for _, n := range *p.nodes.Load() {
		n.each(func(s *slot) {
			if conn := s.conn.Load(); conn != nil {
				s.drop(conn, ErrClosed)
			}
		})
	}
}
