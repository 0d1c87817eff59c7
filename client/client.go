package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// DefaultAddr is the default address of a node.
const DefaultAddr = "127.0.0.1:7106"

// Client is a set of connections to a cluster, safe for concurrent use. Table gives access to the
// rows of a table. Tables, Tablets, Nodes, Users, Grants, JoinTokens, Quotas, AppProfiles,
// Authority and BlockStore administer the cluster, and Blobs stores blobs in it. All of these are handles, free
// to create.
type Client struct {
	cfg     Config
	life    lifetime
	pool    pool
	locator *locator
	calls   caller
}

// newClient returns a client without connections. cfg is complete and valid.
func newClient(ctx context.Context, cfg Config, addrs []string) *Client {
	c := &Client{cfg: cfg}
	c.life.begin(ctx)
	c.pool.init(&c.cfg, &c.life)
	c.locator = newLocator(&c.cfg, &c.life, &c.pool, addrs)
	c.calls = caller{cfg: &c.cfg, life: &c.life, locator: c.locator, budget: newBudget(cfg.RetriesPerSecond)}
	if cfg.ReportEvery > 0 {
		c.calls.report = &reporter{}
	}
	return c
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
	c := newClient(ctx, cfg, addrs)
	for range addrs {
		p := c.locator.any()
		if _, err = p.node.slot().get(ctx); err == nil {
			if c.calls.report != nil {
				c.life.spawn(c.sendReports)
			}
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
	c.life.end()
	c.pool.closeAll()
	c.life.wait()
	return nil
}

// jitter returns a random time from 0 to d.
func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }

// lifetime is the time from Open to Close, and the goroutines that must end by then.
type lifetime struct {
	ctx    context.Context // cancelled by end
	cancel context.CancelFunc

	// mu guards the field in it.
	mu struct {
		sync.Mutex
		closed bool
	}
	background sync.WaitGroup
}

// begin starts the lifetime, which outlives ctx.
func (l *lifetime) begin(ctx context.Context) {
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
}

// end cancels the context. No goroutine starts after it.
func (l *lifetime) end() {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.Unlock()
	l.cancel()
}

// wait waits for the goroutines.
func (l *lifetime) wait() { l.background.Wait() }

func (l *lifetime) closed() bool { return l.ctx.Err() != nil }

// spawn runs f on a goroutine that wait joins. It reports false after end.
func (l *lifetime) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return false
	}
	l.background.Go(f)
	return true
}
