package client

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultAddr is the default address of a node.
const DefaultAddr = "127.0.0.1:7106"

// Client is a set of connections to a cluster, safe for concurrent use.
type Client struct {
	cfg     Config
	locator *locator
	budget  *budget

	// nodes maps addresses to connections. The map is copied on write.
	nodes atomic.Pointer[map[string]*node]

	ctx    context.Context // cancelled by Close
	cancel context.CancelFunc

	// mu guards the fields in it, and writes of nodes. Never held across I/O.
	mu struct {
		sync.Mutex
		closed bool
	}
	background sync.WaitGroup
}

// Open connects to the node at addr, which is "host:port" or a comma-separated list; one node that
// answers is enough. An empty addr means DefaultAddr. The Client outlives ctx. Errors: an
// *UnreachableError, without retries, if no node can be reached; ctx's; an invalid addr or cfg.
func Open(ctx context.Context, addr string, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open client: %w", err)
	}
	addrs, err := splitAddrs(addr)
	if err != nil {
		return nil, fmt.Errorf("open client: %w", err)
	}
	c := &Client{cfg: cfg, budget: newBudget(cfg.RetriesPerSecond)}
	c.locator = newLocator(c, addrs)
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.nodes.Store(&map[string]*node{})
	for range addrs {
		p := c.locator.any()
		if _, err = p.node.slot().get(ctx); err == nil {
			return c, nil
		}
		c.locator.seeds.skip(p.node.addr)
	}
	_ = c.Close()
	return nil, err
}

// splitAddrs parses a comma-separated list of host:port.
func splitAddrs(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return []string{DefaultAddr}, nil
	}
	addrs := strings.Split(list, ",")
	for i, a := range addrs {
		addrs[i] = strings.TrimSpace(a)
		if _, _, err := net.SplitHostPort(addrs[i]); err != nil {
			return nil, fmt.Errorf("address %q: want host:port", a)
		}
	}
	return addrs, nil
}

// Close ends calls and scans in flight, closes the connections and waits for the Client's
// goroutines. Its error is always nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.cancel()
	for _, n := range *c.nodes.Load() {
		n.each(func(s *slot) {
			if conn := s.conn.Load(); conn != nil {
				s.drop(conn, ErrClosed)
			}
		})
	}
	c.background.Wait()
	return nil
}

func (c *Client) closed() bool { return c.ctx.Err() != nil }

// spawn runs f on a goroutine that Close joins. It reports false if the Client is closed.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return false
	}
	c.background.Go(f)
	return true
}

// node returns the connections to addr.
func (c *Client) node(addr string) *node {
	if n := (*c.nodes.Load())[addr]; n != nil {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := *c.nodes.Load()
	if n := nodes[addr]; n != nil {
		return n
	}
	nodes = maps.Clone(nodes)
	n := c.newNode(addr)
	nodes[addr] = n
	c.nodes.Store(&nodes)
	return n
}

// jitter returns a random time from 0 to d.
func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }
