package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// Replay says which changes are sent again after their outcome became unknown,
// because a connection broke before the answer came. Every replay means that a
// change may take effect twice, with changes of others in between: a row that
// somebody wrote after it was deleted may be deleted again.
type Replay int

const (
	// ReplayDefault is, in a Config, ReplayNever; in a call, what the Config says.
	ReplayDefault Replay = iota
	// ReplayNever returns an *AmbiguousError. Operations stay linearizable.
	ReplayNever
	// ReplayIdempotent sends mutations again that delete, or set with timestamps of
	// their own: twice in a row is as once. Right for a single writer, such as a
	// bulk load.
	ReplayIdempotent
	// ReplayAll sends also those again that ask for the server's timestamp: a
	// value may then stand there twice, under two timestamps.
	ReplayAll
)

// Config tunes a Client. Zero always means the default given.
type Config struct {
	// Conns is the number of connections to each node: 1. Calls share them, as many
	// at a time as there are; more connections cost batching of their messages. One more is made
	// for lookups, once they would have to wait behind large requests.
	Conns int
	// DialTimeout bounds one attempt to connect: 5 s.
	DialTimeout time.Duration
	// SilenceMax is how long calls wait for a node that says nothing at all, not even that
	// it is still at work, until its connection is given up: 10 s.
	SilenceMax time.Duration
	// RetryTimeMax is how long a call goes on trying to reach a node that is down,
	// overloaded or starting: 15 s. Negative is no retry. A context's deadline that
	// is earlier counts.
	RetryTimeMax time.Duration
	// RetriesPerSecond is what the retry budget grows by, beyond one retry for every
	// five calls that succeed: 10. It holds ten seconds' worth.
	RetriesPerSecond int
	// Replay is for changes whose outcome is unknown: ReplayNever.
	Replay Replay
	// BatchRows and BatchBytes bound the batches that ApplyAll and GetAll send:
	// 1000 rows (GetAll: never over 100), 256 KiB. A larger mutation is sent alone.
	BatchRows  int
	BatchBytes int64
	// BatchesInFlight is how many batches of one ApplyAll or GetAll are under way at
	// once: 4.
	BatchesInFlight int
	// LocationsMax is how many tablets the Client remembers the servers of, some 300
	// bytes each: 20,000, at least 1000.
	LocationsMax int
	// Credential proves to nodes who the client is, and by it the client knows nodes of
	// its cluster from others: all connections are TLS then. Nodes with certificates take
	// no others. None: connections are plain, for nodes that are open.
	Credential *pki.Credential
	// Token is instead of a Credential, for clients that have no certificate: its access
	// token is shown to nodes of the cluster that has made it, and to no others.
	Token token.Token
	// Dial connects to a node, below what Credential and Token add: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Logger gets lost and regained connections: none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	set(&c.Conns, 1)
	set(&c.DialTimeout, 5*time.Second)
	set(&c.SilenceMax, 10*time.Second)
	set(&c.RetryTimeMax, 15*time.Second)
	set(&c.RetriesPerSecond, 10)
	set(&c.Replay, ReplayNever)
	set(&c.BatchRows, 1000)
	set(&c.BatchBytes, 256<<10)
	set(&c.BatchesInFlight, 4)
	set(&c.LocationsMax, 20_000)
	if c.Dial == nil {
		d := &net.Dialer{}
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	c.Dial = c.secured(c.Dial)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func set[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Validate says what is wrong with the configuration, defaults filled in.
func (c Config) Validate() error {
	switch {
	case c.Conns < 1 || c.Conns > 64:
		return fmt.Errorf("connections: %d, want 1 to 64", c.Conns)
	case c.DialTimeout < 0:
		return errors.New("dial timeout is negative")
	case c.SilenceMax < 0:
		return errors.New("silence max is negative")
	case c.RetriesPerSecond < 0:
		return errors.New("retries per second are negative")
	case c.Replay < ReplayNever || c.Replay > ReplayAll:
		return fmt.Errorf("unknown replay mode %d", c.Replay)
	case c.BatchRows < 1 || c.BatchRows > 100_000:
		return fmt.Errorf("batch rows: %d, want 1 to 100,000", c.BatchRows)
	case c.BatchBytes < 1 || c.BatchBytes > 256<<20:
		return fmt.Errorf("batch bytes: %d, want 1 to 256 MiB", c.BatchBytes)
	case c.BatchesInFlight < 1 || c.BatchesInFlight > 256:
		return fmt.Errorf("batches in flight: %d, want 1 to 256", c.BatchesInFlight)
	case c.LocationsMax < 1000 || c.LocationsMax > 10_000_000:
		return fmt.Errorf("locations: %d, want 1000 to 10,000,000", c.LocationsMax)
	}
	return c.checkIdentity()
}
