package gossipkey

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/stages"
	"github.com/steledb/stele/rpc"
)

// Service has the node's gossip keys, and rotates them. Safe for concurrent use. On an open node it has none.
type Service struct {
	Config
	keys     atomic.Pointer[[][]byte] // the first encrypts
	rotating sync.Mutex               // held during each step of a rotation
	progress stages.Progress
}

// Config has what the service needs.
type Config struct {
	Ctx      context.Context // of the node
	Log      *slog.Logger
	ID       func() string // this node's
	Meta     *namespace.Access
	Catalog  *namespace.Catalog
	Changes  *changes.Changes
	Peers    Peers
	IsMaster func() bool
	// RaftEpoch returns the epoch of the lock service's Raft group: it is larger after a recovery.
	RaftEpoch func() uint64
	Removed   Removed
	// Issuers returns nodes, besides this one, of which the first is the master.
	Issuers func() []string
	// Nodes returns all nodes of the cluster.
	Nodes func(ctx context.Context) ([]Node, error)
	// Write makes the keys durable, and Apply makes gossip use them.
	Write, Apply func(keys [][]byte) error
	// Period is the interval of steps. Zero means 500 ms.
	Period time.Duration
}

// Node is a node of the cluster.
type Node struct {
	ID    string
	Alive bool // gossip sees it alive
}

// Removed has the removed nodes.
type Removed interface {
	// Check returns a removal.ErrRemoved for a removed node.
	Check(ctx context.Context, id string) error
	// Marked returns the removed nodes according to the lock service, All those that this node knows.
	Marked(ctx context.Context) (map[string]bool, error)
	All() map[string]bool
}

// Peers calls methods of other nodes. *peers.Set implements it.
type Peers interface {
	// Call calls a method of a node. The error is that of the connection, or an *rpc.Error from the node.
	Call(ctx context.Context, id, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error
}

// New returns a service without keys. Hold sets them.
func New(cfg Config) *Service {
	return &Service{Config: cfg, progress: stages.Progress{Dir: stages.Dir + "/gossip", ID: cfg.ID, Meta: cfg.Meta, Catalog: cfg.Catalog}}
}

// Register registers the method by which nodes fetch missing keys. The registrar rejects it on an open node.
func (s *Service) Register(r method.Registrar) {
	r.Handle(MethodKey, rpc.Spawned, authz.Guard{}, s.give)
}

// Hold sets the keys that are in the node's directory of keys.
func (s *Service) Hold(keys [][]byte) { s.keys.Store(&keys) }

// Keys returns the keys of gossip, the first of which encrypts; none if gossip is not encrypted. The caller must not change them.
func (s *Service) Keys() [][]byte {
	if keys := s.keys.Load(); keys != nil {
		return *keys
	}
	return nil
}

// Use makes the node use these gossip keys; the first encrypts. They are written to the disk first.
func (s *Service) Use(keys [][]byte) error {
	if slices.EqualFunc(s.Keys(), keys, bytes.Equal) {
		return nil
	}
	if err := s.Write(keys); err != nil {
		return fmt.Errorf("write the gossip keys: %w", err)
	}
	s.Hold(keys)
	return s.Apply(keys)
}
