package formation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/rpc"
)

// DefaultPort is the port of an address without one.
const DefaultPort = "7106"

// Peer is a node and its addresses, both as host:port.
type Peer struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	RPC    string `json:"rpc"`
	Gossip string `json:"gossip,omitempty"`
}

// Config configures how a node becomes part of a cluster. Zero values mean the defaults.
type Config struct {
	// Self is this node with its advertised addresses; see package reach.
	Self Peer
	// Version is the program version, for logs.
	Version string

	// Cluster is the cluster of the data folders; empty for a fresh node. Voter reports whether
	// they hold a voter's Raft log. RaftEpoch is the epoch of its group.
	Cluster   string
	Voter     bool
	RaftEpoch uint64

	// Join are the RPC addresses of seeds; the default port is DefaultPort. A name counts as each
	// of its addresses.
	Join []string
	// Expect is the number of fresh nodes that form a cluster together. If zero, a node without
	// Join founds a cluster of one at once, and a node with Join founds none.
	Expect int

	// Found is the id of a cluster that this node founds. Empty means a new id.
	Found string

	// Keys are the cluster's gossip keys, of 32 bytes each, or none. A node that sends the
	// fingerprint of any of them belongs to the cluster.
	Keys [][]byte
	// Certified replaces the check of Keys: Dialer and the server accept only nodes with a
	// certificate of the cluster. A node that was down while the gossip key was replaced has
	// another key. The fingerprint of Keys[0] is still sent, since earlier versions check it.
	Certified bool

	// Store stores the state that must survive the process.
	Store Store
	// PeersFile is the path of the file of remembered members. Empty means none.
	PeersFile string
	// FS is the file system of PeersFile. Nil means that of the operating system.
	FS vfs.FS

	// Admit may reject a node that asks to join, for example one that was removed. A *RefusedError
	// ends the start of that node, which gets its Reason. After any other error the node retries: it
	// cannot be admitted now, for example because the lock service has no leader. Nil admits all.
	Admit func(ctx context.Context, p Peer) error

	// Removed reports whether a node was removed from the cluster. Such a node is neither
	// remembered nor listed in hellos, whichever node names it. It must not block. Nil means that
	// none was removed.
	Removed func(id string) bool

	// Caller returns the id of a calling node by its certificate; a node may call only for itself.
	// Empty means unknown, and nil always returns that.
	Caller func(c *rpc.Call) string

	// Round is the period of a fresh node's rounds. Zero means 500 ms.
	Round time.Duration
	// CallTimeout bounds one call. Zero means 2 s.
	CallTimeout time.Duration

	Logger *slog.Logger // nil discards

	// Dialer opens connections. Nil means TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// keyBytes is the length of a gossip key.
const keyBytes = 32

// expectMax bounds Expect, since a hello lists all fresh nodes.
const expectMax = 1000

func (c Config) withDefaults() (Config, error) {
	if c.Round == 0 {
		c.Round = 500 * time.Millisecond
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = 2 * time.Second
	}
	if c.Caller == nil {
		c.Caller = func(*rpc.Call) string { return "" }
	}
	if c.Removed == nil {
		c.Removed = func(string) bool { return false }
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, c.validate()
}

func (c *Config) validate() error {
	switch {
	case c.Self.ID == "" || c.Self.RPC == "":
		return errors.New("node id or RPC address is missing")
	case c.Store == nil:
		return errors.New("store is missing")
	case slices.ContainsFunc(c.Keys, func(k []byte) bool { return len(k) != keyBytes }):
		return fmt.Errorf("gossip key does not have %d bytes", keyBytes)
	case c.Expect < 0 || c.Expect > expectMax:
		return fmt.Errorf("expect %d nodes: must be 0 to %d", c.Expect, expectMax)
	}
	for _, a := range c.Join {
		if _, err := WithPort(a); err != nil {
			return fmt.Errorf("address to join %q: %w", a, err)
		}
	}
	return nil
}

// Store stores a fresh node's state. When a call returns, the change is durable; each is written as
// a whole or not at all.
type Store interface {
	// State returns the last saved state.
	State() State
	// Save stores s.
	Save(s State) error
	// Found makes the node the founder of a cluster. The founding must be resumed after a crash.
	Found(cluster string) error
	// Join makes the node a member of an existing cluster.
	Join(cluster string) error
}

// State is the durable state of a fresh node.
type State struct {
	// Attempt numbers the node's attempts to found a cluster, from 1. Active reports that the last
	// one has not been given up. An attempt that was given up is never resumed.
	Attempt uint64 `json:"attempt,omitempty"`
	Active  bool   `json:"active,omitempty"`
	// Promise is this node's promise to another one; nil if there is none.
	Promise *Promise `json:"promise,omitempty"`
}

// Promise allows Founder alone to found a cluster with this node, by that attempt.
type Promise struct {
	Founder string `json:"founder"`
	Attempt uint64 `json:"attempt"`
	RPC     string `json:"rpc"` // the founder's last address, for messages
}

// Outcome is the result of Run.
type Outcome struct {
	Cluster string
	// Founder reports that this node has just founded the cluster.
	Founder bool
	// Members are the known members, without this node. A cluster of one knows none, and a voter
	// that did not wait may know none.
	Members []Peer
	// RaftEpoch is the highest epoch that a member reported, or Config.RaftEpoch.
	RaftEpoch uint64
}
