package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// Replay selects the changes that are sent again after their outcome became unknown because a
// connection broke before the response. A replayed change may take effect twice, with other
// clients' changes in between. For example, a row written after its deletion may be deleted again.
type Replay int

const (
	// ReplayDefault means ReplayNever in a Config, and the Config's mode in a call.
	ReplayDefault Replay = iota
	// ReplayNever returns an *AmbiguousError. Operations stay linearizable.
	ReplayNever
	// ReplayIdempotent replays mutations that only delete, or set cells with explicit timestamps:
	// applying them twice in a row equals applying them once. It suits a single writer, such as a
	// bulk load.
	ReplayIdempotent
	// ReplayAll also replays mutations that use the server's timestamp or add to aggregate cells. A value
	// may then exist twice, with two timestamps, or be added twice.
	ReplayAll
)

// Config configures a Client. The zero value of a field means the default given in its comment.
type Config struct {
	// Conns is the number of connections to each node: 1. Concurrent calls share them. With more
	// connections fewer messages are coalesced. One more connection is opened for lookups that
	// would have to wait behind large requests.
	Conns int
	// DialTimeout bounds one attempt to connect: 5 s.
	DialTimeout time.Duration
	// SilenceMax is how long calls wait for a node that sends nothing at all, not even keepalives,
	// until its connection is closed: 10 s.
	SilenceMax time.Duration
	// MessageBytesMax is the largest response that is accepted, in bytes, at least 64 KiB: 320 MiB.
	MessageBytesMax int
	// RetryTimeMax is how long a call is retried if a node is down, overloaded or starting: 15 s. A
	// negative value means no retries. An earlier deadline of the context takes precedence.
	RetryTimeMax time.Duration
	// RetriesPerSecond is the rate at which the retry budget grows, in addition to one retry for
	// every five successful calls: 10. The budget holds ten seconds' worth.
	RetriesPerSecond int
	// Replay applies to changes whose outcome is unknown: ReplayNever.
	Replay Replay
	// BatchRows and BatchBytes bound the batches of ApplyAll and GetAll: 1000 rows (GetAll: at most
	// 100) and 256 KiB. A larger mutation is sent alone.
	BatchRows  int
	BatchBytes int64
	// BatchesInFlight is the number of concurrent batches of one ApplyAll or GetAll: 4.
	BatchesInFlight int
	// LocationsMax is the number of tablets whose locations are cached: 20,000, at least 1000. Each
	// takes about 300 bytes.
	LocationsMax int
	// Credential authenticates the client to nodes, and nodes of its cluster to the client. All
	// connections are then TLS. Nodes with certificates accept no others. Without it connections
	// are plain, for open nodes.
	Credential *pki.Credential
	// Token is an alternative to Credential, for clients without a certificate. Its access token is
	// sent only to nodes of the cluster that created it.
	Token token.Token
	// Dial connects to a node, below the TLS of Credential and Token: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Prepare is called with each new connection, before other calls use it. An error fails the
	// connection. Nil does nothing.
	Prepare func(ctx context.Context, c *rpc.Conn) error
	// ReportEvery is how often the client reports to the cluster what it counts: calls, errors, retries, lookups of locations, and the times of
	// reads and writes as it sees them. "stele client list" and the console show the reports of all clients. 1 s to 1 min: none.
	ReportEvery time.Duration
	// ReportName is the name of the program in reports, at most 64 bytes: the base name of os.Args[0].
	ReportName string
	// Logger gets messages about lost and restored connections: none.
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
	set(&c.ReportName, programName())
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

// Validate checks the configuration, whose defaults must have been filled in.
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
	if err := c.checkReport(); err != nil {
		return err
	}
	return c.checkIdentity()
}
