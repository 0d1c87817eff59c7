package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// streamMemoryMin has room for all streams, and a list of the largest size.
const streamMemoryMin = 8 << 20

// keyBytes is the length of a gossip key: AES-256's.
const keyBytes = 32

// Config says how a node takes part. Zero values mean the defaults.
type Config struct {
	// Self is what the node tells of itself; ID and RPC are needed.
	Self Meta
	// Cluster is the cluster's id. What other clusters send is dropped.
	Cluster string
	// Keys encrypt and authenticate everything, 32 bytes each: the first what is sent, all what
	// comes, so that a cluster can go from one to another. None means that gossip
	// is in the clear and anybody may take part.
	Keys [][]byte

	// Bind is the host:port to listen on, UDP and TCP. A port of 0 takes any.
	Bind string
	// Advertise is how others reach it, host or host:port; a name is looked up once.
	// Empty: see package reach.
	Advertise string

	// Seeds returns gossip addresses to talk to in case nobody there is known, such as
	// those of remembered members. It is called now and then and must not block. Nil
	// means none.
	Seeds func() []string

	// Removed reports whether a node was removed from the cluster. Members does not list such a node, also if it is alive
	// and was started anew. It must not block. Nil means that none was removed.
	Removed func(id string) bool

	// Keep is how long a member that is dead or has left is listed. Zero means 24 h.
	Keep time.Duration

	// StreamMemory is what streams that come in take at most, at a time. Zero means 12 MiB; at least 8 MiB, for which a list of
	// the largest size fits.
	StreamMemory int64

	Logger *slog.Logger // nil discards

	// reconnect is how often a dead member or a seed is tried. Zero means 5 s.
	reconnect time.Duration
	// slower makes all of gossip that many times slower: tests run more members than
	// they have processors for. Zero means 1.
	slower int
}

func (c Config) withDefaults() (Config, error) {
	if c.Keep == 0 {
		c.Keep = 24 * time.Hour
	}
	if c.reconnect == 0 {
		c.reconnect = 5 * time.Second
	}
	if c.StreamMemory == 0 {
		c.StreamMemory = 12 << 20
	}
	if c.Removed == nil {
		c.Removed = func(string) bool { return false }
	}
	c.slower = max(c.slower, 1)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, c.validate()
}

func (c *Config) validate() error {
	switch {
	case c.Self.ID == "" || c.Self.RPC == "":
		return errors.New("the node's id or RPC address is missing")
	case c.Cluster == "" || len(c.Cluster) > 255:
		return fmt.Errorf("cluster id has %d bytes, must have 1 to 255", len(c.Cluster))
	case slices.ContainsFunc(c.Keys, func(k []byte) bool { return len(k) != keyBytes }):
		return fmt.Errorf("a gossip key has not %d bytes", keyBytes)
	case c.StreamMemory < streamMemoryMin:
		return fmt.Errorf("memory for streams of gossip is %d bytes, must be at least %d", c.StreamMemory, streamMemoryMin)
	case c.Bind == "":
		return errors.New("no address to listen on")
	}
	_, err := c.Self.encode()
	return err
}
