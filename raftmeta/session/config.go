package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// Peer is a connection to a server of the group.
type Peer struct {
	Service api.Service
	// Close closes the connection and ends its calls. It may be nil.
	Close func() error
}

// Dialer connects to servers of the group. A node provides one that returns its own group's Service
// for its own address.
type Dialer interface {
	// Dial connects to the server at addr, which Servers or a leader hint named. A call that gets
	// ErrRefused does not try other servers.
	Dial(ctx context.Context, addr string) (Peer, error)
}

// Locator lists addresses of servers of the group, either fixed or from gossip.
type Locator interface {
	// Servers returns addresses, the most likely leaders first. Any server will do, because it
	// knows the leader; an unreachable one costs time.
	Servers() []string
}

// Addresses is a Locator with fixed addresses.
type Addresses []string

// Servers implements Locator.
func (a Addresses) Servers() []string { return a }

// Config configures a Client. Zero values mean the defaults.
type Config struct {
	// Locator is required.
	Locator Locator
	// Dialer makes connections. Nil means package rpc over connections from Dial.
	Dialer Dialer
	// Dial connects to a server. Nil means TCP. It is used only if Dialer is nil.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// DialTimeout bounds one attempt to connect. Zero means 1 s.
	DialTimeout time.Duration
	// RetryTimeMax bounds how long a call looks for a leader if its context ends later. Zero means
	// 45 s, the grace period.
	RetryTimeMax time.Duration
	// Clock measures leases. Nil means timing.LeaseClock.
	Clock Clock
	// Logger receives lost leaders and sessions in jeopardy. Nil means slog.Default().
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
		c.Clock = timing.LeaseClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.DialTimeout < 0 || c.RetryTimeMax < 0 {
		return c, errors.New("session: a duration is negative")
	}
	return c, nil
}

// GraceDefault is the default grace period, as in Chubby: how long a session in jeopardy waits for
// a leader before it expires. During it no lock is held and the cache does not answer, and a new
// leader keeps every session that it finds, so a long grace period does not affect safety. A short
// one would end sessions in outages that they could survive. An election takes 3 s, a restart of
// all servers some 20 s.
const GraceDefault = 45 * time.Second

// Options are the options of one session. Zero values mean the defaults.
type Options struct {
	// Name identifies the client to operators and in LockedError: at most api.SessionNameBytesMax
	// bytes.
	Name string
	// Lease is the lease to request. Zero means api.LeaseDefault. A longer one costs the leader
	// less, but the locks of a dead client stay held for longer.
	Lease time.Duration
	// Grace is the grace period. Zero means GraceDefault, a negative value none.
	Grace time.Duration
	// CacheFiles and CacheBytes bound the cache. Zero means 10,000 files and 64 MiB. Negative
	// CacheFiles means no cache.
	CacheFiles int
	CacheBytes int64
	// QueueMax bounds the queued events of one Watcher. Zero means 4096. Above it events are
	// dropped and the Watcher gets FailedOver; the application then reads again what it watches.
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
		return o, fmt.Errorf("session: cache of %d bytes and queue of %d events, want at least 0 and 1", o.CacheBytes, o.QueueMax)
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
