package members

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/rpc"
)

// Config has what the service of members needs. All fields are required.
type Config struct {
	Ctx        context.Context // ends when the node closes
	Background *sync.WaitGroup
	Log        *slog.Logger
	Began      time.Time // when the node started

	// Self, Name, Zone, Version, HTTP, DiskSpace and DiskGrowth are published by gossip: HTTP returns the address of the node's metrics or
	// "", DiskSpace the size of its disks and the free space for data, in bytes, and DiskGrowth by how many bytes a day their used space
	// grows, and over which period that was observed.
	Self                *identity.Self
	Name, Zone, Version string
	HTTP                func() string
	DiskSpace           func() (total, free int64)
	DiskGrowth          func() (perDay int64, over time.Duration)
	// LogDiskFull reports whether the disk of the lock service's log on this node is full. votes is false if the node has no such log.
	LogDiskFull func() (full, votes bool)

	Meta    *namespace.Access
	Catalog *namespace.Catalog
	// Removed reports whether a node was removed. It does not block.
	Removed func(id string) bool
	// Look is called with the members every lookPause, and when they change.
	Look func([]gossip.Member)
	// DialNode connects to a node, and verifies that it is that node.
	DialNode func(ctx context.Context, id string) (*rpc.Conn, error)
}

// Service knows the nodes of the cluster: their addresses, their state by gossip, and the registry of nodes.
type Service struct {
	Config
	known    addresses
	registry registry
	damaged  loglimit.ByReason // files of the registry
	// formation and ring are set by Start; ring is nil if gossip is off.
	formation *formation.Service
	ring      atomic.Pointer[gossip.Ring]
}

// New returns the service of members. It knows no node before Start.
func New(cfg Config) *Service {
	sv := &Service{Config: cfg}
	sv.known.removed = cfg.Removed
	return sv
}

// Ring returns the node's part of gossip; nil before Start, and if gossip is off.
func (sv *Service) Ring() *gossip.Ring { return sv.ring.Load() }

// Gossiped returns the members by gossip; none if gossip is off.
func (sv *Service) Gossiped() []gossip.Member {
	if ring := sv.Ring(); ring != nil {
		return ring.Members()
	}
	return nil
}

// AliveVoters returns the ids of the other nodes that vote and are alive, by gossip.
func (sv *Service) AliveVoters() (ids []string) {
	for _, m := range sv.Gossiped() {
		if m.Voter && !m.Self && m.State == gossip.Alive {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// SetGossipKeys makes gossip, if it runs, use keys, the first of which encrypts.
func (sv *Service) SetGossipKeys(keys [][]byte) error {
	if ring := sv.Ring(); ring != nil {
		return ring.SetKeys(keys)
	}
	return nil
}
