package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// Peer is a server of the group as a Dialer reached it.
type Peer struct {
	Service api.Service
	// Close gives the connection up; calls under way end. Nil: nothing to do.
	Close func() error
}

// Dialer connects to servers of the group. A node gives one that answers its own
// address with its own group's Service.
type Dialer interface {
	// Dial connects to the server at addr, which Servers or another server named. After
	// ErrRefused a call does not look on for a leader.
	Dial(ctx context.Context, addr string) (Peer, error)
}

// Locator knows where servers of the group may be found: fixed addresses, or what
// gossip tells.
type Locator interface {
	// Servers returns addresses, likeliest first. Any server will do, for it knows
	// who leads; one that is gone costs time.
	Servers() []string
}

// Addresses is a Locator that knows fixed ones.
type Addresses []string

// Servers implements Locator.
func (a Addresses) Servers() []string { return a }

// Config says how a Client finds the group. Zero always means the default given.
type Config struct {
	// Locator must be set.
	Locator Locator
	// Dialer makes connections: rpc over what Dial makes.
	Dialer Dialer
	// Dial connects to a server: TCP. It is for the Dialer of this package alone.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// DialTimeout bounds one attempt to connect: 1 s.
	DialTimeout time.Duration
	// RetryTimeMax is how long a call goes on looking for a leader when its context
	// ends later: 45 s, the grace period.
	RetryTimeMax time.Duration
	// Clock measures leases: the machine's monotonic clock.
	Clock Clock
	// Logger is told of lost leaders and jeopardy: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Locator == nil {
		return c, errors.New("session: no locator")
	}
	if c.Dialer == nil {
		c.Dialer = framed{c.Dial}
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = time.Second
	}
	if c.RetryTimeMax == 0 {
		c.RetryTimeMax = GraceDefault
	}
	if c.Clock == nil {
		c.Clock = newSystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.DialTimeout < 0 || c.RetryTimeMax < 0 {
		return c, errors.New("session: a duration is negative")
	}
	return c, nil
}

// GraceDefault is the grace period, as in Chubby: how long a session in jeopardy
// waits for a leader before it is given up. Nothing is believed meanwhile, and a new
// leader keeps every session that it finds, so a long one costs no safety; a short
// one would end sessions in outages that they could survive. An election takes 3 s,
// a restart of all servers some 20 s.
const GraceDefault = 45 * time.Second

// Options are those of one session. Zero always means the default given.
type Options struct {
	// Name says who this is, to people and in LockedError: at most
	// api.SessionNameBytesMax bytes.
	Name string
	// Lease is the lease to ask for: api.LeaseDefault. Longer ones cost the leader
	// less and keep locks of the dead for longer.
	Lease time.Duration
	// Grace is the grace period: GraceDefault. Negative: none.
	Grace time.Duration
	// CacheFiles and CacheBytes bound the cache: 10,000 files of 64 MiB together.
	// Negative CacheFiles: no cache.
	CacheFiles int
	CacheBytes int64
	// QueueMax bounds the events that wait in one Watcher: 4096. Beyond it they are
	// dropped, and the Watcher gets FailedOver: read again what is watched.
	QueueMax int
}

func (o Options) withDefaults() (Options, error) {
	if o.Lease == 0 {
		o.Lease = api.LeaseDefault
	}
	if o.Grace == 0 {
		o.Grace = GraceDefault
	}
	o.Grace = max(o.Grace, 0)
	if o.CacheFiles == 0 {
		o.CacheFiles = 10_000
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.QueueMax == 0 {
		o.QueueMax = 4096
	}
	switch {
	case o.Lease < api.LeaseMin || o.Lease > api.LeaseMax:
		return o, fmt.Errorf("session: lease is %v, want %v to %v", o.Lease, api.LeaseMin, api.LeaseMax)
	case len(o.Name) > api.SessionNameBytesMax:
		return o, fmt.Errorf("session: name is %d bytes long, at most %d", len(o.Name), api.SessionNameBytesMax)
	case o.CacheBytes < 0 || o.QueueMax < 1:
		return o, errors.New("session: a bound is below 1")
	}
	return o, nil
}

// framed dials with package rpc in framed mode.
type framed struct {
	dial func(ctx context.Context, addr string) (net.Conn, error) // nil: TCP
}

func (f framed) Dial(ctx context.Context, addr string) (Peer, error) {
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{MessageTimeout: 10 * time.Second, Dialer: f.dial})
	if err != nil {
		return Peer{}, err
	}
	return Peer{api.Remote(conn), conn.Close}, nil
}
