package authority

import "sync"

// promotions are the nodes that this node, as master, is about to make voters.
type promotions struct {
	mu    sync.Mutex
	count map[string]int
}

func (p *promotions) begin(id string) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == nil {
		p.count = map[string]int{}
	}
	p.count[id]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.count[id]--; p.count[id] == 0 {
			delete(p.count, id)
		}
	}
}

func (p *promotions) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[id] > 0
}

// Promote lets a node have the authority's key, until end: this node, as master, is about to make it a voter.
func (s *Service) Promote(id string) (end func()) { return s.promoting.begin(id) }
