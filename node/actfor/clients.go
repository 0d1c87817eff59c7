package actfor

import (
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

const (
	// idleTime is how long a client is kept that no connection holds: programs connect again and again.
	idleTime = time.Minute
	// openTimeout bounds the opening of a client.
	openTimeout = 5 * time.Second
	// locationsMax is the number of tablets whose locations a client caches.
	locationsMax = 5000
)

// Config is what Clients needs.
type Config struct {
	// Addr is the address of the node's own port.
	Addr string
	// Client configures the clients.
	Client client.Config
	// Max bounds the number of clients.
	Max int
}

// Clients has the clients by which a node uses the cluster for principals. It is safe for concurrent use.
type Clients struct {
	cfg     Config
	closing sync.WaitGroup // of clients that are dropped

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		closed  bool
		clients map[Principal]*shared
	}
}

// shared is a client and the number of its holders. Clients.mu guards the fields but ready, client and err, which are set before ready is closed.
type shared struct {
	holders int
	idle    *time.Timer // closes the client; stopped while it has holders, and nil before it had none
	ready   chan struct{}
	client  *client.Client
	err     error
}

// NewClients returns Clients without a client.
func NewClients(cfg Config) *Clients {
	c := &Clients{cfg: cfg}
	c.mu.clients = map[Principal]*shared{}
	return c
}

// Hold returns a client for a principal, or for all callers of an open cluster if p is the zero Principal. The caller calls release once it does not use
// the client any more. Errors: those of client.Open; *api.OverloadedError; client.ErrClosed.
func (c *Clients) Hold(ctx context.Context, p Principal) (_ *client.Client, release func(), err error) {
	s, opens, err := c.hold(p)
	if err != nil {
		return nil, nil, err
	}
	if opens {
		c.open(ctx, p, s)
	}
	select {
	case <-s.ready:
		err = s.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.release(p, s)
		return nil, nil, err
	}
	return s.client, sync.OnceFunc(func() { c.release(p, s) }), nil
}

// open opens a client, for all that wait for it: the end of ctx does not matter.
func (c *Clients) open(ctx context.Context, p Principal, s *shared) {
	cfg := c.cfg.Client
	cfg.LocationsMax = locationsMax
	if p != (Principal{}) {
		cfg.Prepare = p.prepare
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	s.client, s.err = client.Open(ctx, c.cfg.Addr, cfg)
	if s.err != nil { // the next holder tries again
		c.mu.Lock()
		delete(c.mu.clients, p)
		c.mu.Unlock()
	}
	close(s.ready)
}

// hold counts a holder of a principal's client. If opens is true, there is none, and the caller opens it.
func (c *Clients) hold(p Principal) (s *shared, opens bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, false, client.ErrClosed
	}
	if s = c.mu.clients[p]; s == nil {
		if !c.fitsLocked(p) || len(c.mu.clients) >= c.cfg.Max && !c.dropIdleLocked() {
			return nil, false, &api.OverloadedError{Reason: "too many users have requests at this node", RetryAfter: time.Second}
		}
		s, opens = &shared{ready: make(chan struct{})}, true
		c.mu.clients[p] = s
	}
	s.holders++
	if s.idle != nil {
		s.idle.Stop()
	}
	return s, opens, nil
}

// fitsLocked reports whether a principal may have another client: its credentials may have as many that are held as are left to others.
func (c *Clients) fitsLocked(p Principal) bool {
	held, own := 0, 0
	for other, s := range c.mu.clients {
		if s.holders > 0 {
			held++
			if other.Name == p.Name {
				own++
			}
		}
	}
	return p == (Principal{}) || own <= c.cfg.Max-held-1
}

// dropIdleLocked drops a client without holders. It returns false if there is none.
func (c *Clients) dropIdleLocked() bool {
	for p, s := range c.mu.clients {
		if s.holders == 0 {
			s.idle.Stop()
			c.dropLocked(p, s)
			return true
		}
	}
	return false
}

// dropLocked drops a client without holders, and closes it in the background.
func (c *Clients) dropLocked(p Principal, s *shared) {
	delete(c.mu.clients, p)
	c.closing.Go(s.close)
}

// close closes a client, once it is open.
func (s *shared) close() {
	<-s.ready
	if s.err == nil {
		_ = s.client.Close() // its error is always nil
	}
}

// release counts a holder less.
func (c *Clients) release(p Principal, s *shared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.holders--
	switch {
	case s.holders > 0 || s.err != nil || c.mu.closed:
	case s.idle == nil:
		s.idle = time.AfterFunc(idleTime, func() { c.expire(p, s) })
	default:
		s.idle.Reset(idleTime)
	}
}

// expire drops a client if it has no holders.
func (c *Clients) expire(p Principal, s *shared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.holders == 0 && c.mu.clients[p] == s {
		c.dropLocked(p, s)
	}
}

// Close closes all clients, held ones too, and waits for them.
func (c *Clients) Close() {
	c.mu.Lock()
	c.mu.closed = true
	all := c.mu.clients
	c.mu.clients = map[Principal]*shared{}
	c.mu.Unlock()
	for _, s := range all {
		if s.idle != nil {
			s.idle.Stop()
		}
		s.close()
	}
	c.closing.Wait()
}
