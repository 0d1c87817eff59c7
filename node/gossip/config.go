package gossip

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"slices"
	"time"
)

// streamMemoryMin covers all streams and one list of the largest size.
const streamMemoryMin = 8 << 20

// keyBytes is the length of a gossip key: AES-256's.
const keyBytes = 32

// Config configures a node's gossip. Zero values mean the defaults.
type Config struct {
	// Self is the node's meta; ID and RPC are required.
	Self Meta
	// Cluster is the cluster's id. Messages of other clusters are dropped.
	Cluster string
	// Keys encrypt and authenticate all messages, 32 bytes each. The first encrypts and all
	// decrypt, so that a cluster can change keys. Without keys gossip is in the clear and any host
	// may take part.
	Keys [][]byte

	// Bind is the host:port to listen on, UDP and TCP. Port 0 means any free port.
	Bind string
	// Open opens the sockets at Bind. Nil means those of the operating system, by Open.
	Open func(bind string, logger *log.Logger) (Sockets, error)
	// Advertise is the address for other nodes, host or host:port; a name is resolved once. Empty:
	// see package reach.
	Advertise string

	// Seeds returns gossip addresses to try when no live member is known there, such as those of
	// remembered members. It is called periodically and must not block. Nil means none.
	Seeds func() []string

	// Removed reports whether a node was removed from the cluster. Members does not list such a
	// node, even if it is alive or has restarted. It must not block. Nil means that none was
	// removed.
	Removed func(id string) bool

	// Keep is how long a dead member, or one that left, is listed. Zero means 24 h.
	Keep time.Duration

	// StreamMemory bounds the memory of inbound streams, in bytes. Zero means 12 MiB; at least 8
	// MiB, which fits a list of the largest size.
	StreamMemory int64

	Logger *slog.Logger // nil discards

	// reconnect is the period of attempts to reach dead members and seeds. Zero means 5 s.
	reconnect time.Duration
	// slower multiplies all times: tests run more members than they have processors for. Zero means
	// 1.
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
	if c.Open == nil {
		c.Open = Open
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
		return fmt.Errorf("gossip key does not have %d bytes", keyBytes)
	case c.StreamMemory < streamMemoryMin:
		return fmt.Errorf("gossip stream memory is %d bytes, must be at least %d", c.StreamMemory, streamMemoryMin)
	case c.Bind == "":
		return errors.New("no address to listen on")
	}
	_, err := c.Self.encode()
	return err
}
