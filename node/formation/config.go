package formation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/steledb/stele/rpc"
)

// DefaultPort is the port of an address that names none.
const DefaultPort = "7106"

// Peer is a node and where it is reached, both as host:port.
type Peer struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	RPC    string `json:"rpc"`
	Gossip string `json:"gossip,omitempty"`
}

// Config says how a node becomes part of a cluster. Zero values mean the defaults.
type Config struct {
	// Self is this node. Its addresses are those that others reach; see package reach.
	Self Peer
	// Version is the program's, for logs.
	Version string

	// Cluster is the cluster that the data folders are of, empty for a fresh node.
	// Voter tells that they hold a voter's Raft log. RaftEpoch is the group's.
	Cluster   string
	Voter     bool
	RaftEpoch uint64

	// Join are RPC addresses to look for a cluster at; a port left out is
	// DefaultPort. A name stands for all its addresses.
	Join []string
	// Expect is how many fresh nodes form a cluster together. Zero means one, which
	// does so at once, if Join is empty, and none if it is not.
	Expect int

	// Found is the id of the cluster that the node may found. Empty means a new one.
	Found string

	// Keys are the cluster's gossip keys, of 32 bytes each, or none. A node that says that it
	// encrypts with any of them is one of the cluster's.
	Keys [][]byte
	// Certified means that Dialer and the server let nodes with a certificate of the cluster alone speak, in place of Keys: a node
	// that was away while the gossip key was replaced has another one. Keys[0] is sent all the same, since earlier versions
	// look at it.
	Certified bool

	// Store keeps what must outlive the process.
	Store Store
	// PeersFile is where the members are remembered. Empty means nowhere.
	PeersFile string

	// Admit may refuse a node that asks to join, for example one that was removed.
	// The text of its error goes to the node. Nil admits all.
	Admit func(ctx context.Context, p Peer) error

	// Removed reports whether a node was removed from the cluster. Such a node is neither remembered nor named to others,
	// whatever node names it. It must not block. Nil means that none was removed.
	Removed func(id string) bool

	// Caller returns the id of the node that has made a call, as its certificate says: it speaks for itself alone.
	// Empty is one of which nothing is known, and Nil returns that.
	Caller func(c *rpc.Call) string

	// Round is how long a fresh node waits between two rounds of questions. Zero
	// means 500 ms.
	Round time.Duration
	// CallTimeout bounds one question. Zero means 2 s.
	CallTimeout time.Duration

	Logger *slog.Logger // nil discards

	// Dialer makes connections: TCP by default.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// keyBytes is the length of a gossip key.
const keyBytes = 32

// expectMax bounds Expect: hello lists all fresh nodes.
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, c.validate()
}

func (c *Config) validate() error {
	switch {
	case c.Self.ID == "" || c.Self.RPC == "":
		return errors.New("the node's id or RPC address is missing")
	case c.Store == nil:
		return errors.New("no store for what must outlive the process")
	case slices.ContainsFunc(c.Keys, func(k []byte) bool { return len(k) != keyBytes }):
		return fmt.Errorf("a gossip key has not %d bytes", keyBytes)
	case c.Expect < 0 || c.Expect > expectMax:
		return fmt.Errorf("expected nodes are %d, must be 0 to %d", c.Expect, expectMax)
	}
	for _, a := range c.Join {
		if _, err := WithPort(a); err != nil {
			return fmt.Errorf("address to join %q: %w", a, err)
		}
	}
	return nil
}

// Store keeps a fresh node's state. All of it is durable when a call returns; what
// is written is as a whole there or not.
type Store interface {
	// State returns what was last saved.
	State() State
	// Save keeps s.
	Save(s State) error
	// Found makes the node the founder of a cluster. The founding is to be taken up
	// again after a crash.
	Found(cluster string) error
	// Join makes the node a member of a cluster that exists.
	Join(cluster string) error
}

// State is what a fresh node must not forget.
type State struct {
	// Attempt numbers the node's attempts at founding, from 1. Active tells that the
	// last one has not been given up; none is ever taken up again.
	Attempt uint64 `json:"attempt,omitempty"`
	Active  bool   `json:"active,omitempty"`
	// Promise is what the node has promised to another, nil if nothing.
	Promise *Promise `json:"promise,omitempty"`
}

// Promise lets Founder alone found a cluster with this node, by that attempt.
type Promise struct {
	Founder string `json:"founder"`
	Attempt uint64 `json:"attempt"`
	RPC     string `json:"rpc"` // where the founder was, for people
}

// Outcome is what came of Run.
type Outcome struct {
	Cluster string
	// Founder tells that this node founded the cluster just now.
	Founder bool
	// Members are those that are known, without this node. A cluster of one, and a
	// voter that does not wait, may know none.
	Members []Peer
	// RaftEpoch is the highest that a member told, or Config.RaftEpoch.
	RaftEpoch uint64
}
