package blobfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/gc"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/background"
	"github.com/steledb/stele/internal/timing"
)

// Cluster is what a store needs to work with other nodes. The zero value of a field means its
// default, if the field names one.
type Cluster struct {
	Membership Membership
	Lists      Lists
	Clock      Clock // default: the system's monotonic clock

	// Logs configures replicated logs.
	Logs replog.Config
	// Repair configures the repair of sealed extents.
	Repair repair.Config

	// Replicas is the replication factor: the number of nodes that keep an extent, if there are
	// that many. Default 3, at most 8.
	Replicas int
	// ReplyTimeout is how long a node that owes an answer may be silent before another node
	// replaces it. Default 3 s: longer than a garbage collection pause or a busy disk, shorter than
	// the timeouts of callers.
	ReplyTimeout time.Duration
	// SealTimeout is the same bound for a node that is sealing an extent, as long as it answers
	// other requests. Default 30 s: ten times what 64 MiB take on a slow and busy disk.
	SealTimeout time.Duration
	// HedgeAfter is how long a read waits for one node before it also asks the next. Default 250
	// ms.
	HedgeAfter time.Duration
	// WindowBytes is the most unacknowledged bytes of each extent being written. A writer without a
	// local replica buffers as many again. Default and maximum 8 MiB; at least 256 KiB.
	WindowBytes int64
	// StreamIdle is how long a node keeps a stream that receives nothing. Default 2 min.
	StreamIdle time.Duration

	// GC configures garbage collection.
	GC gc.Config
}

func (c Cluster) withDefaults() Cluster {
	if c.Clock == nil {
		c.Clock = timing.SystemClock()
	}
	orDefault(&c.Replicas, 3)
	c.Logs = c.Logs.WithDefaults()
	c.Repair = c.Repair.WithDefaults()
	c.GC = c.GC.WithDefaults()
	orDefault(&c.ReplyTimeout, 3*time.Second)
	orDefault(&c.SealTimeout, 30*time.Second)
	orDefault(&c.HedgeAfter, 250*time.Millisecond)
	orDefault(&c.StreamIdle, 2*time.Minute)
	orDefault(&c.WindowBytes, windowBytes)
	return c
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Validate returns an error if the configuration is invalid.
func (c Cluster) Validate() error {
	switch {
	case c.Replicas < 0 || c.Replicas > api.ChainMax:
		return fmt.Errorf("%d replicas, want 1 to %d", c.Replicas, api.ChainMax)
	case c.Logs.Validate() != nil:
		return c.Logs.Validate()
	case c.Repair.Validate() != nil:
		return c.Repair.Validate()
	case c.GC.Validate() != nil:
		return c.GC.Validate()
	case c.ReplyTimeout < 0 || c.SealTimeout < 0 || c.HedgeAfter < 0 || c.StreamIdle < 0:
		return errors.New("negative duration")
	case c.WindowBytes != 0 && (c.WindowBytes < 2*pieceBytes || c.WindowBytes > windowBytes):
		return fmt.Errorf("window of %d bytes, want %d to %d", c.WindowBytes, 2*pieceBytes, windowBytes)
	}
	return nil
}

// disks is the local part of the store.
type disks = local.Store

// Store is the block store as one node sees it: the local disks and, if there is a membership,
// those of the other members. It is safe for concurrent use.
type Store struct {
	*disks
	*gc.Pins
	cluster    Cluster
	self       string
	log        *slog.Logger
	peers      *members.Peers
	streams    streams
	cache      extentCache
	corruption *repair.Corruption
	gc         *gc.Collector
	logs       *replog.Logs
	repairer   *repair.Repairer // nil without a membership

	work *background.Group // the store's goroutines
	ctx  context.Context   // canceled by Close
}

// Open opens the store in the data folders of cfg, for a single node.
func Open(cfg Config) (*Store, error) { return OpenIn(Cluster{}, cfg) }

// OpenIn opens the store of a cluster node. cfg.Node is ignored: the membership has the node's
// name.
func OpenIn(cluster Cluster, cfg Config) (*Store, error) {
	if err := cluster.Validate(); err != nil {
		return nil, fmt.Errorf("open block store: %w", err)
	}
	s := &Store{cluster: cluster.withDefaults(), log: cfg.Logger, self: cfg.Node}
	if cluster.Membership != nil {
		s.self = cluster.Membership.Self()
		cfg.Node = s.self
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.disks, err = local.Open(cfg); err != nil {
		return nil, err
	}
	s.corruption = repair.NewCorruption(s.log)
	s.work = background.New()
	s.ctx = s.work.Context()
	s.peers = members.NewPeers(members.Config{
		Membership: cluster.Membership, Self: s.self, Clock: s.cluster.Clock, Work: s.work, ReplyTimeout: s.cluster.ReplyTimeout,
		ExtentBytes: s.ExtentBytes(), Local: s.Peer, Recovered: func() { s.repairer.PeerRecovered() },
	})
	s.streams.init(s)
	s.cache.init(s.disks)
	s.Pins = gc.NewPins()
	s.logs = replog.New(s.cluster.Logs, replog.Deps{
		Disks: s.disks, Peers: s.peers, Lists: s.cluster.Lists, Clock: s.cluster.Clock, Work: s.work, Logger: s.log,
		Replicas: s.cluster.Replicas, ReplyTimeout: s.cluster.ReplyTimeout, CallTimeout: s.cluster.SealTimeout,
	})
	s.gc = gc.New(s.cluster.GC, gc.Deps{
		Disks: s.disks, Peers: s.peers, Lists: s.cluster.Lists, Logs: s.logs, Pins: s.Pins, Clock: s.cluster.Clock, Logger: s.log,
		ReplyTimeout: s.cluster.ReplyTimeout, CallTimeout: s.cluster.SealTimeout,
		Held: s.held, Forget: s.cache.forgetExtent, Delete: s.Delete,
	})
	if s.cluster.Membership != nil && !s.cluster.Repair.Off && !cfg.ReadOnly {
		s.repairer = repair.New(s.cluster.Repair, repair.Deps{
			Disks: s.disks, Peers: s.peers, Logs: s.logs, Corruption: s.corruption, Clock: s.cluster.Clock, Work: s.work, Logger: s.log,
			Replicas: s.cluster.Replicas, ReplyTimeout: s.cluster.ReplyTimeout, CallTimeout: s.cluster.SealTimeout, Forget: s.cache.forgetExtent,
		})
		s.repairer.Start()
		s.work.Go(func() { s.gc.DropAbandoned(s.ctx) })
	}
	if s.cluster.Lists != nil && !cfg.ReadOnly {
		s.work.Go(func() { s.gc.PermitEvictions(s.ctx) })
	}
	return s, nil
}

// ReplicatedLogs returns the logs that are replicated on several nodes. The log methods of Store itself
// are those of package local.
func (s *Store) ReplicatedLogs() *replog.Logs { return s.logs }

// GC returns the garbage collection of this store.
func (s *Store) GC() *gc.Collector { return s.gc }

// Repairs returns the state of the repairer, zero if this node has none.
func (s *Store) Repairs() repair.Status { return s.repairer.Status() }

// Corrupt returns the extents on this node that were found corrupt, and the error of each.
func (s *Store) Corrupt() map[ExtentID]error { return s.corruption.All() }

// Abandon reports that the caller no longer needs a blob that others may share, see
// gc.Collector.Abandon.
func (s *Store) Abandon(h Handle) { s.gc.Abandon(h) }

// Close ends streams from other nodes, waits for the store's goroutines and closes the disks. A
// second call does nothing.
func (s *Store) Close() error {
	s.work.Stop()
	s.streams.close()
	s.work.Wait()
	s.cache.close()
	return s.disks.Close()
}

// Create begins a blob whose extents will be on this node and others. Garbage collection does not
// touch the blob before Release. It returns ErrDiskFull if all nodes are full, ErrFolderRetired if
// no disk is writable, ErrReadOnly or ErrClosed.
func (s *Store) Create(ctx context.Context) (*Writer, error) { return s.createPinned(ctx, 0) }

// CreateHighPriority is Create for a high-priority blob. If no other space is free, such a blob may use up
// to half of each disk's reserve: writing it lets the store free space, or nothing could be deleted
// without it. bytes is an upper estimate of the blob's length; each extent needs that much free
// space to begin. Zero means unknown.
func (s *Store) CreateHighPriority(ctx context.Context, bytes int64) (*Writer, error) {
	if bytes <= 0 {
		bytes = math.MaxInt64
	}
	return s.createPinned(ctx, bytes)
}

func (s *Store) createPinned(ctx context.Context, priorityBytes int64) (*Writer, error) {
	id := NewID()
	s.PinWritten(id)
	w, err := s.create(ctx, id, priorityBytes)
	if err != nil {
		s.Release(id)
	}
	return w, err
}

// create begins a blob. priorityBytes is the estimated length of a high-priority blob, else 0.
func (s *Store) create(ctx context.Context, id ID, priorityBytes int64) (*Writer, error) {
	dropped := func() { s.Release(id) }
	if s.peers.OnlyMember() {
		if priorityBytes > 0 {
			return s.disks.CreateHighPriorityAs(ctx, id, priorityBytes, dropped)
		}
		return s.disks.CreateAs(ctx, id, dropped)
	}
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	return local.NewWriter(id, local.WriterConfig{
		ExtentBytes: s.ExtentBytes(),
		Beside:      true,
		Dropped:     dropped,
		Begin: func(id ExtentID, offset int64) (local.ExtentSink, error) {
			x, err := s.newReplicatedWrite(id, offset, local.HighPriorityBytes(priorityBytes, offset, s.ExtentBytes()))
			if err != nil {
				return nil, err
			}
			return x, nil
		},
	})
}

// usable returns ErrClosed if the store is closed, else the error of ctx.
func (s *Store) usable(ctx context.Context) error {
	if s.work.Stopped() {
		return ErrClosed
	}
	return ctx.Err()
}

// OpenBlob opens a sealed blob, wherever its extents are. It returns ErrNoBlob if an extent is on
// no node, and a *CorruptError if no replica of an extent is good. It returns api.ErrUnreachable if
// nodes that may have an extent did not answer. The reader pins the blob until it is closed.
func (s *Store) OpenBlob(ctx context.Context, h Handle) (*Reader, error) {
	s.Pin(h.ID)
	r, err := s.openBlob(ctx, h)
	if err != nil {
		s.Unpin(h.ID)
		return nil, err
	}
	r.OnClose(func() { s.Unpin(h.ID) })
	return r, nil
}

func (s *Store) openBlob(ctx context.Context, h Handle) (*Reader, error) {
	if s.peers.OnlyMember() {
		return s.disks.OpenBlob(ctx, h)
	}
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("open blob %s: %w", h.ID, err)
	}
	return local.OpenExtents(h, func(ref ExtentRef) (local.ExtentSource, error) {
		x, err := s.openSource(ctx, h.ID, ref)
		if err != nil {
			return nil, err
		}
		return x, nil
	})
}

// Delete removes a blob's extents on all nodes that may have them. Nodes that do not answer are
// skipped: garbage collection removes their extents. It returns ErrNoBlob if no node had any.
func (s *Store) Delete(ctx context.Context, id ID) error {
	if s.peers.OnlyMember() {
		err := s.disks.Delete(ctx, id)
		if err == nil {
			s.Release(id)
		}
		return err
	}
	if err := s.usable(ctx); err != nil {
		return fmt.Errorf("delete blob %s: %w", id, err)
	}
	nodes := s.holdersOf(id)
	s.cache.forget(id)
	err := s.disks.Delete(ctx, id)
	if err != nil && !errors.Is(err, ErrNoBlob) {
		return err
	}
	s.Release(id)
	s.cache.forget(id)
	gone := err == nil
	var mu sync.Mutex
	s.peers.Each(ctx, nodes, func(ctx context.Context, p api.Peer) {
		if n, err := p.DropBlob(ctx, id, api.Deleted); err == nil && n > 0 {
			mu.Lock()
			gone = true
			mu.Unlock()
		}
	})
	if !gone {
		return fmt.Errorf("delete blob %s: %w", id, ErrNoBlob)
	}
	return ctx.Err()
}

// holdersOf returns the other nodes that may have extents of a blob: those on the holder lists if
// all extents are here and have a list, else all members.
func (s *Store) holdersOf(id ID) []string {
	var nodes []string
	whole := false
	for i, x := range s.extentsOf(id) {
		if x.Holders.Epoch == 0 || x.ID.Index != i {
			return s.peers.Others()
		}
		nodes = append(nodes, x.Holders.Nodes...)
		whole = x.Last
	}
	if !whole {
		return s.peers.Others()
	}
	slices.Sort(nodes)
	return slices.DeleteFunc(slices.Compact(nodes), func(n string) bool { return n == s.self })
}
